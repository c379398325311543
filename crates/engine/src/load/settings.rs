//! Everything but the request that decides the bits of an answer.

use super::cache_rounding::CacheRounding;
use backend::{KvType, Mode};

/// Everything but the request that decides the bits of an answer, and of what is cached: equal
/// settings, equal bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// Compute mode.
    pub mode: Mode,
    /// Storage type of the KV cache.
    pub kv_type: KvType,
    /// Name of the arithmetic: what decides the bits of products on CPUs, as
    /// [`Arithmetic::name_of_all`](kernels::Arithmetic::name_of_all) has it, or a GPU.
    pub arithmetic: String,
    /// Digest of what placement rules change; empty if they change nothing.
    pub placement: String,
    /// Number of ranks that hold a slice of each layer.
    pub slices: usize,
    /// How cached rows are rounded; `None` where the model was not trained for it.
    pub rounding: Option<CacheRounding>,
    /// Digest of the layers that draft tokens, whose rows are cached; `None` without them.
    pub drafter: Option<String>,
}
