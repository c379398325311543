//! Size of the KV cache: number of blocks, and length of the longest sequence.

use super::cache_bytes::{GroupBytes, window_blocks};
use super::error::Error;
use backend::FreeMemory;
use serde::{Deserialize, Serialize};

/// Memory for the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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

/// The requested cache and its block size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheRequest<'a> {
    pub memory: KvMemory,
    /// Maximum number of tokens of a sequence, if the user names it.
    pub context: Option<usize>,
    /// Number of tokens the model was trained for.
    pub trained: usize,
    /// Positions of a block.
    pub block: usize,
    /// The groups of rows. The first is the trunk, which holds all positions of a sequence; the
    /// others hold those within their windows.
    pub groups: &'a [GroupBytes],
    /// Number of sequences that run at once.
    pub parallel: usize,
    /// Maximum number of prompt tokens of a step.
    pub chunk: usize,
}

/// The size of a KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheSize {
    /// Number of blocks of each group.
    pub blocks: Vec<usize>,
    /// Maximum number of tokens of a sequence.
    pub context: usize,
}

/// Of the memory beyond the windows of running sequences, groups with windows get one part in so
/// many, for the windows of other prefixes in the cache.
const WINDOWED_PART: u128 = 5;

impl CacheRequest<'_> {
    /// Computes the size.
    ///
    /// # Errors
    ///
    /// [`Error::Context`] if the request does not fit, with the sizes.
    pub fn size(&self, free: Option<FreeMemory>) -> Result<CacheSize, Error> {
        if self.context == Some(0) {
            return Err(Error::Context("a context of 0 tokens holds nothing".into()));
        }
        let share = free.map_or(usize::MAX, default_share);
        let size = match self.memory {
            KvMemory::Bytes(bytes) => self.affordable(bytes).of_bytes(bytes)?,
            KvMemory::OneSequence => self.affordable(share).of_sequences(1, share),
            KvMemory::Share => self.affordable(share).of_sequences(MAX_SEQUENCES, share),
        };
        let needed = self.bytes(&size.blocks);
        match free {
            Some(free) if needed > free.bytes as u128 => Err(self.too_large(&size, free)),
            _ => Ok(size),
        }
    }

    /// The request with the windows of as many sequences as `bytes` hold in addition to the
    /// context, and of one at least: where there are more, they take each other's blocks.
    fn affordable(self, bytes: usize) -> Self {
        let one = self.context.unwrap_or(1).div_ceil(self.block);
        let fits = |parallel| {
            let request = Self { parallel, ..self };
            request.bytes(&request.least(one)) <= bytes as u128
        };
        Self { parallel: largest(self.parallel, fits).max(1), ..self }
    }

    fn tokens(&self, blocks: usize) -> usize {
        blocks.saturating_mul(self.block)
    }

    fn bytes(&self, blocks: &[usize]) -> u128 {
        let groups = self.groups.iter().zip(blocks);
        let bytes = groups.map(|(group, &blocks)| group.block_bytes as u128 * blocks as u128);
        bytes.fold(0, u128::saturating_add)
    }

    /// Bytes of the groups after the trunk.
    fn windowed_bytes(&self, blocks: &[usize]) -> u128 {
        self.bytes(blocks) - self.bytes(&blocks[..1])
    }

    /// Blocks of each group for one sequence of `one` blocks, and for the windows of all sequences
    /// that run.
    fn least(&self, one: usize) -> Vec<usize> {
        let parallel = self.parallel.max(1);
        let windowed = |group: &GroupBytes| match group.window {
            Some(window) => {
                let seen = parallel.saturating_mul(window_blocks(window, self.block));
                let all = parallel.saturating_mul(one);
                seen.saturating_add(self.chunk.div_ceil(self.block)).min(all)
            }
            None => one,
        };
        std::iter::once(one).chain(self.groups.iter().skip(1).map(windowed)).collect()
    }

    /// Bytes of a cache for one sequence of `one` blocks, with the windows of other prefixes.
    fn comfortable(&self, one: usize) -> u128 {
        let least = self.least(one);
        let more: Vec<_> = least.iter().map(|&blocks| one.saturating_sub(blocks)).collect();
        let part = self.bytes(&least[..1]) / (WINDOWED_PART - 1);
        self.bytes(&least) + self.bytes(&more).min(part)
    }

    /// The longest context up to the model's that has a comfortable cache in `bytes`, and at least
    /// a block.
    fn longest(&self, bytes: usize) -> usize {
        let fits = |blocks| self.comfortable(blocks) <= bytes as u128;
        let blocks = largest(self.trained.div_ceil(self.block), fits).max(1);
        self.trained.min(self.tokens(blocks)).max(1)
    }

    /// Number of tokens of a sequence that `bytes` can hold.
    fn capacity(&self, bytes: usize) -> usize {
        let trunk = self.groups.first().map_or(1, |trunk| trunk.block_bytes.max(1));
        self.tokens(largest(bytes / trunk, |one| self.bytes(&self.least(one)) <= bytes as u128))
    }

    fn of_bytes(&self, bytes: usize) -> Result<CacheSize, Error> {
        let least = self.context.unwrap_or(1);
        let needed = self.bytes(&self.least(least.div_ceil(self.block)));
        if needed > bytes as u128 {
            return Err(Error::Context(format!(
                "{} KiB of KV cache hold {} tokens, but {least} are needed, which take {} KiB",
                bytes >> 10,
                self.capacity(bytes),
                needed.div_ceil(1 << 10),
            )));
        }
        let context = self.context.unwrap_or_else(|| self.longest(bytes));
        Ok(CacheSize { blocks: self.divide(bytes, context, usize::MAX), context })
    }

    /// Size for up to `most` sequences of full length, as far as memory allows, and at least for
    /// one of the context that the user names.
    fn of_sequences(&self, most: usize, share: usize) -> CacheSize {
        let context = self.context.unwrap_or_else(|| self.longest(share));
        let blocks = context.div_ceil(self.block).saturating_mul(most);
        CacheSize { blocks: self.divide(share, context, blocks), context }
    }

    /// Divides `bytes` among the groups: first the least for `context`, then a part of the rest to
    /// groups with windows, at most for as many positions as the trunk holds, and what remains to
    /// the trunk, up to `most` blocks.
    fn divide(&self, bytes: usize, context: usize, most: usize) -> Vec<usize> {
        let least = self.least(context.div_ceil(self.block));
        let unit = self.groups.first().map_or(1, |trunk| trunk.block_bytes.max(1)) as u128;
        let windows = self.windowed_bytes(&least);
        let rest = (bytes as u128).saturating_sub(windows);
        let trunk = |bytes: u128| {
            let blocks = usize::try_from(bytes / unit).unwrap_or(usize::MAX);
            blocks.min(most).max(least[0])
        };
        let part = if windows == 0 { 0 } else { rest / WINDOWED_PART };
        let first = trunk(rest - part);
        let held = first as u128 * unit;
        let part = part.min(rest.saturating_sub(held)).min(held / (WINDOWED_PART - 1));
        let mut blocks = least.clone();
        for blocks in &mut blocks[1..] {
            // All windows grow by the same factor.
            let more = (*blocks as u128).saturating_mul(part) / windows.max(1);
            let more = usize::try_from(more).unwrap_or(usize::MAX);
            *blocks = blocks.saturating_add(more).min(first.max(*blocks));
        }
        // What the windows need no more of is for the trunk.
        blocks[0] = trunk((bytes as u128).saturating_sub(self.windowed_bytes(&blocks)));
        blocks
    }

    fn too_large(&self, size: &CacheSize, free: FreeMemory) -> Error {
        Error::Context(format!(
            "a KV cache for {} tokens takes {} MiB, but {} MiB of memory are available ({} tokens)",
            self.tokens(size.blocks[0]),
            self.bytes(&size.blocks) >> 20,
            free.bytes >> 20,
            self.capacity(free.bytes),
        ))
    }
}

