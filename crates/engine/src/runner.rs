//! A loaded model with its backend and KV cache: batches in, logits out.

use crate::{Error, ModelInfo};
use backend::{Backend, Batch, Cpu, InputSums, KvType, Memory, Mode};
use formats::Checkpoint;
use models::{Limits, Model};

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
    /// Whether each thread is pinned to a CPU of its own.
    pub pin: bool,
    /// Compute mode.
    pub mode: Mode,
    /// Storage type of the KV cache; `None` for the mode's default.
    pub kv_type: Option<KvType>,
    /// Tokens the KV cache holds; `None` for the model's context, as far as memory allows.
    pub context: Option<usize>,
    /// Most rows in a batch, that is the prompt tokens computed at once.
    pub chunk: usize,
    /// Most rows whose logits can be had from one batch.
    pub logit_rows: usize,
    /// Whether every stage is checked for NaN and infinities.
    pub check: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            pin: false,
            mode: Mode::default(),
            kv_type: None,
            context: None,
            chunk: 512,
            logit_rows: 16,
            check: false,
        }
    }
}

/// Positions of a KV block.
pub const BLOCK: usize = 32;
/// More threads than this are taken for a slip.
const MAX_THREADS: usize = 1024;

/// A model ready to run.
pub struct Runner {
    backend: Cpu,
    model: Box<dyn Model>,
    info: ModelInfo,
    blocks: usize,
    limits: Limits,
    check: bool,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runner({}, {:?})", self.info.name, self.backend)
    }
}

impl Runner {
    /// Loads the model of `checkpoint`. Weights are used where the mapped files hold them.
    pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self, Error> {
        let config = checkpoint.config();
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads if threads <= MAX_THREADS => threads,
            threads => return Err(Error::Threads { threads, most: MAX_THREADS }),
        };
        let mut backend = Cpu::new(threads, options.mode)?;
        if options.pin {
            backend.pin_threads()?;
        }
        // No prompt is longer than the context.
        let chunk = options.chunk.clamp(1, options.context.unwrap_or(config.context_length).max(1));
        let limits = Limits { rows: chunk, logit_rows: options.logit_rows.clamp(1, chunk) };
        let model = models::load(checkpoint, &mut backend, limits)?;
        let kv_type = options.kv_type.unwrap_or(options.mode.default_kv_type());
        let per_block: usize = model.cache().iter().map(|l| l.block_bytes(BLOCK, kv_type)).sum();
        let per_token = per_block.div_ceil(BLOCK);
        let Memory { weights, workspace, .. } = backend.memory();
        let memory = available_memory()
            .map(|bytes| Room { bytes, spare: bytes.saturating_sub(weights + workspace) });
        let mut context = context(options.context, config.context_length, per_token, memory)?;
        // A system may have less to give than it says; a default has to make do with that.
        while let Err(error) =
            backend.cache(&model.cache(), BLOCK, context.div_ceil(BLOCK), kv_type)
        {
            let may_shrink = options.context.is_none() && context > BLOCK;
            match error {
                backend::Error::Memory(_) if may_shrink => context /= 2,
                error => return Err(error.into()),
            }
        }
        let blocks = context.div_ceil(BLOCK);
        let info = ModelInfo {
            name: config.name.clone(),
            architecture: config.architecture.clone(),
            context_length: context,
            vocab_size: config.vocab_size,
        };
        Ok(Self { backend, model, info, blocks, limits, check: options.check })
    }

    /// What is loaded.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Blocks of the KV cache, of [`BLOCK`] positions each.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Most rows of a batch, and most of them with logits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Name of the instruction set in use.
    pub fn isa(&self) -> &'static str {
        self.backend.isa().name()
    }

    /// Bytes held.
    pub fn memory(&self) -> Memory {
        self.backend.memory()
    }

    /// Pins the calling thread too, where threads are pinned: it shall only compute from now on.
    pub fn pin_caller(&self) {
        self.backend.pin_caller();
    }

    /// From now on sums up what goes into the product with every matrix.
    pub fn collect_inputs(&mut self) {
        self.backend.collect_inputs();
    }

    /// The sums since they were last taken, under the canonical names of the matrices.
    pub fn take_input_sums(&mut self) -> Vec<InputSums> {
        self.backend.take_input_sums()
    }

    /// An empty batch that any step of this model fits into.
    pub fn batch(&self) -> Batch {
        Batch::with_capacity(self.limits.rows, self.limits.rows + self.blocks)
    }

    /// Computes `batch` and stores its keys and values; gives one row of `vocab_size` logits
    /// for each of its logit rows.
    pub fn forward(&mut self, batch: &Batch) -> Result<&[f32], Error> {
        assert!(batch.rows() <= self.limits.rows, "more rows than the workspace holds");
        assert!(batch.logit_rows().len() <= self.limits.logit_rows, "more logits than asked for");
        let logits = self.model.forward(&mut self.backend, batch, self.check)?;
        Ok(self.backend.read(logits, batch.logit_rows().len()))
    }
}

/// Memory that can be had.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    /// What remains with all weights in memory.
    spare: usize,
}

/// Tokens the cache shall hold, of which each takes `per_token` bytes.
fn context(
    wanted: Option<usize>,
    trained: usize,
    per_token: usize,
    memory: Option<Room>,
) -> Result<usize, Error> {
    let tokens = |bytes: usize| bytes / per_token.max(1);
    match (wanted, memory) {
        (Some(0), _) => Err(Error::Context("a context of 0 tokens holds nothing".into())),
        (Some(wanted), Some(memory)) if wanted > tokens(memory.bytes) => {
            Err(Error::Context(format!(
                "a context of {wanted} tokens takes {} MiB of KV cache, but {} MiB of memory are \
                 available ({} tokens)",
                (wanted as u128 * per_token as u128) >> 20,
                memory.bytes >> 20,
                tokens(memory.bytes),
            )))
        }
        (Some(wanted), _) => Ok(wanted),
        // Half of what is free, so that a long context by default starves nobody; an eighth of
        // everything where the weights alone fill the memory and are read again and again.
        (None, Some(memory)) => {
            Ok(trained.min(tokens((memory.spare / 2).max(memory.bytes / 8))).max(1))
        }
        (None, None) => Ok(trained),
    }
}

/// Bytes of memory that can be had without swapping, for this machine and for the control
/// group this process runs in, where the system tells.
fn available_memory() -> Option<usize> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let machine = system.available_memory();
    // Cached files count as used by the group, but give way: so not its `free_memory`.
    let group = system.cgroup_limits().map_or(u64::MAX, |g| g.total_memory.saturating_sub(g.rss));
    usize::try_from(machine.min(group)).ok().filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_beyond_memory_is_refused_with_sizes_and_shrunk_by_default() {
        let memory = |spare| Some(Room { bytes: 1 << 30, spare });
        assert_eq!(context(Some(100), 50, 1, None).unwrap(), 100);
        assert_eq!(context(None, 50, 1, memory(1 << 20)).unwrap(), 50);
        assert!(context(Some(0), 50, 1, None).is_err());
        let message = context(Some(1025), 9, 1 << 20, memory(0)).unwrap_err().to_string();
        assert!(message.contains("1025 MiB") && message.contains("1024 tokens"), "{message}");
        assert_eq!(context(None, 4096, 1 << 20, memory(1 << 29)).unwrap(), 256);
        assert_eq!(context(None, 4096, 1 << 20, memory(0)).unwrap(), 128);
    }

    #[test]
    fn the_system_tells_its_memory() {
        if cfg!(target_os = "linux") {
            assert!(available_memory().is_some());
        }
    }
}
