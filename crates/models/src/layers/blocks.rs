//! Grouped-query attention to blocks of positions that an index chooses (Qwen3.8, MiniMax-M3).
//!
//! An index compares small queries with small keys, of which blocks have the means or the greatest
//! product. A position attends to the positions of the best blocks before it, and to those after
//! the last complete block, or of its own. For each KV head a position has one row, a key and a
//! value after it: queries have zeros in the place of the value, and the value is the second half
//! of what is attended to.

use super::block_maxima::{self, BlockMaxima};
use super::grouped::GroupedProjections;
use super::linear::Linear;
use super::norm::Norm;
use super::operation::{OpPlace, Operation};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{
    Buffer, Compression, HeadColumns, IndexSpec, LayerCache, Rope, RowAttention, RowRuns, Selection,
};
use dist::Split;
use formats::layers::{BlockIndexSpec, BlockScores, BlockSpec, GroupedSpec};

/// How blocks are chosen.
#[derive(Clone, Copy, Debug)]
enum BlockChoice {
    /// By their means, for all KV heads.
    Means(BlockMeans),
    /// By the greatest product with a key, for each KV head.
    Maxima(BlockMaxima),
}

/// An index over the means of blocks. Every rank has all of it.
#[derive(Clone, Copy, Debug)]
struct BlockMeans {
    /// Queries, before and after their norm: `[rows, heads * dim]`.
    q: (Linear, [Buffer; 2]),
    q_norm: Norm,
    /// Keys: `[rows, dim]`.
    k: (Linear, Buffer),
    /// Weights of the heads, which are equal: `[rows, heads]`.
    weights: Buffer,
    pooling: Compression,
    choice: IndexSpec,
    rope: Rope,
    dim: usize,
}

#[derive(Debug)]
pub(crate) struct BlockAttention {
    /// Index of the layer in this rank's cache.
    layer: usize,
    /// Number of the first of its rows there.
    first: usize,
    projections: GroupedProjections,
    choice: BlockChoice,
    /// Queries of the heads of a KV head, with zeros in the place of values, and what they attend
    /// to: `[rows, heads * 2 * head_dim]` each.
    group: [Buffer; 2],
    /// A key and a value: `[rows, 2 * head_dim]`.
    row: Buffer,
    kv_heads: usize,
    dim: usize,
    /// Attention of the heads of a KV head.
    spec: RowAttention,
    cache: LayerCache,
}

impl BlockMeans {
    /// Loads `indexer.q_proj`, `indexer.k_proj`, `indexer.q_norm` and `indexer.k_norm`. Keys are
    /// rows `first` of the layer, and the means of blocks the next.
    fn load(
        loader: &mut Loader<'_>,
        spec: &BlockIndexSpec,
        (first, selection): (usize, Selection),
    ) -> Result<Self, Error> {
        let BlockIndexSpec { heads, dim, eps, ref rotation, .. } = *spec;
        let rope = loader.rope(rotation, None)?;
        let mut linear = |name| Linear::load_exact(loader, name, Slice::Whole);
        let (q, k) = (linear("indexer.q_proj")?, linear("indexer.k_proj")?);
        let mut buffer = |name, width| loader.shared(name, width);
        let queries = [buffer("index_q", heads * dim)?, buffer("index_q_normed", heads * dim)?];
        let key = buffer("index_key", dim)?;
        let pooling = Compression {
            values: first,
            gates: None,
            out: first + 1,
            overlap: false,
            norm: Some((loader.vector("indexer.k_norm.weight")?, eps)),
            rope: Some((rope, 0)),
        };
        Ok(Self {
            q: (q, queries),
            q_norm: Norm::load(loader, "indexer.q_norm", eps)?,
            k: (k, key),
            // The factor of all scores changes no choice.
            weights: loader.filled("index_equal_weights", &vec![1.0; heads])?,
            pooling,
            choice: IndexSpec {
                rows: first + 1,
                runs: RowRuns::SINGLE,
                last: 0,
                heads,
                first: 0,
                selection,
            },
            rope,
            dim,
        })
    }

    /// Chooses the blocks of each row of `x`, `[rows, hidden]`.
    fn choose(&self, pass: &mut ForwardPass<'_>, layer: usize, x: Buffer) {
        let ((q, [projected, queries]), (k, key), rows) = (&self.q, &self.k, pass.rows());
        Linear::forward_each(pass, x, [(q, *projected), (k, *key)], rows);
        pass.backend.store_rows(layer, self.pooling.values, *key, pass.batch);
        pass.backend.compress(layer, &self.pooling, pass.batch);
        self.q_norm.forward(pass, *projected, *queries, rows);
        let heads = HeadColumns { buffer: *queries, first: 0, stride: self.dim };
        pass.backend.rotate(heads, self.rope, rows);
        pass.backend.select_rows(layer, *queries, self.weights, &self.choice, pass.batch);
    }
}

