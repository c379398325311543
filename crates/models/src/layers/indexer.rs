//! An index of rows: small queries and rows of their own choose the rows that a position attends
//! to, which are compressed ones (DeepSeek V4), the positions themselves (DeepSeek V3.2) or pools
//! of positions (GLM-5.3).

use super::compressor::Compressor;
use super::learned_growth::LearnedGrowth;
use super::linear::Linear;
use super::norm::Norm;
use super::operation::OpPlace;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, Compression, HeadColumns, IndexSpec, Rope, Rounding, RowRuns, Selection};
use formats::layers::{self, CompressedIndexSpec};

#[derive(Clone, Copy, Debug)]
pub(super) struct Indexer {
    /// From the low-rank query to the index queries: `[rows, heads * dim]`.
    q: (Linear, Buffer),
    /// Norm of the input, with its buffer, where they come from that: `[rows, hidden]`.
    input: Option<(Norm, Buffer)>,
    growth: Option<LearnedGrowth>,
    /// Weights of the heads: `[rows, heads]`.
    weights: (Linear, Buffer),
    compared: Compared,
    spec: IndexSpec,
    /// Rotation of queries, and of keys of positions.
    rope: Option<Rope>,
    /// Values of an index query, and the first rotated one.
    dim: usize,
    rotated: usize,
    rounding: Rounding,
}

/// The rows that queries are compared with.
#[derive(Clone, Copy, Debug)]
enum Compared {
    Compressed(Compressor),
    Keys(IndexKeys),
    /// Keys that are pooled, by the gates of a projection.
    Pooled(IndexKeys, (Linear, Buffer), Compression),
}

/// A small key of each position.
#[derive(Clone, Copy, Debug)]
struct IndexKeys {
    /// Projection and its outputs: `[rows, dim]`.
    linear: (Linear, Buffer),
    norm: Norm,
    /// Outputs of the norm: `[rows, dim]`.
    normed: Buffer,
    /// Which rows of the layer they are.
    rows: usize,
}