/// The largest number up to `most` that fits, if all smaller ones do; 0 if none does.
fn largest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut most) = (0, most);
    while fitting < most {
        let middle = fitting + (most - fitting).div_ceil(2);
        if fits(middle) {
            fitting = middle;
        } else {
            most = middle - 1;
        }
    }
    fitting
}

/// The requested memory for states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateRequest {
    /// Bytes, if the user names them.
    pub memory: Option<usize>,
    /// Bytes of a slot: the states of all layers of one sequence; 0 if the model has none.
    pub slot_bytes: usize,
    /// Number of sequences that should run at once.
    pub parallel: usize,
}

/// The number of state slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateSize {
    /// Slots: one for each running sequence, and others for snapshots.
    pub slots: usize,
    /// Number of sequences that can run at once.
    pub parallel: usize,
    /// What the user should know: fewer sequences run than requested.
    pub note: Option<String>,
}

impl StateRequest {
    /// Computes the number of slots: as many as the requested memory holds, else two for each
    /// running sequence, as far as half of a default KV cache holds them: a quarter of the spare
    /// memory.
    ///
    /// # Errors
    ///
    /// [`Error::States`] if the memory holds no slot or is not available, with the sizes.
    pub fn size(&self, free: Option<FreeMemory>) -> Result<StateSize, Error> {
        let Self { memory, slot_bytes: slot, .. } = *self;
        let parallel = self.parallel.max(1);
        if slot == 0 {
            return Ok(StateSize { slots: 0, parallel, note: None });
        }
        let quarter = free.map_or(usize::MAX, |free| default_share(free) / 2);
        let all = parallel.saturating_mul(2).saturating_mul(slot);
        let bytes = memory.unwrap_or(all.min(quarter));
        let slots = (bytes / slot).min(u32::MAX as usize - 1);
        let available = free.map_or(usize::MAX, |free| free.bytes);
        let kib = |bytes: usize| bytes.div_ceil(1 << 10);
        if slots == 0 {
            return Err(Error::States(format!(
                "the states of a sequence take {} KiB, but the memory for states is {} KiB",
                kib(slot),
                bytes >> 10,
            )));
        }
        if bytes > available {
            return Err(Error::States(format!(
                "{} KiB for states are more than the {} KiB of memory that are available",
                kib(bytes),
                available >> 10,
            )));
        }
        let fewer = slots.min(parallel);
        let note = (fewer < parallel).then(|| {
            format!(
                "{} MiB of state memory hold {slots} states of {} KiB: at most {fewer} requests \
                 run at once, not {parallel}",
                bytes >> 20,
                kib(slot),
            )
        });
        Ok(StateSize { slots, parallel: fewer, note })
    }
}

