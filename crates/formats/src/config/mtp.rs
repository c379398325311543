//! Layers of multi-token prediction, which draft the tokens after the next one from the hidden
//! states of the model (DeepSeek-AI, 2024, "DeepSeek-V3 Technical Report", section 2.2).

use kernels::kv::{LayerCache, Rows};
use serde::Serialize;

use crate::layers::{HeadSpec, Layer, NormKind, NormSpec, StreamSpec, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names after the number of the layer in checkpoints of DeepSeek V3 and GLM.
pub(crate) const NEXTN: NamePairs = &[
    ("eh_proj.weight", "nextn.eh_proj.weight"),
    ("enorm.weight", "nextn.enorm.weight"),
    ("hnorm.weight", "nextn.hnorm.weight"),
    ("shared_head.norm.weight", "nextn.shared_head_norm.weight"),
    ("embed_tokens.weight", COPIES[0]),
    ("shared_head.head.weight", COPIES[1]),
];

/// Names after `mtp.` in checkpoints of Qwen3-Next and later.
pub(crate) const QWEN_MTP: NamePairs = &[
    ("fc.weight", "nextn.eh_proj.weight"),
    ("pre_fc_norm_embedding.weight", "nextn.enorm.weight"),
    ("pre_fc_norm_hidden.weight", "nextn.hnorm.weight"),
    ("norm.weight", "nextn.shared_head_norm.weight"),
];

/// Names after `mtp.layers.` and a number in checkpoints of Nemotron 3: of attention, and of what
/// follows it.
pub(crate) const NEMOTRON_MTP: [NamePairs; 2] = [
    &[
        ("eh_proj.weight", "nextn.eh_proj.weight"),
        ("enorm.weight", "nextn.enorm.weight"),
        ("hnorm.weight", "nextn.hnorm.weight"),
    ],
    &[
        ("norm.weight", "ffn_norm.weight"),
        ("final_layernorm.weight", "nextn.shared_head_norm.weight"),
    ],
];

/// Names after `mtp.` and a number in checkpoints of DeepSeek V4.
pub(crate) const STREAMS_MTP: NamePairs = &[
    ("e_proj.weight", "nextn.e_proj.weight"),
    ("h_proj.weight", "nextn.h_proj.weight"),
    ("enorm.weight", "nextn.enorm.weight"),
    ("hnorm.weight", "nextn.hnorm.weight"),
    ("norm.weight", "nextn.shared_head_norm.weight"),
    ("hc_head_fn", "output_hc_fn.weight"),
    ("hc_head_base", "output_hc_base.weight"),
    ("hc_head_scale", "output_hc_scale.weight"),
    ("emb.tok_emb.weight", COPIES[0]),
    ("head.weight", COPIES[1]),
];

/// Canonical names within a layer of copies of the model's embeddings and output head.
pub(crate) const COPIES: [&str; 2] = ["nextn.embed_tokens.weight", "nextn.shared_head_head.weight"];

/// The layers that draft tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MtpConfig {
    /// The layers, after the last of the model: the first drafts the token after the next one, and
    /// each of the others the token after that of the layer before. A single layer drafts all.
    pub layers: Vec<MtpSpec>,
}

/// A layer that drafts tokens, from the state of a position and the embedding of the next token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MtpSpec {
    /// How state and embedding become the input of the layer.
    pub input: MtpInput,
    /// The layer.
    pub layer: Layer,
    /// The norm of its output, which the output head of the model reads, and what it reads of
    /// several streams. It has no projection of its own.
    pub head: HeadSpec,
    /// Epsilon of the norms of state and embedding.
    pub eps: f32,
}

/// How a state and an embedding become the input of a layer that drafts tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MtpInput {
    /// `eh_proj [enorm(embedding), hnorm(state)]`. The state is that of the last norm.
    Joined,
    /// `e_proj enorm(embedding) + h_proj hnorm(stream)` for each residual stream. The state is all
    /// streams before the output head.
    Added,
    /// Attention reads the pair of `attn_norm(embedding)` and `attn_norm_2(state)`, and is added to
    /// the state, or to its norm (EAGLE-3).
    Paired {
        /// Whether it is added to the norm.
        normed: bool,
    },
}

impl MtpInput {
    /// The projections: name without a suffix, and inputs in units of the width of the model.
    pub fn projections(self) -> &'static [(&'static str, usize)] {
        match self {
            Self::Joined => &[("nextn.eh_proj", 2)],
            Self::Added => &[("nextn.e_proj", 1), ("nextn.h_proj", 1)],
            Self::Paired { .. } => &[],
        }
    }

    /// Canonical names of the norms of embedding and state, without a suffix.
    pub fn norms(self) -> [&'static str; 2] {
        match self {
            Self::Joined | Self::Added => ["nextn.enorm", "nextn.hnorm"],
            Self::Paired { .. } => ["attn_norm", "attn_norm_2"],
        }
    }
}

impl MtpSpec {
    /// The residual streams whose state enters the layer.
    pub fn streams(&self) -> usize {
        let streams = self.layer.sublayers.iter().find_map(|sublayer| match &sublayer.stream {
            StreamSpec::Several(mixture) => Some(mixture.streams.streams),
            _ => None,
        });
        streams.unwrap_or(1)
    }

    /// The rows that a layer keeps beside its own, in a model of width `hidden`: the states that
    /// enter it, each for the next position.
    pub fn states(&self, hidden: usize) -> Rows {
        Rows::plain(self.streams() * hidden, Some(2))
    }

    /// What the layer, which has this number, keeps of a sequence; for `native` see
    /// [`OpSpec::cache`](crate::layers::OpSpec::cache).
    pub fn cache(&self, hidden: usize, number: usize, native: bool) -> LayerCache {
        let mut cache = self.layer.cache(number, native);
        cache.rows.push(self.states(hidden));
        cache
    }

    /// The tensors apart from those of the layer in a model of width `hidden`.
    pub fn own_tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let norm = |name| NormSpec { name, kind: NormKind::Rms, eps: self.eps };
        let norms = self.input.norms().map(norm);
        let projections = self
            .input
            .projections()
            .iter()
            .flat_map(|(name, inputs)| TensorKind::Other.linear(name, hidden, inputs * hidden));
        // The head has no projection, so that the size of the vocabulary does not matter.
        let head = self.head.tensors(0, hidden);
        norms.iter().flat_map(|it| it.tensors(hidden)).chain(projections).chain(head).collect()
    }

    /// The tensors that are loaded in a model of width `hidden`.
    pub fn loaded(&self, hidden: usize) -> Vec<TensorSpec> {
        [self.own_tensors(hidden), self.layer.loaded(hidden)].concat()
    }
}
