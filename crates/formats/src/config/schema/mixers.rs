//! What layers have in place of attention, or beside it, and which sublayers they have.

use crate::layers::{MambaNorm, RopeLayout};

/// Sizes of Gated DeltaNet: layers with a matrix of `[key_dim, value_dim]` per value head, into
/// which each position folds a key and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaConfig {
    /// Per layer: whether it has the recurrence in place of attention.
    pub layers: Vec<bool>,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Values of a query or key head.
    pub key_dim: usize,
    /// Values of a value head.
    pub value_dim: usize,
    /// Positions that the convolution of queries, keys and values covers, its own included.
    pub kernel: usize,
    /// Whether value head `j` uses key head `j % key_heads`, as in llama.cpp's files of Qwen3.5,
    /// rather than `j / (value_heads / key_heads)`.
    pub tiled: bool,
}

/// Sizes of state spaces (Mamba-2): layers with a matrix of `[state, head_dim]` per head, to which
/// each position adds a value.
#[derive(Clone, Debug, PartialEq)]
pub struct MambaConfig {
    /// Per layer: whether it has a state space.
    pub layers: Vec<bool>,
    /// Heads.
    pub heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Groups of consecutive heads that share keys and queries; divides `heads`.
    pub groups: usize,
    /// Values of a key.
    pub state: usize,
    /// Positions that the convolution of values, keys and queries covers, its own included.
    pub kernel: usize,
    /// Where the outputs are normalised.
    pub norm: MambaNorm,
    /// Least and greatest length of a step.
    pub limits: [f32; 2],
}

impl MambaConfig {
    /// Values of all heads.
    pub fn values(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: values, keys and queries.
    pub fn channels(&self) -> usize {
        self.values() + 2 * self.groups * self.state
    }

    /// Rows of the projection of the input: gates, channels, and the length of each head's step.
    pub fn inputs(&self) -> usize {
        self.values() + self.channels() + self.heads
    }
}

/// Layers with a short convolution in place of attention (LFM2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvConfig {
    /// Per layer: whether it has one.
    pub layers: Vec<bool>,
    /// Positions that it covers, its own included.
    pub kernel: usize,
    /// Whether it and the projections before and after it have biases.
    pub biased: bool,
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

impl DeltaConfig {
    /// Values of all key heads; those of all query heads are as many.
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Values of all value heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Value heads that share a key head.
    pub fn ratio(&self) -> usize {
        self.value_heads / self.key_heads
    }
}

/// Sizes of an index over the positions of latent attention (DeepSeek V3.2): small queries and one
/// small key of each position choose the positions that a query attends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Query heads of the index.
    pub heads: usize,
    /// Values of its queries and keys, of which the first are rotated, as many as in attention.
    pub dim: usize,
    /// Most positions that are chosen.
    pub top: usize,
    /// Which of the rotated values form a pair.
    pub layout: RopeLayout,
    /// Per layer: whether it has the index; other layers attend to the choice of the last layer
    /// before them that has it. The first layer has it.
    pub layers: Vec<bool>,
}
