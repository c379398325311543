//! The normalised configuration of a model: no architecture reads a raw JSON key or GGUF field.
//!
//! A configuration serialises whole, for digests of it. The names of fields and variants are labels
//! there: one that is renamed keeps its label by `serde(rename)`.

mod experts;
mod mixers;

use serde::Serialize;

use super::{ClassifierConfig, EncoderConfig, PositionTable};
pub use experts::*;
pub use mixers::*;

/// Everything the forward pass needs to know besides the weights, whichever file format
/// it was read from. All counts are checked to be positive and consistent when built.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    /// Canonical family name: `llama`, `qwen3_moe`, `deepseek_v3` and so on.
    pub architecture: String,
    /// Display name, from the checkpoint's metadata or its folder.
    pub name: String,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head; `hidden_size / heads` unless the checkpoint says otherwise.
    pub head_dim: usize,
    /// Factor of the attention scores: `1 / sqrt(values per query)` unless scaling of the context
    /// changes it.
    pub attention_scale: f32,
    /// Width of the gated MLP of layers without routed experts.
    pub intermediate_size: usize,
    /// How gates are applied in MLPs and experts.
    pub activation: Activation,
    /// Routed experts, where any layer has them.
    pub experts: Option<ExpertsConfig>,
    /// How all layers attend, except those of `delta`.
    pub attention: Attention,
    /// Heads and rotary embedding of layers with a window, where these have their own.
    pub windowed: Option<WindowedConfig>,
    /// Number of last layers that attend to the keys and values of earlier ones: each to those of
    /// the last layer before them that has the same window.
    pub shared_kv_layers: usize,
    /// Whether the MLPs of these layers are twice as wide.
    pub wide_mlps: bool,
    /// Which norms sublayers have.
    pub norms: SublayerNorms,
    /// Whether norms subtract the mean first (LayerNorm), and may have biases.
    pub layer_norm: bool,
    /// Whether attention and MLP of a layer read the same norm of the stream, and are added
    /// together.
    pub parallel: bool,
    /// Whether MLPs and experts are an activation between two projections, without a gate.
    pub plain_mlp: bool,
    /// Growth of queries with their positions.
    pub query_growth: Option<QueryGrowth>,
    /// The index that chooses the positions that latent attention sees, where there is one.
    pub index: Option<IndexConfig>,
    /// The table of the embeddings of positions, which are added to those of tokens, where there is
    /// one.
    pub positions: Option<PositionTable>,
    /// Layers with state spaces, where the model has any.
    pub mamba: Option<MambaConfig>,
    /// Layers with a short convolution in place of attention, where the model has any.
    pub convs: Option<ConvConfig>,
    /// Per layer: which sublayers it has.
    pub sublayers: Vec<Sublayers>,
    /// Factors of what projections give, by the names of their weights in a layer.
    pub factors: Vec<(&'static str, f32)>,
    /// Whether windows follow each other: a query attends to the positions of the window that it is
    /// in, up to its own.
    pub chunked: bool,
    /// Values of the input that each layer has of its own for each token; 0 where there is none.
    pub layer_inputs: usize,
    /// Whether the residual stream is multiplied by a number behind each layer.
    pub layer_scales: bool,
    /// Layers with a recurrence in place of attention, where the model has any.
    pub delta: Option<DeltaConfig>,
    /// Hyper-connections, where several residual streams pass through the layers.
    pub hyper: Option<HyperConfig>,
    /// What an encoder has, whose positions attend to later ones too.
    pub encoder: Option<EncoderConfig>,
    /// The head that scores a text, in models that have one in place of an output head.
    pub classifier: Option<ClassifierConfig>,
    /// Per layer: whether queries and keys are not rotated.
    pub unrotated: Vec<bool>,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Factor of what sublayers add to the residual stream.
    pub residual_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Bound of the logits, which become `cap * tanh(logit / cap)`.
    pub logit_cap: Option<f32>,
    /// Rows of the embedding and the output head (may exceed the tokenizer's vocabulary).
    pub vocab_size: usize,
    /// Longest context the model was trained for, in tokens.
    pub context_length: usize,
    /// Epsilon of RMSNorm.
    pub rms_norm_eps: f32,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// Per layer: number of positions that a query attends to, its own included, or `None` for all.
    pub windows: Vec<Option<usize>>,
    /// Whether the embedding is the output head too: there is no `output.weight` then.
    pub tied_embeddings: bool,
    /// Token ids that begin and end text, as the checkpoint declares them.
    pub special: SpecialIds,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f32,
    /// Values of a head that are rotated; even, at most `head_dim`. They lead, except in attention
    /// to compressed rows, where they trail.
    pub dim: usize,
    /// Which values form a pair.
    pub layout: RopeLayout,
    /// Change of the frequencies for longer contexts.
    pub scaling: RopeScaling,
    /// Factor of the cosines and sines; 1 except for YaRN.
    pub magnitude: f32,
}

