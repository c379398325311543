//! Multi-head latent attention (DeepSeek V2, 2024), and the index of DeepSeek V3.2.

use kernels::kv::{KvType, LayerCache, Rows};
use serde::Serialize;

use crate::layers::factors::Growth;
use crate::layers::files::TensorForm;
use crate::layers::grouped::{KeySource, OwnGate};
use crate::layers::rope::RopeSpec;
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names in Hugging Face checkpoints.
pub(crate) const LATENT_ATTENTION: NamePairs = &[
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_a_proj.weight", "attn_q_a.weight"),
    ("self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"),
    ("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    ("self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"),
    ("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"),
    ("self_attn.kv_b_proj.weight", "attn_kv_b.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
];

/// The index over the positions of latent attention (DeepSeek V3.2).
pub(crate) const INDEX: NamePairs = &[
    ("self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"),
    ("self_attn.indexer.wk.weight", "indexer.attn_k.weight"),
    ("self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"),
    ("self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"),
    ("self_attn.indexer.weights_proj.weight", "indexer.proj.weight"),
];

/// The pooling of the keys of an index (GLM-5.3).
pub(crate) const INDEX_POOL: NamePairs = &[
    ("self_attn.indexer.index_kpool_compress_gate", "indexer_compressor_gate.weight"),
    ("self_attn.indexer.index_kpool_compress_ape", "indexer_compressor_ape.weight"),
];

/// Slopes and bases of the growth of queries by the logarithm of their positions, of each head.
const GROWTH: [&str; 2] = ["weight", "bias"];

/// Attention whose keys and values are expanded from one low-rank row of each position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatentSpec {
    /// Heads.
    pub heads: usize,
    /// Sizes of heads and of rows.
    pub sizes: LatentConfig,
    /// Factor of the scores.
    pub scale: f32,
    /// Epsilon of the norms of low-rank rows.
    pub eps: f32,
    /// Positions that a query attends to, its own included; `None` for all.
    pub window: Option<usize>,
    /// Rotary embedding of a part of each query and of the key that heads share, where these are
    /// rotated.
    pub rotation: Option<RopeSpec>,
    /// Growth of queries with their positions.
    pub growth: Option<Growth>,
    /// Whether the queries of each head are multiplied by `slope * ln(1 + position) + base`, with
    /// the numbers of `attn_growth`; those of an index with those of `indexer.growth` (Mistral
    /// Large 4).
    #[serde(skip_serializing_if = "is_not")]
    pub learned_growth: bool,
    /// The layer whose cached rows are attended to.
    #[serde(skip_serializing_if = "KeySource::is_own")]
    pub keys: KeySource,
    /// What the outputs of heads are multiplied by: `attn_gate`, one row for each head or for each
    /// of its values.
    pub gate: Option<OwnGate>,
    /// Whether each head has a sink: one more score, of no position, in its softmax.
    pub sinks: bool,
    /// The choice of positions that are attended to; `None` where all are.
    pub chosen: Option<ChosenSpec>,
}

/// The choice of the positions that a layer attends to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenSpec {
    /// Most positions that are chosen.
    pub top: usize,
    /// Consecutive positions that are chosen together; divides `top`.
    pub run: usize,
    /// What chooses them.
    pub by: Chooser,
}

/// What chooses the positions that a layer attends to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Chooser {
    /// An index of the layer.
    Index(IndexSpec),
    /// The index of the earlier layer with this number.
    Layer(usize),
}

/// An index: small queries, and one small key of each position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexSpec {
    /// Query heads.
    pub heads: usize,
    /// Values of queries and keys, of which the first or the last are rotated.
    pub dim: usize,
    /// Whether it is the last ones (Hy4).
    pub trailing: bool,
    /// Epsilon of the norm of keys.
    pub eps: f32,
    /// Rotary embedding, where they are rotated.
    pub rotation: Option<RopeSpec>,
    /// Consecutive positions whose keys are pooled to one, by a softmax over their gates for each
    /// channel, and which are chosen together; those after the last such group are attended to
    /// whatever is chosen (GLM-5.3). `None` where each position has a key.
    pub pool: Option<usize>,
    /// Whether queries are projected from a LayerNorm of the layer's input, `indexer.q_norm`, and
    /// not from the row that the queries of attention come from.
    #[serde(skip_serializing_if = "is_not")]
    pub normed_input: bool,
}

/// Whether a field that few families have is left out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_not(flag: &bool) -> bool {
    !flag
}

/// The slopes and bases of `heads` heads.
fn growth_tensors(name: &str, heads: usize) -> impl Iterator<Item = TensorSpec> {
    GROWTH.map(|part| TensorKind::Attention.tensor(format!("{name}.{part}"), &[heads])).into_iter()
}

impl LatentSpec {
    /// Values of a query head.
    pub fn query_dim(&self) -> usize {
        self.sizes.nope_dim + self.sizes.rope_dim
    }

    /// The rotary embeddings of the layer and of its index.
    pub(super) fn ropes_mut(&mut self) -> impl Iterator<Item = &mut RopeSpec> {
        let index = match &mut self.chosen {
            Some(ChosenSpec { by: Chooser::Index(index), .. }) => index.rotation.as_mut(),
            _ => None,
        };
        self.rotation.iter_mut().chain(index)
    }

