//! What operations have in common.

use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, LayerCache};
use dist::Split;

/// An operation that is loaded: `[rows, hidden]` to `[rows, hidden]`.
pub(crate) trait Operation: Send {
    /// The name in errors.
    fn name(&self) -> &'static str;

    /// Which part of the outputs each rank has.
    fn split(&self) -> Split;

    /// What this rank keeps of a sequence.
    fn cache(&self) -> LayerCache {
        LayerCache::default()
    }

    /// Its experts, where they can be guessed before they are chosen.
    fn experts(&self) -> Option<&dyn ForeseenExperts> {
        None
    }

    /// Begins what can be done before the layers of a step are computed.
    fn prepare(&self, _pass: &mut ForwardPass<'_>) {}

    /// Computes `out` from the rows `x` of the batch; stores what is kept of them.
    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error>;

    /// Stores what is kept of the rows `x` of the batch, whose outputs nothing reads. `out` is
    /// workspace.
    fn keep(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        self.forward(pass, x, out)
    }
}

/// Experts that may be read from disk.
pub(crate) trait ForeseenExperts {
    /// Guesses the experts from `x`, `[rows, hidden]`, the input of an earlier layer's experts, so
    /// that those on disk can be read before they are chosen.
    fn foresee(&self, pass: &mut ForwardPass<'_>, x: Buffer);
}

/// The place of an operation in a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpPlace {
    /// Number of the layer.
    pub layer: usize,
    /// Number of the operation's first rows in the cache of the layer.
    pub rows: usize,
    /// The first position that has rows.
    pub first: usize,
}

impl OpPlace {
    /// The number of the layer among those of this rank.
    pub fn of_rank(self, loader: &Loader<'_>) -> usize {
        self.layer - loader.layers.start
    }
}