/// Which two values of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RopeLayout {
    /// `(i, i + dim/2)`: Hugging Face checkpoints, and GGUF files of most architectures.
    Halves,
    /// `(2i, 2i + 1)`: GGUF files of `llama`, whose Q and K rows are permuted to match.
    Interleaved,
}

/// Change of the rotary frequencies. Serialises as `rope_scaling` of config.json, except `Factors`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// As trained.
    #[serde(rename = "default")]
    None,
    /// All positions divided by `factor`.
    Linear {
        /// How much longer the context becomes.
        factor: f32,
    },
    /// Llama 3.1's: long wavelengths divided, short ones kept, a ramp between.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f32,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f32,
        /// Context before scaling, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_context: usize,
    },
    /// YaRN (Peng et al., 2023): short wavelengths kept, long ones divided, a ramp between.
    Yarn {
        /// How much longer the context becomes.
        factor: f32,
        /// Context before scaling, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_context: usize,
        /// Turns over the original context from which frequencies are kept.
        beta_fast: f32,
        /// Turns over the original context up to which they are divided.
        beta_slow: f32,
        /// Whether the ends of the ramp are rounded to whole pairs.
        truncate: bool,
    },
    /// The first pairs of a head are rotated, the others stay: frequencies are those of the whole
    /// head (Gemma 4).
    Proportional {
        /// Share of the pairs that are rotated.
        #[serde(rename = "partial_rotary_factor")]
        share: f32,
        /// Divisor of the frequencies.
        factor: f32,
    },
    /// One divisor per pair (`dim / 2` values), of which there are two lists: for sequences that
    /// cannot become longer than the original context, and for the others (Phi-3).
    LongRope {
        /// For sequences up to the original context.
        #[serde(rename = "short_factor")]
        short: Vec<f32>,
        /// For longer ones.
        #[serde(rename = "long_factor")]
        long: Vec<f32>,
        /// Context before scaling, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_context: usize,
    },
    /// One divisor per pair (`dim / 2` values), as GGUF files store in `rope_freqs.weight`;
    /// config.json has no form for these.
    Factors {
        /// The divisors.
        factors: Vec<f32>,
    },
}

/// How the gate of an MLP is applied to its other half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Activation {
    /// `silu(gate) * up`.
    Silu,
    /// `gelu(gate) * up`, with the approximation by a hyperbolic tangent.
    GeluTanh,
    /// `max(gate, 0)^2 * up`.
    ReluSquared,
    /// `gelu(gate) * up`.
    Gelu,
    /// gpt-oss: `gate * sigmoid(alpha * gate) * (up + 1)`, `gate` at most `limit` and `up` within
    /// `-limit..=limit`.
    ClampedSwiglu {
        /// Slope of the sigmoid.
        alpha: f32,
        /// Bound on the values.
        limit: f32,
    },
}

impl ModelConfig {
    /// The index of a layer's attention, if it has one of its own.
    pub fn index_of(&self, layer: usize) -> Option<&IndexConfig> {
        self.index.as_ref().filter(|index| index.layers[layer])
    }

    /// The experts of a layer, if it has any.
    pub fn experts_of(&self, layer: usize) -> Option<&ExpertsConfig> {
        self.experts.as_ref().filter(|experts| experts.layers[layer])
    }

    /// The sizes of a layer's state space, if it has one.
    pub fn mamba_of(&self, layer: usize) -> Option<&MambaConfig> {
        self.mamba.as_ref().filter(|mamba| mamba.layers[layer])
    }

    /// The convolution of a layer, if it has one in place of attention.
    pub fn conv_of(&self, layer: usize) -> Option<&ConvConfig> {
        self.convs.as_ref().filter(|convs| convs.layers[layer])
    }

    /// Whether a layer has attention.
    pub fn attends(&self, layer: usize) -> bool {
        let apart = self.mamba_of(layer).is_some_and(|mamba| !mamba.beside_attention);
        let other = apart || self.delta_of(layer).is_some() || self.conv_of(layer).is_some();
        self.sublayers[layer] != Sublayers::FeedForward && !other
    }