    /// The index of the layer, where it has one.
    pub fn index(&self) -> Option<&IndexSpec> {
        match &self.chosen.as_ref()?.by {
            Chooser::Index(index) => Some(index),
            Chooser::Layer(_) => None,
        }
    }

    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm) -> Vec<TensorSpec> {
        let LatentConfig { q_rank, kv_rank, nope_dim, rope_dim, value_dim } = self.sizes;
        let (heads, kind) = (self.heads, TensorKind::Attention);
        let norm = |name, width: usize| TensorKind::Norm.tensor(name, &[width]);
        let queries = heads * self.query_dim();
        let mut tensors = match q_rank {
            Some(rank) => {
                let mut tensors = kind.linear("attn_q_a", rank, hidden).to_vec();
                tensors.push(norm("attn_q_a_norm.weight", rank));
                tensors.extend(kind.linear("attn_q_b", queries, rank));
                tensors
            }
            None => kind.linear("attn_q", queries, hidden).to_vec(),
        };
        if self.keys.is_own() {
            tensors.extend(kind.linear("attn_kv_a_mqa", kv_rank + rope_dim, hidden));
            tensors.push(norm("attn_kv_a_norm.weight", kv_rank));
        }
        // Newer GGUF files have a matrix of keys and one of values for each head.
        let (of_gguf, of_others) = match form.is_gguf() {
            true => (Presence::Expected, Presence::Optional),
            false => (Presence::Optional, Presence::Expected),
        };
        let both = [heads * (nope_dim + value_dim), kv_rank];
        tensors.extend([
            kind.tensor("attn_kv_b.weight", &both).that_is(of_others),
            kind.tensor("attn_k_b.weight", &[heads, kv_rank, nope_dim]).that_is(of_gguf),
            kind.tensor("attn_v_b.weight", &[heads, value_dim, kv_rank]).that_is(of_gguf),
        ]);
        tensors.extend(kind.linear("attn_output", hidden, heads * value_dim));
        if self.sinks {
            tensors.push(kind.tensor("attn_sinks.weight", &[heads]));
        }
        if let Some(gate) = self.gate {
            let each = if gate.per_head { 1 } else { value_dim };
            tensors.extend(kind.linear("attn_gate", heads * each, hidden));
        }
        if self.learned_growth {
            tensors.extend(growth_tensors("attn_growth", heads));
        }
        if let Some(index) = self.index() {
            tensors.extend(index.tensors(hidden, q_rank.unwrap_or(hidden)));
            if self.learned_growth {
                tensors.extend(growth_tensors("indexer.growth", index.heads));
            }
        }
        tensors
    }

    /// What a layer keeps of a sequence.
    pub fn cache(&self) -> LayerCache {
        let LatentConfig { kv_rank, rope_dim, .. } = self.sizes;
        match &self.chosen {
            None if !self.keys.is_own() => LayerCache::default(),
            None => LayerCache::heads(1, kv_rank + rope_dim, Some(kv_rank), self.window),
            Some(_) => {
                let own = self.keys.is_own().then(|| Rows::plain(kv_rank + rope_dim, None));
                let of_index = self.index().into_iter().flat_map(IndexSpec::rows);
                LayerCache { rows: own.into_iter().chain(of_index).collect(), state: None }
            }
        }
    }
}

impl IndexSpec {
    /// The tensors of the index of a layer whose queries come from rows of `q_rank` values.
    fn tensors(&self, hidden: usize, q_rank: usize) -> Vec<TensorSpec> {
        let (Self { heads, dim, .. }, kind) = (self, TensorKind::Attention);
        let inputs = if self.normed_input { hidden } else { q_rank };
        let mut tensors = kind.linear("indexer.attn_q_b", heads * dim, inputs).to_vec();
        if self.normed_input {
            tensors.push(kind.tensor("indexer.q_norm.weight", &[hidden]));
            let bias = kind.tensor("indexer.q_norm.bias", &[hidden]);
            tensors.push(bias.that_is(Presence::Expected));
        }
        tensors.extend(kind.linear("indexer.attn_k", *dim, hidden));
        tensors.push(kind.tensor("indexer.k_norm.weight", &[*dim]));
        tensors.push(kind.tensor("indexer.k_norm.bias", &[*dim]).that_is(Presence::Expected));
        tensors.extend(kind.linear("indexer.proj", *heads, hidden));
        if let Some(pool) = self.pool {
            let kind = TensorKind::Compressor;
            tensors.extend(kind.linear("indexer_compressor_gate", *dim, hidden));
            let biases = kind.tensor("indexer_compressor_ape.weight", &[pool, *dim]);
            tensors.push(biases.of_values());
        }
        tensors
    }

    /// The rows of a layer that the index keeps: keys, or keys and gates that are yet to be pooled,
    /// and pooled keys last.
    fn rows(&self) -> Vec<Rows> {
        let keys = Rows::plain(self.dim, None);
        let Some(pool) = self.pool else { return vec![keys] };
        let input = Rows { ty: Some(KvType::F32), ..Rows::plain(self.dim, Some(pool)) };
        vec![input, input, Rows { every: pool, ..keys }]
    }
}

/// Sizes of multi-head latent attention (DeepSeek V2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
