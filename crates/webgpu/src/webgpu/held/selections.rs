//! Chosen rows, and the workspace of choices and attention over them.

use crate::gpu::Words;

/// Words of scores that devices hold at a time.
pub(in crate::webgpu) const SCORES: usize = 1 << 22;

/// The compressed rows that each row of a batch chose.
pub(crate) struct Choice {
    /// Most rows of a choice.
    pub(in crate::webgpu) top: usize,
    /// `[rows, top]`, ascending, where more than `top` rows are complete.
    pub(in crate::webgpu) numbers: Words,
}

/// Workspace of all operations of this module.
pub(crate) struct Workplace {
    /// Words of scores that are held at a time, unless one row has more.
    pub(in crate::webgpu) most: usize,
    /// `[rows of a pass, scores of a row]`.
    pub(in crate::webgpu) scores: Option<Words>,
}

impl Default for Workplace {
    fn default() -> Self {
        Self { most: SCORES, scores: None }
    }
}

impl Workplace {
    /// Bytes of the workspace.
    pub fn bytes(&self) -> usize {
        self.scores.as_ref().map_or(0, |scores| 4 * scores.len())
    }
}