    /// Whether a layer has an MLP or experts.
    pub fn has_feed_forward(&self, layer: usize) -> bool {
        self.sublayers[layer] != Sublayers::Mixer
    }

    /// Factor of what the projection with this name gives.
    pub fn factor_of(&self, name: &str) -> f32 {
        self.factors.iter().find(|(known, _)| *known == name).map_or(1.0, |(_, factor)| *factor)
    }

    /// The sizes of a layer's recurrence, if it has one in place of attention.
    pub fn delta_of(&self, layer: usize) -> Option<&DeltaConfig> {
        self.delta.as_ref().filter(|delta| delta.layers[layer])
    }

    /// Rows of the queries' projection of a layer: queries, and gates where there are any.
    pub fn query_rows(&self, layer: usize) -> usize {
        let gates = self.grouped().is_some_and(|grouped| grouped.gate);
        self.heads * self.head_dim_of(layer) * if gates { 2 } else { 1 }
    }

    /// What layers with a window have of their own, in a layer with one.
    fn windowed_of(&self, layer: usize) -> Option<&WindowedConfig> {
        self.windowed.as_ref().filter(|_| self.windows[layer].is_some())
    }

    /// Values per head of a layer.
    pub fn head_dim_of(&self, layer: usize) -> usize {
        self.windowed_of(layer).map_or(self.head_dim, |windowed| windowed.head_dim)
    }

    /// Key and value heads of a layer.
    pub fn kv_heads_of(&self, layer: usize) -> usize {
        self.windowed_of(layer).map_or(self.kv_heads, |windowed| windowed.kv_heads)
    }

    /// The layer whose keys and values a layer attends to: itself, or an earlier one.
    pub fn kv_layer(&self, layer: usize) -> usize {
        let own = self.layers - self.shared_kv_layers;
        let mut before = (0..own.min(layer + 1)).rev();
        match layer < own {
            true => layer,
            false => before.find(|at| self.windows[*at] == self.windows[layer]).unwrap_or(layer),
        }
    }

    /// Width of the gated MLP of a layer without routed experts, or beside them.
    pub fn mlp_width(&self, layer: usize) -> usize {
        let wide = self.wide_mlps && layer >= self.layers - self.shared_kv_layers;
        self.intermediate_size * if wide { 2 } else { 1 }
    }

    /// The settings of grouped attention, where layers attend so.
    pub fn grouped(&self) -> Option<&GroupedConfig> {
        match &self.attention {
            Attention::Grouped(grouped) => Some(grouped),
            Attention::Latent(_) | Attention::Compressed(_) => None,
        }
    }

    /// Whether a layer takes values from the projection of keys.
    pub fn takes_keys_as_values(&self, layer: usize) -> bool {
        let values = self.grouped().map(|grouped| grouped.values);
        values == Some(ValueSource::NormedKeys) && self.windows[layer].is_none()
    }

    /// The sizes of latent attention, where layers attend so.
    pub fn latent(&self) -> Option<LatentConfig> {
        match self.attention {
            Attention::Latent(sizes) => Some(sizes),
            Attention::Grouped(_) | Attention::Compressed(_) => None,
        }
    }

    /// The sizes of attention to compressed rows, where layers attend so.
    pub fn compressed(&self) -> Option<&CompressedConfig> {
        match &self.attention {
            Attention::Compressed(sizes) => Some(sizes),
            Attention::Grouped(_) | Attention::Latent(_) => None,
        }
    }
}

/// How layers attend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Attention {
    /// Grouped-query attention: `heads / kv_heads` query heads share one KV head.
    Grouped(GroupedConfig),
    /// Multi-head latent attention: keys and values are expanded from a shared low-rank row.
    Latent(LatentConfig),
    /// Attention to a window of rows, and to rows that each stand for several positions. Keys and
    /// values are the same row of `head_dim` values, shared by all heads.
    Compressed(Box<CompressedConfig>),
}

/// Variants of grouped-query attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupedConfig {
    /// Whether an RMSNorm of `head_dim` values is applied to each query and key head.
    pub head_norms: bool,
    /// Whether each query head has a sink: one more score, of no position, in its softmax.
    pub sinks: bool,
    /// Whether each head's output is multiplied by the sigmoid of a gate. `attn_q` has twice the
    /// rows then: for each head its query, then its gate.
    pub gate: bool,
    /// Where values come from.
    pub values: ValueSource,
    /// Whether the norms are of all heads together, over the whole projection (OLMo 2).
    pub whole_norms: bool,
    /// Whether norms follow the rotation (Hunyuan).
    pub norms_last: bool,
    /// Whether norms have no weights, and only layers with rotary embedding have them (Llama 4).
    pub bare_norms: bool,
}