/// Default size of the cache: half of the spare memory, or an eighth of all memory if the weights
/// alone fill it and are read again and again.
fn default_share(free: FreeMemory) -> usize {
    (free.spare / 2).max(free.bytes / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: CacheRequest<'_> = CacheRequest {
        memory: KvMemory::OneSequence,
        context: None,
        trained: 4096,
        block: 32,
        groups: &[GroupBytes { window: None, block_bytes: 32 << 20 }],
        parallel: 16,
        chunk: 512,
    };

    fn check(request: CacheRequest<'_>, spare: usize, blocks: usize, context: usize) {
        let free = FreeMemory { bytes: 1 << 30, spare };
        let expected = CacheSize { blocks: vec![blocks], context };
        assert_eq!(request.size(Some(free)).unwrap(), expected, "{request:?}");
    }

    #[test]
    fn one_sequence_gets_the_models_context_as_far_as_memory_allows() {
        check(REQUEST, 1 << 29, 8, 256);
        check(REQUEST, 0, 4, 128);
        check(CacheRequest { trained: 50, ..REQUEST }, 1 << 30, 2, 50);
        check(CacheRequest { context: Some(100), ..REQUEST }, 0, 4, 100);
        let expected = CacheSize { blocks: vec![128], context: 4096 };
        assert_eq!(REQUEST.size(None).unwrap(), expected);
    }

    #[test]
    fn a_share_is_for_many_sequences_and_not_for_more_than_are_of_use() {
        let share = CacheRequest { memory: KvMemory::Share, trained: 64, ..REQUEST };
        check(share, 1 << 30, 16, 64);
        let groups = &[GroupBytes { window: None, block_bytes: 1 << 10 }];
        check(CacheRequest { groups, ..share }, 1 << 30, 128, 64);
        check(CacheRequest { context: Some(640), ..share }, 1 << 29, 20, 640);
    }

    fn check_refused(request: CacheRequest<'_>, words: [&str; 2]) {
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

    /// Half of the layers look at 128 positions.
    const WINDOWED: CacheRequest<'_> = CacheRequest {
        memory: KvMemory::Bytes(64 << 20),
        trained: 1 << 20,
        groups: &[
            GroupBytes { window: None, block_bytes: 16 << 10 },
            GroupBytes { window: Some(128), block_bytes: 16 << 10 },
        ],
        parallel: 4,
        chunk: 64,
        ..REQUEST
    };

    /// The size without a bound on memory, which takes no more than the request's bytes.
    fn divided(request: CacheRequest<'_>) -> CacheSize {
        let size = request.size(None).unwrap();
        let KvMemory::Bytes(bytes) = request.memory else { return size };
        let taken = request.bytes(&size.blocks);
        let one = request.least(size.context.div_ceil(request.block));
        assert!(taken <= bytes as u128, "{taken} of {bytes}: {request:?}");
        assert!(size.blocks.iter().zip(&one).all(|(have, need)| have >= need), "{request:?}");
        size
    }

    #[test]
    fn groups_with_windows_get_their_windows_and_a_fifth_of_the_rest() {
        // 4 x (4 + 2) blocks and a chunk of 2; of 4096 - 26 blocks a fifth.
        let size = divided(WINDOWED);
        assert_eq!(size.blocks, [4096 - 26 - 814, 26 + 814]);
        assert_eq!(size.context, size.blocks[0] * 32);
        // A short sequence is in its windows whole.
        let short = CacheRequest { trained: 64, ..WINDOWED };
        assert_eq!((short.least(2), divided(short).context), (vec![2, 8], 64));
        // A named context goes before the cache of windows.
        let long = CacheRequest { context: Some(4000 * 32), ..WINDOWED };
        assert_eq!(divided(long).blocks, [4000, 96]);
        // Windows of few bytes need no fifth: as many positions as the trunk has are enough.
        let groups = &[WINDOWED.groups[0], GroupBytes { window: Some(4), block_bytes: 64 }];
        let few = divided(CacheRequest { groups, ..WINDOWED });
        assert!(few.blocks[0] > 4070 && few.blocks[1] > 3000, "{few:?}");
        assert!(few.context > 4060 * 32, "{few:?}");
    }

    #[test]
    fn all_windows_grow_by_the_same_factor() {
        let group = |window, block_bytes| GroupBytes { window, block_bytes };
        let groups = &[group(None, 4 << 10), group(Some(128), 32 << 10), group(Some(8), 8 << 10)];
        let request = CacheRequest { groups, ..WINDOWED };
        let (least, size) = (request.least(1 << 15), divided(request));
        let factor = |at: usize| size.blocks[at] as f64 / least[at] as f64;
        assert!(factor(1) > 3.0 && (factor(1) - factor(2)).abs() < 0.1, "{least:?} {size:?}");
    }

    #[test]
    fn every_size_holds_one_sequence_of_its_context() {
        for megabytes in 1..40 {
            for parallel in [1, 3, 16] {
                for trained in [1, 100, 5000, 1 << 20] {
                    let memory = KvMemory::Bytes(megabytes << 20);
                    let request = CacheRequest { memory, parallel, trained, ..WINDOWED };
                    let size = divided(request);
                    assert!(size.context <= trained && size.context > 0, "{size:?}");
                    let named = CacheRequest { context: Some(size.context), ..request };
                    assert_eq!(divided(named).context, size.context);
                }
            }
        }
    }

    #[test]
    fn one_sequence_has_room_for_windows_of_its_prefixes() {
        let one = CacheRequest { memory: KvMemory::OneSequence, trained: 3200, ..WINDOWED };
        assert_eq!(divided(one).blocks, [100, 26 + 25]);
        let share = CacheRequest { memory: KvMemory::Share, ..one };
        assert_eq!(divided(share).blocks, [6400, 26 + 1600]);
    }

    #[test]
    fn windows_that_do_not_fit_are_refused_with_sizes() {
        let small = CacheRequest { memory: KvMemory::Bytes(1 << 20), ..WINDOWED };
        let long = CacheRequest { context: Some(2000), ..small };
        // 63 blocks and 8, of the window of one sequence and a chunk.
        check_refused(long, ["1024 KiB", "1136 KiB"]);
        check_refused(long, ["1792 tokens", "2000"]);
        assert!(small.size(None).unwrap().context >= 640);
    }

    fn states(memory: Option<usize>, spare: usize) -> Result<StateSize, Error> {
        let request = StateRequest { memory, slot_bytes: 1 << 20, parallel: 8 };
        request.size(Some(FreeMemory { bytes: 1 << 30, spare }))
    }

    #[test]
    fn states_are_two_for_each_sequence_within_a_quarter_of_the_free_memory() {
        let size = |slots| StateSize { slots, parallel: 8, note: None };
        assert_eq!(states(None, 1 << 30).unwrap(), size(16));
        assert_eq!(states(None, 160 << 20).unwrap(), size(16), "an eighth of all is more");
        assert_eq!(states(Some(100 << 20), 0).unwrap(), size(100));
        let request = StateRequest { memory: None, slot_bytes: 20 << 20, parallel: 8 };
        let free = FreeMemory { bytes: 1 << 30, spare: 1 << 30 };
        assert_eq!(request.size(Some(free)).unwrap(), size(12));
        let none = StateRequest { slot_bytes: 0, ..request };
        assert_eq!(none.size(Some(free)).unwrap(), size(0));
        assert_eq!(request.size(None).unwrap(), size(16));
    }

    #[test]
    fn few_states_lower_the_number_of_sequences_and_none_is_refused() {
        let few = states(Some(3 << 20), 0).unwrap();
        assert_eq!((few.slots, few.parallel), (3, 3));
        let note = few.note.unwrap();
        assert!(["3 MiB", "1024 KiB", "not 8"].iter().all(|word| note.contains(word)), "{note}");
        for (memory, words) in
            [(1 << 19, ["512 KiB", "1024 KiB"]), (2 << 30, ["2097152", "1048576"])]
        {
            let message = states(Some(memory), 0).unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }
}
