//! What files say of a model.

mod experts;
mod mixers;
mod ngrams;

use serde::Serialize;

use crate::config::encoder::EncoderConfig;
use crate::layers::{
    Activation, ClassifierConfig, ConvolutionSpec, DeltaSpec, GatedStreamsConfig, Growth,
    HyperConfig, LatentConfig, OutputGate, PositionTable, RopeConfig, StateSpaceSpec, ValueSource,
};
pub use experts::*;
pub use mixers::*;
pub use ngrams::*;

/// What files say of a model, in one form for all kinds of files. Families build their layers from
/// it, and files are written from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyperparameters {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Per layer: query heads, where layers have different numbers of them.
    pub layer_heads: Option<Vec<usize>>,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head; `hidden_size / heads` unless the checkpoint says otherwise.
    pub head_dim: usize,
    /// Factor of the attention scores: `1 / sqrt(values per query)` unless scaling of the context
    /// changes it.
    pub attention_scale: f32,
    /// Width of the gated MLP of layers without routed experts.
    pub intermediate_size: usize,
    /// Per layer: bound of the inner values of its MLP, where it has no experts and the values have
    /// a bound: of the gate from above, and of the other half from both sides.
    pub mlp_limits: Vec<Option<f32>>,
    /// How gates are applied in MLPs and experts.
    pub activation: Activation,
    /// Routed experts, where any layer has them.
    pub experts: Option<ExpertsConfig>,
    /// Variants of grouped-query attention, where layers attend so.
    pub grouped: GroupedConfig,
    /// Sizes of multi-head latent attention, where layers attend so: keys and values are expanded
    /// from a shared low-rank row.
    pub latent: Option<LatentConfig>,
    /// Sizes of attention to a window of rows, and to rows that each stand for several positions,
    /// where layers attend so. Keys and values are the same row of `head_dim` values, shared by all
    /// heads.
    pub compressed: Option<Box<CompressedConfig>>,
    /// Heads and rotary embedding of layers with a window, where these have their own.
    pub windowed: Option<WindowedConfig>,
    /// Number of last layers that attend to the keys and values of earlier ones: each to those of
    /// the last layer before them that has the same window.
    pub shared_kv_layers: usize,
    /// Per layer: the layer whose latent rows it attends to, itself or an earlier one of the same
    /// kind; `None` where each attends to its own.
    pub kv_sources: Option<Vec<usize>>,
    /// Whether the MLPs of the layers that [`shared_kv_layers`](Self::shared_kv_layers) counts are
    /// twice as wide.
    pub wide_mlps: bool,
    /// Growth of queries with their positions.
    pub query_growth: Option<Growth>,
    /// The index that chooses the positions that latent attention sees, where there is one.
    pub index: Option<IndexConfig>,
    /// The table of the embeddings of positions, which are added to those of tokens, where there is
    /// one.
    pub positions: Option<PositionTable>,
    /// Layers with state spaces, where the model has any.
    pub mamba: Option<OfLayers<StateSpaceSpec>>,
    /// Layers with a short convolution in place of attention, where the model has any.
    pub convs: Option<OfLayers<ConvolutionSpec>>,
    /// Per layer: which sublayers it has.
    pub sublayers: Vec<Sublayers>,
    /// What files say of layers of multi-token prediction, where these are others than those of the
    /// family.
    pub unknown_mtp: Option<UnknownMtp>,
    /// Factors of what projections give, by the names of their weights in a layer.
    pub factors: Vec<(&'static str, f32)>,
    /// Values of the input that each layer has of its own for each token; 0 where there is none.
    pub layer_inputs: usize,
    /// Layers with a recurrence in place of attention, where the model has any.
    pub delta: Option<OfLayers<DeltaSpec>>,
    /// Hyper-connections, where several residual streams pass through the layers.
    pub hyper: Option<HyperConfig>,
    /// Gated residual streams, where several pass through the layers so.
    pub gated_streams: Option<GatedStreamsConfig>,
    /// The index that chooses the blocks of positions that grouped-query attention sees, where
    /// there is one.
    pub block_index: Option<BlockIndexConfig>,
    /// Embeddings of n-grams, where a layer adds them.
    pub ngrams: Option<NgramConfig>,
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
}

