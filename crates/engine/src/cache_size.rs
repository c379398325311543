//! Size of the KV cache: number of blocks, and length of the longest sequence.

use crate::Error;

/// Memory for the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvMemory {
    /// Memory for one sequence of the longest context.
    #[default]
    OneSequence,
    /// Half of the memory that is free once the model is loaded: for many sequences and their
    /// prefix cache.
    Share,
    /// This many bytes.
    Bytes(usize),
}

/// Maximum number of sequences of full length for which a default cache has blocks.
const MAX_SEQUENCES: usize = 64;

/// Available memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeMemory {
    pub bytes: usize,
    /// Bytes that remain with all weights in memory.
    pub spare: usize,
}

impl FreeMemory {
    /// Default size of the cache: half of the spare memory, or an eighth of all memory if the
    /// weights alone fill it and are read again and again.
    fn share(&self) -> usize {
        (self.spare / 2).max(self.bytes / 8)
    }
}

/// The requested cache and its block size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheRequest {
    pub memory: KvMemory,
    /// Maximum number of tokens of a sequence, if the user names it.
    pub context: Option<usize>,
    /// Number of tokens the model was trained for.
    pub trained: usize,
    /// Positions of a block.
    pub block: usize,
    /// Bytes of a block in all layers.
    pub block_bytes: usize,
}

/// The size of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSize {
    pub blocks: usize,
    /// Maximum number of tokens of a sequence.
    pub context: usize,
}

impl CacheRequest {
    /// Computes the size.
    ///
    /// # Errors
    ///
    /// [`Error::Context`] if the request does not fit, with the sizes.
    pub fn size(&self, free: Option<FreeMemory>) -> Result<CacheSize, Error> {
        if self.context == Some(0) {
            return Err(Error::Context("a context of 0 tokens holds nothing".into()));
        }
        let size = match self.memory {
            KvMemory::Bytes(bytes) => self.of_bytes(bytes)?,
            KvMemory::OneSequence => self.of_sequences(1, free),
            KvMemory::Share => self.of_sequences(MAX_SEQUENCES, free),
        };
        let needed = size.blocks as u128 * self.block_bytes as u128;
        match free {
            Some(free) if needed > free.bytes as u128 => Err(self.too_large(size, free)),
            _ => Ok(size),
        }
    }

    fn tokens(&self, blocks: usize) -> usize {
        blocks.saturating_mul(self.block)
    }

    fn of_bytes(&self, bytes: usize) -> Result<CacheSize, Error> {
        let blocks = bytes / self.block_bytes.max(1);
        let most = self.tokens(blocks);
        let least = self.context.unwrap_or(1);
        if most < least {
            return Err(Error::Context(format!(
                "{} KiB of KV cache hold {most} tokens, but {least} are needed, which take {} KiB",
                bytes >> 10,
                (least.div_ceil(self.block) as u128 * self.block_bytes as u128).div_ceil(1 << 10),
            )));
        }
        Ok(CacheSize { blocks, context: self.context.unwrap_or(self.trained.min(most)) })
    }

    /// Size for up to `most` sequences of full length, as far as memory allows, and at least for
    /// one of the context that the user names.
    fn of_sequences(&self, most: usize, free: Option<FreeMemory>) -> CacheSize {
        let share = free.map_or(usize::MAX, |free| free.share() / self.block_bytes.max(1)).max(1);
        let one = |context: usize| context.div_ceil(self.block);
        let context = self.context.unwrap_or(self.trained.min(self.tokens(share))).max(1);
        let blocks = one(context).saturating_mul(most).min(share).max(one(context));
        CacheSize { blocks, context }
    }

    fn too_large(&self, size: CacheSize, free: FreeMemory) -> Error {
        let fitting = self.tokens(free.bytes / self.block_bytes.max(1));
        Error::Context(format!(
            "a KV cache for {} tokens takes {} MiB, but {} MiB of memory are available ({fitting} \
             tokens)",
            self.tokens(size.blocks),
            (size.blocks as u128 * self.block_bytes as u128) >> 20,
            free.bytes >> 20,
        ))
    }
}

/// Bytes of memory available without swapping on this machine and in the control group of this
/// process; `None` if the system does not report them.
pub(crate) fn available_memory() -> Option<usize> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let machine = system.available_memory();
    // `free_memory` would count cached files as used, although they give way.
    let group = system.cgroup_limits().map_or(u64::MAX, |g| g.total_memory.saturating_sub(g.rss));
    usize::try_from(machine.min(group)).ok().filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: CacheRequest = CacheRequest {
        memory: KvMemory::OneSequence,
        context: None,
        trained: 4096,
        block: 32,
        block_bytes: 32 << 20,
    };

    fn check(request: CacheRequest, spare: usize, blocks: usize, context: usize) {
        let free = FreeMemory { bytes: 1 << 30, spare };
        assert_eq!(request.size(Some(free)).unwrap(), CacheSize { blocks, context }, "{request:?}");
    }

    #[test]
    fn one_sequence_gets_the_models_context_as_far_as_memory_allows() {
        check(REQUEST, 1 << 29, 8, 256);
        check(REQUEST, 0, 4, 128);
        check(CacheRequest { trained: 50, ..REQUEST }, 1 << 30, 2, 50);
        check(CacheRequest { context: Some(100), ..REQUEST }, 0, 4, 100);
        assert_eq!(REQUEST.size(None).unwrap(), CacheSize { blocks: 128, context: 4096 });
    }

    #[test]
    fn a_share_is_for_many_sequences_and_not_for_more_than_are_of_use() {
        let share = CacheRequest { memory: KvMemory::Share, trained: 64, ..REQUEST };
        check(share, 1 << 30, 16, 64);
        check(CacheRequest { block_bytes: 1 << 10, ..share }, 1 << 30, 128, 64);
        check(CacheRequest { context: Some(640), ..share }, 1 << 29, 20, 640);
    }

    fn check_refused(request: CacheRequest, words: [&str; 2]) {
        let free = FreeMemory { bytes: 1 << 30, spare: 1 << 30 };
        let message = request.size(Some(free)).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }

    #[test]
    fn bytes_are_kept_and_what_cannot_be_is_refused_with_sizes() {
        let bytes = |bytes| CacheRequest { memory: KvMemory::Bytes(bytes), ..REQUEST };
        check(bytes(100 << 20), 0, 3, 96);
        check(CacheRequest { context: Some(50), ..bytes(100 << 20) }, 0, 3, 50);
        check_refused(CacheRequest { context: Some(97), ..bytes(100 << 20) }, ["96 tokens", "97"]);
        check_refused(bytes(1 << 20), ["1024 KiB", "32768 KiB"]);
        check_refused(bytes(1 << 31), ["2048 MiB", "1024 MiB"]);
        check_refused(CacheRequest { context: Some(1025), ..REQUEST }, ["1056 MiB", "1024 tokens"]);
        check_refused(CacheRequest { context: Some(0), ..REQUEST }, ["0 tokens", "nothing"]);
        assert!(CacheRequest { context: Some(usize::MAX), ..REQUEST }.size(None).is_ok());
    }

    #[test]
    fn the_system_tells_its_memory() {
        if cfg!(target_os = "linux") {
            assert!(available_memory().is_some());
        }
    }
}
