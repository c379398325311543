//! The index of compressed rows (DeepSeek V4): small queries and rows of their own choose the rows
//! that a position attends to.

use super::compressor::{Compressor, CompressorSizes};
use super::{ForwardPass, Linear};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::Slice;
use backend::{Buffer, HeadColumns, IndexSpec, Rope, Rounding, Selection};
use formats::config::CompressedConfig;

#[derive(Clone, Copy, Debug)]
pub(super) struct Indexer {
    /// From the low-rank query to the index queries: `[rows, heads * dim]`.
    q: (Linear, Buffer),
    /// Weights of the heads: `[rows, heads]`.
    weights: (Linear, Buffer),
    compressor: Compressor,
    spec: IndexSpec,
    rope: Rope,
    /// Values of an index query, and how many of them, the last ones, are rotated.
    dim: usize,
    rotated: usize,
    rounding: Rounding,
}

/// The compressor of the index of a layer.
pub(super) fn sizes(config: &CompressedConfig, layer: usize) -> CompressorSizes {
    CompressorSizes { every: config.ratios[layer], dim: config.index_dim, overlap: true }
}

impl Indexer {
    /// Loads `indexer.attn_q_b`, `indexer.proj` and the index's compressor of a layer. Every rank
    /// has all of it.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &CompressedConfig,
        (first, rope, rounding): (usize, Rope, Rounding),
    ) -> Result<Self, Error> {
        let CompressedConfig { index_heads: heads, index_dim: dim, q_rank, .. } = *config;
        let hidden = loader.checkpoint.config().hidden_size;
        let name = |part: &str| format!("blk.{layer}.indexer{part}");
        let q = Linear::load(loader, &name(".attn_q_b"), heads * dim, q_rank, Slice::Whole)?;
        let weights = Linear::load(loader, &name(".proj"), heads, hidden, Slice::Whole)?;
        let sizes = sizes(config, layer);
        let compressor = Compressor::load(loader, &name("_compressor"), sizes, (first, rope))?;
        let selection = loader.selection(config.index_top)?;
        Ok(Self {
            q: (q, loader.shared("index_q", heads * dim)?),
            weights: (weights, loader.shared("index_weights", heads)?),
            compressor,
            spec: IndexSpec { rows: compressor.rows(), heads, selection },
            rope,
            dim,
            rotated: config.rope_dim,
            rounding,
        })
    }

    /// Chooses the rows of each row of `x`, `[rows, hidden]`, whose low-rank query is `q_row`.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        layer: usize,
        (x, q_row): (Buffer, Buffer),
    ) -> Selection {
        let (rows, (q, queries), (weights, weighed)) = (pass.rows(), self.q, self.weights);
        self.compressor.forward(pass, layer, x);
        q.forward(pass, q_row, queries, rows);
        weights.forward(pass, x, weighed, rows);
        let heads = |first| HeadColumns { buffer: queries, first, stride: self.dim };
        pass.backend.rotate(heads(self.dim - self.rotated), self.rope, rows);
        pass.backend.round(heads(0), self.dim, self.rounding, rows);
        pass.backend.select_rows(layer, queries, weighed, &self.spec, pass.batch);
        self.spec.selection
    }
}
