//! The workspace of samplers.

use super::candidates::CandidateScratch;
use super::seen::Seen;
use kernels::Isa;

/// Workspace that all samplers share, so that a step allocates nothing.
#[derive(Debug)]
pub(crate) struct SamplerScratch {
    /// Modified logits `[vocab_size]`.
    pub(super) logits: Vec<f32>,
    pub(super) seen: Seen,
    pub(super) workspace: CandidateScratch,
}

impl SamplerScratch {
    pub fn new(vocab_size: usize) -> Self {
        // All instruction sets give the same bits, so it need not be the backend's.
        let isa = Isa::detect().unwrap_or(Isa::SCALAR);
        let (logits, seen) = (vec![0.0; vocab_size], Seen::new(vocab_size));
        Self { logits, seen, workspace: CandidateScratch::new(isa, vocab_size) }
    }
}
