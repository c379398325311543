//! An index over blocks of positions that scores each by the greatest product of a query with one
//! of its keys, and chooses for each KV head (MiniMax-M3).

use super::linear::Linear;
use super::norm::Norm;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, HeadColumns, IndexSpec, MapOp, Rope, RowRuns, Selection};
use formats::layers::BlockIndexSpec;
use std::ops::Range;

/// An index whose query heads are those of this rank's KV heads. Every rank has all keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockMaxima {
    /// Queries, before and after their norm: `[rows, heads * dim]`.
    q: (Linear, [Buffer; 2]),
    q_norm: Norm,
    /// The same times -1.
    negated: Buffer,
    /// Keys, before and after their norm: `[rows, dim]`.
    k: (Linear, [Buffer; 2]),
    k_norm: Norm,
    /// A query and its negative, and their weights, 1 and -1: `[rows, 2 * dim]` and `[rows, 2]`.
    /// Scores of an index are sums of what is above 0, of which these two give the product itself.
    pair: (Buffer, Buffer),
    choice: IndexSpec,
    rope: Rope,
    dim: usize,
}

/// The runs that an index over blocks of `every` positions chooses.
pub(super) fn runs(every: usize) -> RowRuns {
    RowRuns { len: every, own: true }
}

/// Most blocks that are chosen beside that of the query's own position, of `top` in all.
pub(super) fn others(top: usize) -> usize {
    top - 1
}

impl BlockMaxima {
    /// Loads `indexer.q_proj`, of the KV heads `own`, `indexer.k_proj`, `indexer.q_norm` and
    /// `indexer.k_norm`. Keys are rows `first` of the layer.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        spec: &BlockIndexSpec,
        (first, selection): (usize, Selection),
        (own, local): (&Range<usize>, usize),
    ) -> Result<Self, Error> {
        let BlockIndexSpec { dim, eps, every, ref rotation, .. } = *spec;
        let rope = loader.rope(rotation, None)?;
        let values = own.start * dim..own.end * dim;
        let width = values.len();
        let q = Linear::load_exact(loader, "indexer.q_proj", Slice::Heads(values))?;
        let k = Linear::load_exact(loader, "indexer.k_proj", Slice::Whole)?;
        let mut buffer = |name, width| loader.shared(name, width);
        let queries = [buffer("index_q", width)?, buffer("index_q_normed", width)?];
        let negated = buffer("index_q_negated", width)?;
        let keys = [buffer("index_key", dim)?, buffer("index_key_normed", dim)?];
        let both = buffer("index_q_pair", 2 * dim)?;
        Ok(Self {
            q: (q, queries),
            q_norm: Norm::load(loader, "indexer.q_norm", eps)?,
            negated,
            k: (k, keys),
            k_norm: Norm::load(loader, "indexer.k_norm", eps)?,
            pair: (both, loader.filled("index_pair_weights", &[1.0, -1.0])?),
            choice: IndexSpec {
                rows: first,
                runs: runs(every),
                last: others(local),
                heads: 2,
                first: 0,
                selection,
            },
            rope,
            dim,
        })
    }

    /// Computes queries and keys of `x`, `[rows, hidden]`, and stores the keys.
    pub fn project(&self, pass: &mut ForwardPass<'_>, layer: usize, x: Buffer) {
        let ((q, [q_out, queries]), (k, [k_out, keys])) = (&self.q, &self.k);
        let rows = pass.rows();
        Linear::forward_each(pass, x, [(q, *q_out), (k, *k_out)], rows);
        self.q_norm.forward(pass, *q_out, *queries, rows);
        self.k_norm.forward(pass, *k_out, *keys, rows);
        for buffer in [*queries, *keys] {
            pass.backend.rotate(self.heads(buffer), self.rope, rows);
        }
        pass.backend.store_rows(layer, self.choice.rows, *keys, pass.batch);
        pass.backend.copy_heads(self.heads(*queries), self.dim, self.heads(self.negated), rows);
        pass.backend.map(MapOp::Scale(-1.0), self.negated, rows);
    }

    /// Chooses the blocks of a KV head for each row.
    pub fn choose(&self, pass: &mut ForwardPass<'_>, layer: usize, kv_head: usize) {
        let (rows, (both, weights)) = (pass.rows(), self.pair);
        let (_, [_, queries]) = self.q;
        for (part, buffer) in [queries, self.negated].into_iter().enumerate() {
            let from = HeadColumns { buffer, first: kv_head * self.dim, stride: self.dim };
            let to = HeadColumns { buffer: both, first: part * self.dim, stride: 2 * self.dim };
            pass.backend.copy_heads(from, self.dim, to, rows);
        }
        pass.backend.select_rows(layer, both, weights, &self.choice, pass.batch);
    }

    /// The heads of queries or of keys.
    fn heads(&self, buffer: Buffer) -> HeadColumns {
        HeadColumns { buffer, first: 0, stride: self.dim }
    }
}
