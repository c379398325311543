//! Attention to a window of rows and to rows that each stand for several positions (DeepSeek V4).

use kernels::kv::{KvType, LayerCache, Rounding, RowLayout, Rows};
use serde::Serialize;

use crate::layers::rope::RopeSpec;
use crate::layers::tensor::{TensorKind, TensorSpec};

/// Attention of which keys and values are the same row of `head_dim` values, shared by all heads.
/// The trailing values of queries and rows are rotated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompressedSpec {
    /// Query heads.
    pub heads: usize,
    /// Values of a head and of a row.
    pub head_dim: usize,
    /// Rank of the projection of queries.
    pub q_rank: usize,
    /// Trailing values of a head, and of a head of an index, that are rotated.
    pub rope_dim: usize,
    /// Groups of consecutive heads that are projected together; divides the number of heads.
    pub groups: usize,
    /// Values that a group is projected to.
    pub out_rank: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Positions of the window.
    pub window: Option<usize>,
    /// Rotary embedding of the layer.
    pub rotation: RopeSpec,
    /// Epsilon of norms.
    pub eps: f32,
    /// The rows that stand for several positions, where the layer has them.
    pub rows: Option<CompressorSpec>,
    /// The index that chooses these rows; all are attended to where there is none.
    pub index: Option<CompressedIndexSpec>,
}

/// A compressor, which pools positions to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CompressorSpec {
    /// Positions per row.
    pub every: usize,
    /// Values of a row.
    pub dim: usize,
    /// Whether a row also pools the positions of the row before.
    pub overlap: bool,
}

/// An index over compressed rows, with compressed rows of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CompressedIndexSpec {
    /// Query heads.
    pub heads: usize,
    /// Most rows that are chosen.
    pub top: usize,
    /// Its rows.
    pub rows: CompressorSpec,
}

impl CompressedSpec {
    /// The tensors of the operation, whose inputs have `hidden` values.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let Self { heads, head_dim: dim, q_rank, groups, out_rank, .. } = *self;
        let (kind, low) = (TensorKind::Attention, groups * out_rank);
        let norm = |name, width: usize| TensorKind::Norm.tensor(name, &[width]);
        let mut tensors = kind.linear("attn_q_a", q_rank, hidden).to_vec();
        tensors.push(norm("attn_q_a_norm.weight", q_rank));
        tensors.extend(kind.linear("attn_q_b", heads * dim, q_rank));
        tensors.extend(kind.linear("attn_kv", dim, hidden));
        tensors.push(norm("attn_kv_a_norm.weight", dim));
        tensors.push(kind.tensor("attn_sinks.weight", &[heads]));
        tensors.push(kind.tensor("attn_output_a.weight", &[low, heads * dim / groups]));
        tensors.extend(kind.linear("attn_output_b", hidden, low));
        if let Some(rows) = &self.rows {
            tensors.extend(rows.tensors("attn_compressor", hidden));
        }
        if let Some(CompressedIndexSpec { heads, rows, .. }) = &self.index {
            tensors.extend(kind.linear("indexer.attn_q_b", heads * rows.dim, q_rank));
            tensors.extend(kind.linear("indexer.proj", *heads, hidden));
            tensors.extend(rows.tensors("indexer_compressor", hidden));
        }
        tensors
    }

    /// How rows of attention and those of the index are rounded: as the model was trained for where
    /// `native`.
    pub fn roundings(&self, native: bool) -> (Rounding, Rounding) {
        match native {
            true => (Rounding::Fp8 { rotated: self.rope_dim }, Rounding::Fp4),
            false => (Rounding::None, Rounding::None),
        }
    }

    /// What a layer keeps of a sequence.
    pub fn cache(&self, native: bool) -> LayerCache {
        let (fp8, fp4) = self.roundings(native);
        let layout = RowLayout::Plain(fp8);
        let mut rows = vec![Rows { layout, ..Rows::plain(self.head_dim, self.window) }];
        rows.extend(self.rows.iter().flat_map(|own| own.rows(fp8)));
        rows.extend(self.index.iter().flat_map(|index| index.rows.rows(fp4)));
        LayerCache { rows, state: None }
    }
}

impl CompressorSpec {
    /// Values and gates of a position: for the row before and for its own.
    pub fn width(&self) -> usize {
        if self.overlap { 2 * self.dim } else { self.dim }
    }

    /// Projections of values and gates, biases of positions, and the norm.
    fn tensors(&self, name: &str, hidden: usize) -> Vec<TensorSpec> {
        let (kind, width) = (TensorKind::Compressor, self.width());
        let mut tensors = kind.linear(&format!("{name}_kv"), width, hidden).to_vec();
        tensors.extend(kind.linear(&format!("{name}_gate"), width, hidden));
        let biases = kind.tensor(format!("{name}_ape.weight"), &[self.every, width]);
        tensors.push(biases.of_values());
        tensors.push(TensorKind::Norm.tensor(format!("{name}_norm.weight"), &[self.dim]));
        tensors
    }

    /// The rows of a layer: what is pooled, compressed rows last, which are rounded as said.
    fn rows(&self, rounding: Rounding) -> [Rows; 3] {
        let window = if self.overlap { 2 * self.every } else { self.every };
        let input = Rows { ty: Some(KvType::F32), ..Rows::plain(self.width(), Some(window)) };
        let layout = RowLayout::Plain(rounding);
        [input, input, Rows { every: self.every, layout, ..Rows::plain(self.dim, None) }]
    }
}