impl Hyperparameters {
    /// The experts of a layer, if it has any.
    pub fn experts_of(&self, layer: usize) -> Option<&ExpertsConfig> {
        self.experts.as_ref().filter(|experts| experts.layers[layer])
    }

    /// Whether a layer has attention alone.
    pub fn attends(&self, layer: usize) -> bool {
        let other = OfLayers::has(&self.mamba, layer)
            || OfLayers::has(&self.delta, layer)
            || OfLayers::has(&self.convs, layer);
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

    /// What layers with a window have of their own, in a layer with one.
    fn windowed_of(&self, layer: usize) -> Option<&WindowedConfig> {
        self.windowed.as_ref().filter(|_| self.windows[layer].is_some())
    }

    /// Sets the query heads of each layer.
    pub(crate) fn set_heads(&mut self, heads: Vec<usize>) {
        self.heads = heads.first().copied().unwrap_or(self.heads);
        self.layer_heads = heads.iter().any(|found| *found != self.heads).then_some(heads);
    }

    /// Query heads of a layer.
    pub fn heads_of(&self, layer: usize) -> usize {
        self.layer_heads.as_ref().map_or(self.heads, |heads| heads[layer])
    }

    /// Values per head of a layer.
    pub fn head_dim_of(&self, layer: usize) -> usize {
        self.windowed_of(layer).map_or(self.head_dim, |windowed| windowed.head_dim)
    }

    /// Rotary position embedding of a layer.
    pub fn rope_of(&self, layer: usize) -> &RopeConfig {
        self.windowed_of(layer).map_or(&self.rope, |windowed| &windowed.rope)
    }

    /// Key and value heads of a layer.
    pub fn kv_heads_of(&self, layer: usize) -> usize {
        self.windowed_of(layer).map_or(self.kv_heads, |windowed| windowed.kv_heads)
    }

    /// The layer whose keys and values a layer attends to: itself, or an earlier one.
    pub fn kv_layer(&self, layer: usize) -> usize {
        if let Some(sources) = &self.kv_sources {
            return sources[layer];
        }
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
}

/// Variants of grouped-query attention.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupedConfig {
    /// Values of a value head, where these are fewer than those of a key head.
    pub value_dim: Option<usize>,
    /// Factor of values.
    pub value_scale: Option<f32>,
    /// Whether an RMSNorm of `head_dim` values is applied to each query and key head.
    pub head_norms: bool,
    /// What the outputs of heads are multiplied by.
    pub gate: OutputGate,
    /// Where values come from.
    pub values: ValueSource,
    /// Whether norms have no weights, and only layers with rotary embedding have them (Llama 4).
    pub bare_norms: bool,
}

/// What layers with a window have of their own (Gemma 3 and 4).
#[derive(Clone, Debug, PartialEq)]
pub struct WindowedConfig {
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Rotary position embedding.
    pub rope: RopeConfig,
}

/// Sizes of attention to a window and to compressed rows (DeepSeek V4).
///
/// The trailing `rope_dim` values of a head are rotated. In a layer with a ratio `m`, each `m`
/// positions become one row: one that is pooled from its own positions alone, or, where the layer
/// has an index, from those of the window before it too. An index scores the rows of its layer, and
/// the best are attended to; layers without an index attend to all.
#[derive(Clone, Debug, PartialEq)]
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
    /// Rotary position embedding of layers with compressed rows; [`Hyperparameters::rope`] is that
    /// of the others.
    pub rope: RopeConfig,
}

/// The ratio that stands for a layer with an index where files give a number for each layer.
pub(super) const INDEXED_RATIO: usize = 4;

impl CompressedConfig {
    /// No sizes yet, with this rotary embedding of layers with compressed rows.
    pub(crate) fn of(rope: RopeConfig) -> Self {
        Self {
            q_rank: 0,
            rope_dim: 0,
            groups: 0,
            out_rank: 0,
            ratios: Vec::new(),
            indexed: Vec::new(),
            index_heads: 0,
            index_dim: 0,
            index_top: 0,
            rope,
        }
    }
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
