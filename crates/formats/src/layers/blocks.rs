//! Grouped-query attention to blocks of positions that an index chooses (Qwen3.8).

use kernels::kv::{KvType, LayerCache, Rows};
use serde::Serialize;

use crate::layers::grouped::GroupedSpec;
use crate::layers::rope::RopeSpec;
use crate::layers::tensor::{TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names of the index in Hugging Face checkpoints.
pub(crate) const BLOCK_INDEX: NamePairs = &[
    ("self_attn.indexer.index_qk_proj.weight", INDEX_JOINED.0),
    ("self_attn.indexer.q_layernorm.weight", "indexer.q_norm.weight"),
    ("self_attn.indexer.k_layernorm.weight", "indexer.k_norm.weight"),
];

/// Queries and the key of an index as the rows of one matrix.
pub(crate) const INDEX_JOINED: (&str, &[&str]) =
    ("indexer.qk_proj.weight", &["indexer.q_proj.weight", "indexer.k_proj.weight"]);

/// Grouped-query attention to the positions of the best blocks, and to those after the last
/// complete block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockSpec {
    /// The attention, without a window.
    pub attention: GroupedSpec,
    /// The index.
    pub index: BlockIndexSpec,
}

/// An index over blocks: small queries, and one small key of each position, of which the means of
/// blocks are compared with the queries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockIndexSpec {
    /// Query heads.
    pub heads: usize,
    /// Values of queries and keys, of which the first are rotated.
    pub dim: usize,
    /// Positions of a block.
    pub every: usize,
    /// Most blocks that are chosen.
    pub top: usize,
    /// Rotary embedding: of queries by their positions, of keys by the first of their block.
    pub rotation: RopeSpec,
    /// Epsilon of the norms of queries and of the keys of blocks.
    pub eps: f32,
}

impl BlockSpec {
    /// The tensors of the operation, whose inputs have `hidden` values.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let BlockIndexSpec { heads, dim, .. } = self.index;
        let kind = TensorKind::Attention;
        let norm = |name| kind.tensor(name, &[dim]);
        let mut tensors = self.attention.tensors(hidden);
        tensors.extend(kind.linear("indexer.q_proj", heads * dim, hidden));
        tensors.extend(kind.linear("indexer.k_proj", dim, hidden));
        tensors.extend([norm("indexer.q_norm.weight"), norm("indexer.k_norm.weight")]);
        tensors
    }

    /// What a layer keeps of a sequence: for each KV head a row of a key and a value after it, the
    /// keys of the index for the positions of a block, and the key of each block.
    pub fn cache(&self) -> LayerCache {
        let BlockIndexSpec { dim, every, .. } = self.index;
        let GroupedSpec { kv_heads, head_dim, .. } = self.attention;
        let mut rows = vec![Rows::plain(2 * head_dim, None); kv_heads];
        rows.push(Rows { ty: Some(KvType::F32), ..Rows::plain(dim, Some(every)) });
        rows.push(Rows { every, ..Rows::plain(dim, None) });
        LayerCache { rows, state: None }
    }
}
