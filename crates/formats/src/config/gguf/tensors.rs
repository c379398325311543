//! Tensors of GGUF files that say what metadata do not.

use crate::gguf::GgufFile;
use crate::tensor::TensorView;

/// A tensor that models with norms of query heads have.
pub(crate) const FIRST_HEAD_NORM: &str = "blk.0.attn_q_norm.weight";

/// Divisors of the rotary frequencies, one per pair.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The same for long and for short sequences.
pub(crate) const LONG_FACTORS: &str = "rope_factors_long.weight";

pub(crate) const SHORT_FACTORS: &str = "rope_factors_short.weight";

pub(crate) fn find<'a>(file: &'a GgufFile, name: &str) -> Option<&'a TensorView> {
    file.tensors().iter().find(|tensor| tensor.source_name == name)
}
