//! Grouped-query attention (Ainslie et al., 2023).

use kernels::kv::LayerCache;
use serde::{Serialize, Serializer};

use crate::layers::factors::{Factors, Growth};
use crate::layers::rope::RopeSpec;
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names in Hugging Face checkpoints of most families.
pub(crate) const ATTENTION: NamePairs = &[
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.o_proj.bias", "attn_output.bias"),
];

/// Norms of heads of queries and keys.
pub(crate) const QK_NORMS: NamePairs = &[
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
];

/// Attention of which `heads / kv_heads` query heads share one head of keys and values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupedSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Values of a value head, where these are fewer than those of a key head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<usize>,
    /// Factor of the scores.
    pub scale: f32,
    /// Positions that a query attends to, its own included; `None` for all.
    pub window: Option<usize>,
    /// Where these positions are.
    pub reach: Reach,
    /// Rotary embedding of queries and keys, where they are rotated.
    pub rotation: Option<RopeSpec>,
    /// Growth of queries with their positions.
    pub growth: Option<Growth>,
    /// Norms of query and key heads.
    pub head_norms: Option<HeadNormSpec>,
    /// Where values come from.
    pub values: ValueSource,
    /// Epsilon of the norms of heads.
    pub eps: f32,
    /// Whether each query head has a sink: one more score, of no position, in its softmax.
    pub sinks: bool,
    /// What the outputs of heads are multiplied by.
    pub gate: OutputGate,
    /// Biases that every checkpoint has.
    pub biases: Biases,
    /// The layer whose cached keys and values are attended to.
    pub keys: KeySource,
    /// Positions that the cache keeps beyond the window, for an assistant: no part of what the
    /// layer computes.
    #[serde(skip)]
    pub lookback: usize,
    /// Factors of the outputs of projections.
    pub factors: Factors,
    /// Whether an input is two vectors, one after the other: an embedding and a state (EAGLE-3).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pairs: bool,
}

/// What the outputs of heads are multiplied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputGate {
    /// Nothing.
    #[default]
    None,
    /// Sigmoids of gates, one for each value, from `attn_q`, which has twice the rows: for each
    /// head its query, then its gate (Qwen3-Next).
    WithQueries,
    /// Functions of what `attn_gate` gives.
    Own(OwnGate),
}

/// A projection of its own that gates the outputs of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OwnGate {
    /// Whether all values of a head have one gate, so that the projection has `heads` rows;
    /// otherwise it has `heads * head_dim`.
    pub per_head: bool,
    /// The function.
    pub function: GateFunction,
}

/// What is made of a gate before outputs are multiplied by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GateFunction {
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `ln(1 + exp(x))`.
    Softplus,
}

impl OutputGate {
    /// The sigmoid of a gate for each value, of a projection of its own (Trinity, Muse Glimmer).
    pub const EACH: Self = Self::Own(OwnGate { per_head: false, function: GateFunction::Sigmoid });
    /// The sigmoid of a gate for each head (LFM3).
    pub const PER_HEAD: Self =
        Self::Own(OwnGate { per_head: true, function: GateFunction::Sigmoid });
}

/// Whether gates are with queries, where they are not of a projection of their own.
impl Serialize for OutputGate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => false.serialize(serializer),
            Self::WithQueries => true.serialize(serializer),
            Self::Own(gate) => gate.serialize(serializer),
        }
    }
}

/// Where the positions of a window are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reach {
    /// Up to the query's own.
    Before,
    /// In the run of as many positions that the query is in, up to its own (Llama 4).
    Chunk,
    /// On both sides, of as many as the window has on each (encoders).
    Around,
}

/// Norms of query and key heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeadNormSpec {
    /// Whether one norm is of all heads together (OLMo 2).
    pub whole: bool,
    /// Whether values are multiplied by weights.
    pub weights: bool,
    /// Whether norms follow the rotation (Hunyuan, Llama 4).
    pub after_rotation: bool,
}

impl HeadNormSpec {
    /// A norm with weights of each head, before the rotation (Qwen3).
    pub const EACH: Self = Self { whole: false, weights: true, after_rotation: false };
}

