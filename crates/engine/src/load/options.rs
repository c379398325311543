//! How a model is loaded.

use super::adapter_base::AdapterSource;
use super::cache_rounding::CacheRounding;
use super::cache_size::KvMemory;
use crate::observe::expert_profile::ProfileUse;
use backend::{Bits, DeviceChoice, KvType, Mode};
use formats::Pooling;
use models::Ranks;
use models::placement::Placement;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Device that computes.
    pub device: DeviceChoice,
    /// Most bytes of the device's memory; `None` for all.
    pub device_memory: Option<usize>,
    /// Number of compute threads; 0 for all cores.
    pub threads: usize,
    /// Whether each thread is pinned to its own CPU.
    pub pin: bool,
    /// Whether threads are bound to NUMA nodes, each of which computes a fixed part of products.
    pub numa: bool,
    /// Compute mode.
    pub mode: Mode,
    /// Which bits products may have.
    pub bits: Bits,
    /// Storage type of the KV cache; `None` for the mode's default.
    pub kv_type: Option<KvType>,
    /// Maximum number of tokens of a sequence; `None` for the model's context, as far as memory
    /// allows.
    pub context: Option<usize>,
    /// Memory for the KV cache.
    pub kv_memory: KvMemory,
    /// Bytes for the states of sequences and their snapshots, if the model has states; `None` for
    /// two states for each running sequence, as far as a quarter of the free memory holds them.
    pub state_memory: Option<usize>,
    /// Tokens of a prompt between snapshots of states, besides those at marks; 0 for none.
    pub state_every: usize,
    /// Number of running sequences for which the caches have memory.
    pub parallel: usize,
    /// How cached rows are rounded, in models that were trained for it; `None` for the mode's
    /// default.
    pub rounding: Option<CacheRounding>,
    /// Positions of a KV block: a multiple of 16 that divides 512.
    pub block: usize,
    /// Prefill chunk size: maximum number of prompt tokens of a step. `None` for [`CHUNK`], or for
    /// [`STREAMED_CHUNK`] where weights are streamed.
    pub chunk: Option<usize>,
    /// Maximum number of rows of a batch that have logits.
    pub logit_rows: usize,
    /// How states become a vector where a request does not say; `None` for what the checkpoint
    /// says.
    pub pooling: Option<Pooling>,
    /// Whether the output of every stage is checked for NaN and infinities.
    pub check: bool,
    /// Placement rules of weights; `None` for the built-in rules alone.
    pub placement: Option<Arc<Placement>>,
    /// Memory for weights: what does not fit is read from disk when it is needed.
    pub weights_memory: WeightsMemory,
    /// Whether all weights are in memory, or nothing is loaded.
    pub whole: bool,
    /// Most bytes of memory for rows of tables that stay on disk, such as those of n-grams.
    pub table_memory: usize,
    /// Number of threads that read such weights.
    pub weights_read_threads: usize,
    /// Bytes of memory that count as available at most, for trials; `None` for all that are.
    pub simulate_memory: Option<usize>,
    /// Which file of packed weights is used.
    pub pack: PackChoice,
    /// The file that remembers digests of weights. A digest that it has must be that of the packed
    /// weights.
    pub digests: Option<PathBuf>,
    /// The file that a trace of the choices of experts is written to.
    pub route_trace: Option<PathBuf>,
    /// Profiles of earlier runs, which tell what is read ahead where experts are streamed.
    pub expert_profiles: Option<ProfileUse>,
    /// Adapters that sequences are computed with unless they name others.
    pub adapters: Vec<AdapterSource>,
    /// Ranks that share the model. Each loads its part and computes the same batches.
    pub ranks: Ranks,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: DeviceChoice::default(),
            device_memory: None,
            threads: 0,
            pin: false,
            numa: false,
            mode: Mode::default(),
            bits: Bits::default(),
            kv_type: None,
            context: None,
            kv_memory: KvMemory::default(),
            state_memory: None,
            state_every: STATE_EVERY,
            parallel: 1,
            rounding: None,
            block: BLOCK,
            chunk: None,
            logit_rows: 16,
            pooling: None,
            check: false,
            placement: None,
            weights_memory: WeightsMemory::default(),
            whole: false,
            table_memory: TABLE_MEMORY,
            weights_read_threads: WEIGHTS_READ_THREADS,
            simulate_memory: None,
            pack: PackChoice::Off,
            digests: None,
            route_trace: None,
            expert_profiles: None,
            adapters: Vec::new(),
            ranks: Ranks::default(),
        }
    }
}

/// Default number of tokens between snapshots of states.
pub const STATE_EVERY: usize = 2048;
/// Default number of positions of a KV block.
pub const BLOCK: usize = 32;
/// The numbers of positions that a KV block can have, as options write them.
pub const BLOCKS: [&str; 6] = ["16", "32", "64", "128", "256", "512"];

/// Reads a number of positions of a KV block.
///
/// # Errors
/// A text that is none, as a message that says what was expected and what was found.
pub fn parse_block(text: &str) -> Result<usize, String> {
    let known = BLOCKS.contains(&text).then(|| text.parse().ok()).flatten();
    known.ok_or_else(|| format!("expected one of {}, found {text:?}", BLOCKS.join(", ")))
}

/// Default prefill chunk size.
pub const CHUNK: usize = 512;
/// Default prefill chunk size of models whose weights are streamed: a step reads most of them,
/// whatever its rows.
pub const STREAMED_CHUNK: usize = 4096;
/// Default number of threads that read weights.
pub const WEIGHTS_READ_THREADS: usize = 8;

/// Default memory for rows of tables that stay on disk.
pub const TABLE_MEMORY: usize = 1 << 30;

/// Memory for weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightsMemory {
    /// All weights are in memory if they fit beside KV cache and workspace, else what is available
    /// less these and less the larger of 2 GiB and a tenth.
    #[default]
    Auto,
    /// All weights are in memory.
    All,
    /// This many bytes, with the memory that experts are read into.
    Bytes(usize),
}

impl FromStr for WeightsMemory {
    type Err = String;

    /// Reads `auto`, `all` or a size such as 4GiB.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            size => base::parse_size(size).map(Self::Bytes),
        }
    }
}

/// Which file of packed weights a model is loaded with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackChoice {
    /// None: weights are packed from the model's files.
    #[default]
    Off,
    /// This file. One that does not fit is an error.
    File(PathBuf),
    /// The first file that fits, if there is one: of those beside the model whose names begin like
    /// its own, and of those in this folder whose names begin with the model's identity.
    Auto(Option<PathBuf>),
}
