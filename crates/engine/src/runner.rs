//! A loaded model with its backend and KV cache: batches in, logits out.

use crate::{Error, ModelInfo};
use backend::{Backend, Batch, Cpu, KvType, Memory, Mode};
use formats::Checkpoint;
use models::{Limits, Model};

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
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
            threads => threads,
        };
        let mut backend = Cpu::new(threads, options.mode)?;
        let chunk = options.chunk.max(1);
        let limits = Limits { rows: chunk, logit_rows: options.logit_rows.clamp(1, chunk) };
        let model = models::load(checkpoint, &mut backend, limits)?;
        let kv_type = options.kv_type.unwrap_or(options.mode.default_kv_type());
        let per_token = model.cache().iter().map(|l| 2 * l.heads * l.dim * kv_type.bytes()).sum();
        let context = context(options.context, config.context_length, per_token)?;
        let blocks = context.div_ceil(BLOCK);
        backend.cache(&model.cache(), BLOCK, blocks, kv_type)?;
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

/// Tokens the cache shall hold, of which each takes `per_token` bytes.
fn context(wanted: Option<usize>, trained: usize, per_token: usize) -> Result<usize, Error> {
    let available = available_memory();
    let fits = available.map_or(usize::MAX, |bytes| bytes / per_token.max(1));
    match wanted {
        Some(0) => Err(Error::Context("a context of 0 tokens holds nothing".into())),
        Some(wanted) if wanted > fits => Err(Error::Context(format!(
            "a context of {wanted} tokens takes {} MiB of KV cache, but {} MiB of memory are \
             available ({fits} tokens)",
            (wanted as u128 * per_token as u128) >> 20,
            available.unwrap_or(0) >> 20,
        ))),
        Some(wanted) => Ok(wanted),
        // Half of what is free, so that a long context by default starves nobody.
        None => Ok(trained.min(fits / 2).max(1)),
    }
}

/// Bytes of memory that can be had without swapping, where the system tells.
fn available_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_beyond_memory_is_refused_with_sizes_and_shrunk_by_default() {
        assert_eq!(context(Some(100), 50, 1).unwrap(), 100);
        assert_eq!(context(None, 50, 1).unwrap(), 50);
        assert!(context(Some(0), 50, 1).is_err());
        if available_memory().is_some() {
            let huge = 1 << 40;
            let message = context(Some(huge), huge, 1 << 20).unwrap_err().to_string();
            assert!(message.contains("MiB"), "{message}");
            assert!(context(None, huge, 1 << 20).unwrap() < huge);
        }
    }
}