impl Indexer {
    /// Loads `indexer.attn_q_b`, `indexer.proj` and the index's compressor of a layer, whose rows
    /// begin with `first`. Every rank has all of it.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn over_rows(
        loader: &mut Loader<'_>,
        index: &CompressedIndexSpec,
        (first, (rope, rotated), eps, rounding): (usize, (Rope, usize), f32, Rounding),
    ) -> Result<Self, Error> {
        let CompressedIndexSpec { heads, top, rows: sizes } = *index;
        let first = (first, (rope, rotated), eps);
        let compressor = Compressor::load(loader, "indexer_compressor", &sizes, first)?;
        let (compared, rows) = (Compared::Compressed(compressor), compressor.rows());
        let [q, weights] = projections(loader, [heads, sizes.dim])?;
        let spec = IndexSpec {
            rows,
            runs: RowRuns::SINGLE,
            last: 0,
            heads,
            first: 0,
            selection: loader.selection(top)?,
        };
        let (rope, dim) = (Some(rope), sizes.dim);
        let (input, growth) = (None, None);
        Ok(Self { q, input, growth, weights, compared, spec, rope, dim, rotated, rounding })
    }

    /// Loads the index over positions of a layer: `indexer.attn_q_b`, `indexer.proj`, and
    /// `indexer.attn_k` with its norm `indexer.k_norm`; `indexer_compressor_gate` and
    /// `indexer_compressor_ape` where keys are pooled; the norm `indexer.q_norm` where queries come
    /// from the input, and `indexer.growth` where they grow by learned numbers (`grows`). Its keys
    /// are rows `place.rows` of the layer, or its keys, their gates and pooled keys are the rows
    /// from there on. Every rank has all of it.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn over_positions(
        loader: &mut Loader<'_>,
        index: &layers::IndexSpec,
        (place, selection): (OpPlace, Selection),
        grows: bool,
    ) -> Result<Self, Error> {
        let layers::IndexSpec { heads, dim, trailing, eps, ref rotation, pool, .. } = *index;
        let OpPlace { rows, first, .. } = place;
        let linear = Linear::load(loader, "indexer.attn_k", Slice::Whole)?;
        let keys = IndexKeys {
            linear: (linear, loader.shared("index_key", dim)?),
            norm: Norm::centred(loader, "indexer.k_norm", eps, "index_key_centred")?,
            normed: loader.shared("index_key_normed", dim)?,
            rows,
        };
        let [q, weights] = projections(loader, [heads, dim])?;
        let input = match index.normed_input {
            true => Some((
                Norm::centred(loader, "indexer.q_norm", eps, "index_input_centred")?,
                loader.shared("index_input", loader.hidden())?,
            )),
            false => None,
        };
        let growth = match grows {
            true => Some(LearnedGrowth::load(loader, "indexer.growth", 0..heads)?),
            false => None,
        };
        let rope = rotation.as_deref().map(|rope| loader.rope(rope, None)).transpose()?;
        let (compared, rows) = match pool {
            None => (Compared::Keys(keys), rows),
            Some(_) => {
                let gates = Linear::load_exact(loader, "indexer_compressor_gate", Slice::Whole)?;
                let pooled = Compression {
                    values: rows,
                    gates: Some((rows + 1, loader.vector("indexer_compressor_ape.weight")?)),
                    out: rows + 2,
                    overlap: false,
                    norm: None,
                    rope: None,
                };
                let gates = (gates, loader.shared("index_gate", dim)?);
                (Compared::Pooled(keys, gates, pooled), rows + 2)
            }
        };
        let spec = IndexSpec { rows, runs: RowRuns::SINGLE, last: 0, heads, first, selection };
        let rounding = Rounding::None;
        let width = rotation.as_deref().map_or(0, |rope| rope.dim);
        let rotated = if trailing { dim - width } else { 0 };
        Ok(Self { q, input, growth, weights, compared, spec, rope, dim, rotated, rounding })
    }

    /// Chooses the rows of each row of `x`, `[rows, hidden]`, whose low-rank query is `q_row`.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        layer: usize,
        (x, q_row): (Buffer, Buffer),
    ) -> Selection {
        let (rows, (q, queries), (weights, weighed)) = (pass.rows(), self.q, self.weights);
        self.keep(pass, layer, x);
        let input = self.input.map(|(norm, normed)| norm.forward(pass, x, normed, rows));
        q.forward(pass, input.unwrap_or(q_row), queries, rows);
        if let Some(growth) = self.growth {
            growth.apply(pass, queries);
        }
        weights.forward(pass, x, weighed, rows);
        let heads = |first| HeadColumns { buffer: queries, first, stride: self.dim };
        if let Some(rope) = self.rope {
            pass.backend.rotate(heads(self.rotated), rope, rows);
        }
        pass.backend.round(heads(0), self.dim, self.rounding, rows);
        pass.backend.select_rows(layer, queries, weighed, &self.spec, pass.batch);
        self.spec.selection
    }

    /// Stores what later positions are compared with of `x`, `[rows, hidden]`.
    pub fn keep(&self, pass: &mut ForwardPass<'_>, layer: usize, x: Buffer) {
        match &self.compared {
            Compared::Compressed(compressor) => compressor.forward(pass, layer, x),
            Compared::Keys(keys) => self.store_keys(pass, layer, keys, x),
            Compared::Pooled(keys, (linear, gates), pooled) => {
                self.store_keys(pass, layer, keys, x);
                linear.forward(pass, x, *gates, pass.rows());
                pass.backend.store_rows(layer, keys.rows + 1, *gates, pass.batch);
                pass.backend.compress(layer, pooled, pass.batch);
            }
        }
    }

    /// Stores the keys of `x`, `[rows, hidden]`.
    fn store_keys(&self, pass: &mut ForwardPass<'_>, layer: usize, keys: &IndexKeys, x: Buffer) {
        let ((linear, projected), rows) = (keys.linear, pass.rows());
        linear.forward(pass, x, projected, rows);
        let key = keys.norm.forward(pass, projected, keys.normed, rows);
        if let Some(rope) = self.rope {
            let columns = HeadColumns { buffer: key, first: self.rotated, stride: self.dim };
            pass.backend.rotate(columns, rope, rows);
        }
        pass.backend.store_rows(layer, keys.rows, key, pass.batch);
    }
}

/// The projections to the queries of an index, and to the weights of its heads, with their buffers.
fn projections(
    loader: &mut Loader<'_>,
    [heads, dim]: [usize; 2],
) -> Result<[(Linear, Buffer); 2], Error> {
    let q = Linear::load(loader, "indexer.attn_q_b", Slice::Whole)?;
    let weights = Linear::load(loader, "indexer.proj", Slice::Whole)?;
    let queries = loader.shared("index_q", heads * dim)?;
    Ok([(q, queries), (weights, loader.shared("index_weights", heads)?)])
}