/// Biases of projections that every checkpoint has; others are used where they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Biases {
    /// None.
    None,
    /// Those of queries, keys and values.
    Inputs,
    /// Those of the output, too.
    All,
}

/// The layer whose cached keys and values are attended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum KeySource {
    /// The layer itself.
    Own,
    /// An earlier layer, whose keys and values take the place of own ones.
    Layer(usize),
    /// The layer itself, in the place of the first layer: layers of an encoder keep their rows one
    /// after another, as no row of a layer is read after that layer has been computed.
    First,
}

impl KeySource {
    /// Whether it is the layer itself, in its own place.
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

impl GroupedSpec {
    /// The same with norms of query and key heads.
    pub(crate) fn with_head_norms(self, norms: HeadNormSpec) -> Self {
        Self { head_norms: Some(norms), ..self }
    }

    /// The same with a gate of the outputs of heads.
    pub(crate) fn with_gate(self, gate: OutputGate) -> Self {
        Self { gate, ..self }
    }

    /// The same with these biases in every checkpoint.
    pub(crate) fn with_biases(self, biases: Biases) -> Self {
        Self { biases, ..self }
    }

    /// The same of an encoder, whose positions attend to later ones too.
    pub(crate) fn of_encoder(self) -> Self {
        Self { reach: Reach::Around, keys: KeySource::First, ..self }
    }

    /// Values of a value head.
    pub fn values_of_head(&self) -> usize {
        self.value_dim.unwrap_or(self.head_dim)
    }

    /// Whether the layer computes keys and values of its own.
    pub fn has_own_keys(&self) -> bool {
        !matches!(self.keys, KeySource::Layer(_))
    }

    /// The tensors of the operation, whose outputs have `hidden` values.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let Self { heads, kv_heads, head_dim: dim, .. } = *self;
        let inputs = if self.pairs { 2 * hidden } else { hidden };
        let values = self.values_of_head();
        let kind = TensorKind::Attention;
        let bias = |of_output: bool| match self.biases {
            Biases::None => Presence::Optional,
            Biases::Inputs if of_output => Presence::Optional,
            Biases::Inputs | Biases::All => Presence::Required,
        };
        let with_queries = self.gate == OutputGate::WithQueries;
        let queries = heads * dim * if with_queries { 2 } else { 1 };
        let mut tensors = kind.biased("attn_q", [queries, inputs], bias(false)).to_vec();
        if self.has_own_keys() {
            tensors.extend(kind.biased("attn_k", [kv_heads * dim, inputs], bias(false)));
            if self.values != ValueSource::NormedKeys {
                tensors.extend(kind.biased("attn_v", [kv_heads * values, inputs], bias(false)));
            }
        }
        tensors.extend(kind.biased("attn_output", [hidden, heads * values], bias(true)));
        if let OutputGate::Own(gate) = self.gate {
            let gates = if gate.per_head { heads } else { heads * values };
            tensors.extend(kind.linear("attn_gate", gates, inputs));
        }
        if let Some(norms) = self.head_norms.filter(|norms| norms.weights) {
            let width = |heads: usize| if norms.whole { heads * dim } else { dim };
            let norm = |name, heads| TensorKind::Norm.tensor(name, &[width(heads)]);
            tensors.push(norm("attn_q_norm.weight", heads));
            let of_keys = self.has_own_keys().then(|| norm("attn_k_norm.weight", kv_heads));
            tensors.extend(of_keys);
        }
        tensors.extend(self.sinks.then(|| kind.tensor("attn_sinks.weight", &[heads])));
        tensors
    }

    /// What the layer with this number keeps of a sequence.
    pub fn cache(&self, layer: usize) -> LayerCache {
        match self.keys {
            KeySource::Own => {
                let window = self.window.map(|window| window + self.lookback);
                LayerCache::heads(self.kv_heads, self.head_dim, None, window)
            }
            KeySource::First if layer == 0 => {
                LayerCache::heads(self.kv_heads, self.head_dim, None, None)
            }
            KeySource::First | KeySource::Layer(_) => LayerCache::default(),
        }
    }
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
