//! What layers have in place of attention, or in addition to it, and which sublayers they have.

use crate::layers::RopeLayout;

/// An operation that some layers have.
#[derive(Clone, Debug, PartialEq)]
pub struct OfLayers<S> {
    /// Per layer: whether it has the operation.
    pub layers: Vec<bool>,
    /// The operation, without what the family of the model decides.
    pub spec: S,
}

impl<S> OfLayers<S> {
    /// The operation, if any layer has it.
    pub(crate) fn some(self) -> Option<Self> {
        Some(self).filter(|of| of.layers.contains(&true))
    }

    /// The operation of a layer, if it has it.
    pub(crate) fn of(of_layers: &Option<Self>, layer: usize) -> Option<&S> {
        of_layers.as_ref().filter(|of| of.layers[layer]).map(|of| &of.spec)
    }

    /// Whether a layer has the operation.
    pub fn has(of_layers: &Option<Self>, layer: usize) -> bool {
        of_layers.as_ref().is_some_and(|of| of.layers[layer])
    }
}

/// Which sublayers a layer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sublayers {
    /// Attention, or what takes its place, and an MLP or experts.
    #[default]
    Both,
    /// The first alone.
    Mixer,
    /// The second alone.
    FeedForward,
}

/// Layers of multi-token prediction that are not computed, as a file says of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMtp {
    /// The field that says it.
    pub field: &'static str,
    /// What was expected, and what the field has.
    pub problem: String,
}

/// Sizes of an index over the positions of latent attention (DeepSeek V3.2): small queries and one
/// small key of each position choose the positions that a query attends to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexConfig {
    /// Query heads of the index.
    pub heads: usize,
    /// Values of its queries and keys, of which the first are rotated, as many as in attention.
    pub dim: usize,
    /// Most positions that are chosen.
    pub top: usize,
    /// Which of the rotated values form a pair.
    pub layout: RopeLayout,
    /// Consecutive positions whose keys are pooled to one, and which are chosen together; `None`
    /// where each position has a key. Divides `top`.
    pub pool: Option<usize>,
    /// Whether its queries are projected from a LayerNorm of the layer's input, and not from the
    /// row that the queries of attention come from.
    pub normed_input: bool,
    /// Per layer: whether it has the index; other layers attend to the choice of the last layer
    /// before them that has it. The first layer with attention has it. Layers without attention
    /// count as having it.
    pub layers: Vec<bool>,
}

/// Sizes of an index over blocks of positions (Qwen3.8, MiniMax-M3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIndexConfig {
    /// Query heads of the index.
    pub heads: usize,
    /// Values of its queries and keys, of which the first are rotated, as many as in attention.
    pub dim: usize,
    /// Positions of a block.
    pub every: usize,
    /// Most positions of all chosen blocks.
    pub budget: usize,
    /// Last blocks that are always chosen, where blocks have the greatest score of their keys;
    /// otherwise they have that of the mean of their keys.
    pub local: Option<usize>,
    /// Per layer: whether it has an index; without any, all layers with attention have one.
    pub layers: Option<Vec<bool>>,
}

impl BlockIndexConfig {
    /// Whether a layer with attention has an index.
    pub fn has(&self, layer: usize) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers[layer])
    }

    /// Whether any layer has an index.
    pub(crate) fn has_any(&self) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.contains(&true))
    }
}
