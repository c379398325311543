//! Grouped-query attention to blocks of positions that an index chooses (Qwen3.8, MiniMax-M3).

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

/// An index over blocks: small queries, and one small key of each position.
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
    /// How blocks are scored.
    #[serde(skip_serializing_if = "BlockScores::are_of_means")]
    pub scores: BlockScores,
    /// Rotary embedding: of queries by their positions, and of keys.
    pub rotation: RopeSpec,
    /// Epsilon of the norms of queries and of keys.
    pub eps: f32,
}

/// How an index scores blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BlockScores {
    /// By the sum over query heads of the products with the mean of a block's keys, which is
    /// normalised and rotated by the block's first position. All KV heads have one choice, of
    /// complete blocks; positions after the last of them are attended to (Qwen3.8).
    Means,
    /// By the greatest product with one of a block's keys, each of which is normalised and rotated
    /// by its position. Each query head chooses for one KV head. The block of the query's own
    /// position and those before it, `local` in all, are always among the chosen (MiniMax-M3).
    Maxima {
        /// Blocks up to the query's own that are always chosen, at least 1.
        local: usize,
    },
}

impl BlockScores {
    fn are_of_means(&self) -> bool {
        *self == Self::Means
    }
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

    /// What a layer keeps of a sequence: for each KV head a row of a key and a value after it, and
    /// of the index the keys of all positions, or those of the positions of a block and the key of
    /// each block.
    pub fn cache(&self) -> LayerCache {
        let BlockIndexSpec { dim, every, .. } = self.index;
        let GroupedSpec { kv_heads, head_dim, .. } = self.attention;
        let mut rows = vec![Rows::plain(2 * head_dim, None); kv_heads];
        match self.index.scores {
            BlockScores::Means => {
                rows.push(Rows { ty: Some(KvType::F32), ..Rows::plain(dim, Some(every)) });
                rows.push(Rows { every, ..Rows::plain(dim, None) });
            }
            BlockScores::Maxima { .. } => rows.push(Rows::plain(dim, None)),
        }
        LayerCache { rows, state: None }
    }
}