impl BlockAttention {
    /// Loads the projections of grouped-query attention, this rank's heads, and the index.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, place: OpPlace, spec: &BlockSpec) -> Result<Self, Error> {
        let BlockSpec { attention, index } = spec;
        let (projections, own) = GroupedProjections::load(loader, attention)?;
        let (kv_heads, dim) = (own.kv.len(), attention.head_dim);
        let heads = own.queries.len() / kv_heads;
        let (top, runs) = match index.scores {
            BlockScores::Means => (index.top, RowRuns { len: index.every, own: false }),
            BlockScores::Maxima { .. } => {
                (block_maxima::others(index.top), block_maxima::runs(index.every))
            }
        };
        let selection = loader.selection(top)?;
        let attention = GroupedSpec { heads: own.queries.len(), kv_heads, ..attention.clone() };
        let group = heads * 2 * dim;
        Ok(Self {
            layer: place.of_rank(loader),
            first: place.rows,
            projections,
            choice: {
                let rows = (place.rows + kv_heads, selection);
                match index.scores {
                    BlockScores::Means => {
                        BlockChoice::Means(BlockMeans::load(loader, index, rows)?)
                    }
                    BlockScores::Maxima { local } => BlockChoice::Maxima(BlockMaxima::load(
                        loader,
                        index,
                        rows,
                        (&own.kv, local),
                    )?),
                }
            },
            group: [loader.shared("block_q", group)?, loader.shared("block_seen", group)?],
            row: loader.shared("block_row", 2 * dim)?,
            kv_heads,
            dim,
            spec: RowAttention {
                heads,
                scale: attention.scale,
                sinks: None,
                window: None,
                compressed: None,
                selection: Some(selection),
                runs,
                first: 0,
            },
            cache: BlockSpec { attention, index: index.clone() }.cache(),
        })
    }

    /// Stores the key and the value of a KV head, of `k` and `v`, `[rows, kv_heads * dim]`.
    fn store(&self, pass: &mut ForwardPass<'_>, kv_head: usize, [k, v]: [Buffer; 2]) {
        let (rows, dim) = (pass.rows(), self.dim);
        for (first, from) in [(0, k), (dim, v)] {
            let from = HeadColumns { buffer: from, first: kv_head * dim, stride: 2 * dim };
            let to = HeadColumns { buffer: self.row, first, stride: 2 * dim };
            pass.backend.copy_heads(from, dim, to, rows);
        }
        pass.backend.store_rows(self.layer, self.first + kv_head, self.row, pass.batch);
    }

    /// Attention of the queries `q` of a KV head into `out`, `[rows, heads * dim]` each.
    fn attend(&self, pass: &mut ForwardPass<'_>, kv_head: usize, [q, out]: [Buffer; 2]) {
        let (rows, dim, [queries, seen]) = (pass.rows(), self.dim, self.group);
        let own =
            |buffer| HeadColumns { buffer, first: kv_head * self.spec.heads * dim, stride: dim };
        let half = |buffer, first| HeadColumns { buffer, first, stride: 2 * dim };
        pass.backend.copy_heads(own(q), dim, half(queries, 0), rows);
        let spec = RowAttention { compressed: Some(self.first + kv_head), ..self.spec };
        pass.backend.attend_rows(self.layer, queries, seen, &spec, pass.batch);
        pass.backend.copy_heads(half(seen, dim), dim, own(out), rows);
    }
}

impl Operation for BlockAttention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn split(&self) -> Split {
        self.projections.split()
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let (q, kv) = self.projections.project(pass, x);
        if let Some(kv) = kv {
            (0..self.kv_heads).for_each(|kv_head| self.store(pass, kv_head, kv));
        }
        match &self.choice {
            BlockChoice::Means(index) => index.choose(pass, self.layer, x),
            BlockChoice::Maxima(index) => index.project(pass, self.layer, x),
        }
        let mixed = self.projections.mixed();
        for kv_head in 0..self.kv_heads {
            if let BlockChoice::Maxima(index) = &self.choice {
                index.choose(pass, self.layer, kv_head);
            }
            self.attend(pass, kv_head, [q, mixed]);
        }
        self.projections.output(pass, out);
        Ok(())
    }
}