/// Where the values of attention come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ValueSource {
    /// A projection.
    #[default]
    Projected,
    /// A projection, whose heads are divided by the root of their mean square.
    Normed,
    /// The same, of the projection of keys in layers without a window, which have no other.
    NormedKeys,
}

/// What layers with a window have of their own (Gemma 3 and 4).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowedConfig {
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Rotary position embedding.
    pub rope: RopeConfig,
}

/// Growth of queries: by `1 + beta * ln(1 + floor((position + offset) / every))` (Llama 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueryGrowth {
    /// Slope.
    pub beta: f32,
    /// Positions to a step.
    pub every: usize,
    /// Added to positions.
    pub offset: usize,
    /// Whether only layers without rotary embedding have it.
    pub unrotated: bool,
}

/// Sizes of multi-head latent attention (DeepSeek V2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LatentConfig {
    /// Rank of the queries' projection; `None` where one matrix projects queries.
    pub q_rank: Option<usize>,
    /// Values of the row that keys and values are expanded from.
    pub kv_rank: usize,
    /// Values of a query or key head that are not rotated. They come first.
    pub nope_dim: usize,
    /// Values of a query head, and of the key row shared by all heads, that are rotated.
    pub rope_dim: usize,
    /// Values of a value head.
    pub value_dim: usize,
}

/// Sizes of attention to a window and to compressed rows (DeepSeek V4).
///
/// The trailing `rope_dim` values of a head are rotated. In a layer with a ratio `m`, each `m`
/// positions become one row: one that is pooled from its own positions alone, or, where the layer
/// has an index, from those of the window before it too. An index scores the rows of its layer, and
/// the best are attended to; layers without an index attend to all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompressedConfig {
    /// Rank of the projection of queries.
    pub q_rank: usize,
    /// Trailing values of a head, and of a head of an index, that are rotated.
    pub rope_dim: usize,
    /// Groups of consecutive heads that are projected together; divides the number of heads.
    pub groups: usize,
    /// Values that a group is projected to.
    pub out_rank: usize,
    /// Per layer: positions to a compressed row, or 0 where the layer has none.
    pub ratios: Vec<usize>,
    /// Per layer: whether an index chooses the compressed rows.
    pub indexed: Vec<bool>,
    /// Query heads of an index; 0 where no layer has one, as are the next two.
    pub index_heads: usize,
    /// Values per head of an index.
    pub index_dim: usize,
    /// Most rows that an index chooses.
    pub index_top: usize,
    /// Rotary position embedding of layers with compressed rows. [`ModelConfig::rope`] is that of
    /// the others.
    pub rope: RopeConfig,
}

/// The ratio that stands for a layer with an index where files give a number for each layer.
pub(super) const INDEXED_RATIO: usize = 4;

/// What a file says of a model that attends to compressed rows.
pub(super) struct Compressed {
    pub attention: CompressedConfig,
    /// Rotary position embedding of layers without compressed rows.
    pub rope: RopeConfig,
    pub hyper: HyperConfig,
}

/// Manifold-constrained hyper-connections (DeepSeek V4): several residual streams, which each
/// sublayer reads, writes and mixes with weights that follow from the streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HyperConfig {
    /// Residual streams.
    pub streams: usize,
    /// Passes of the Sinkhorn iteration that makes the mixing matrix doubly stochastic.
    pub iterations: usize,
    /// Added to sums before they divide, and to weights.
    pub eps: f32,
}

/// Token ids with a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpecialIds {
    /// Begins a text, where the model wants one.
    pub bos: Option<u32>,
    /// Each of these ends a generation (`generation_config.json` may list several).
    pub eos: Vec<u32>,
    /// Padding; never generated.
    pub pad: Option<u32>,
}

impl SpecialIds {
    /// These ids, and those of `other` in roles that have none here.
    pub(crate) fn or(self, other: Self) -> Self {
        let eos = if self.eos.is_empty() { other.eos } else { self.eos };
        Self { bos: self.bos.or(other.bos), eos, pad: self.pad.or(other.pad) }
    }
}
