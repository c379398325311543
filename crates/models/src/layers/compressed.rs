//! Attention of DeepSeek V4: one row per position is key and value of all heads. A position attends
//! to the rows of a window, and in most layers to compressed rows, all or the choice of an
//! index.
//!
//! The last values of queries and rows are rotated, and the outputs are rotated back by the query's
//! position, because values carry the rotation of theirs.

use super::compressor::Compressor;
use super::indexer::Indexer;
use super::linear::Linear;
use super::norm::Norm;
use super::operation::{OpPlace, Operation};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Heads, Slice};
use backend::{Buffer, HeadColumns, LayerCache, Matrix, Rope, Rounding, RowAttention, RowRuns};
use dist::Split;
use formats::layers::CompressedSpec;
use std::ops::Range;

/// Which rows of a layer are those of the window, and where those of compressors begin.
const WINDOW: usize = 0;
const COMPRESSED: usize = 1;
const INDEX: usize = 4;

/// Workspace shared by all layers, as wide as this rank's heads.
#[derive(Clone, Copy, Debug)]
struct CompressedBuffers {
    /// `[rows, q_rank]`, before and after the norm.
    q_row: [Buffer; 2],
    /// `[rows, heads * dim]`, before and after the norm.
    q: [Buffer; 2],
    /// `[rows, dim]`, before and after the norm.
    kv: [Buffer; 2],
    /// Outputs of the heads: `[rows, heads * dim]`.
    mixed: Buffer,
    /// `[rows, groups * out_rank]`.
    low: Buffer,
}

impl CompressedBuffers {
    fn new(loader: &mut Loader<'_>, [q_rank, heads, dim, low]: [usize; 4]) -> Result<Self, Error> {
        let mut shared = |name, width| loader.shared(name, width);
        Ok(Self {
            q_row: [shared("q_row", q_rank)?, shared("q_row_normed", q_rank)?],
            q: [shared("q", heads * dim)?, shared("q_normed", heads * dim)?],
            kv: [shared("row", dim)?, shared("row_normed", dim)?],
            mixed: shared("mixed", heads * dim)?,
            low: shared("low", low)?,
        })
    }
}

#[derive(Debug)]
pub(crate) struct CompressedAttention {
    /// Index of the layer in this rank's cache.
    layer: usize,
    q_a: Linear,
    q_a_norm: Norm,
    q_b: Linear,
    kv: Linear,
    kv_norm: Norm,
    /// Norm of query heads, without weights.
    q_norm: Norm,
    compressor: Option<Compressor>,
    indexer: Option<Indexer>,
    /// Outputs of this rank's groups of heads: `[out_rank, heads of a group * dim]` each.
    groups: Vec<Matrix>,
    out_rank: usize,
    out: Linear,
    rope: Rope,
    /// Values of a head, and how many of them, the last ones, are rotated.
    dim: usize,
    rotated: usize,
    rounding: Rounding,
    spec: RowAttention,
    work: CompressedBuffers,
    cache: LayerCache,
}

/// The matrices `[out_rank, heads of a group * dim]` of the groups `own`, which one tensor holds.
fn load_groups(
    loader: &mut Loader<'_>,
    out_rank: usize,
    own: &Range<usize>,
) -> Result<Vec<Matrix>, Error> {
    const NAME: &str = "attn_output_a.weight";
    let (view, full) = (loader.require(NAME)?.clone(), loader.full_name(NAME));
    let matrix =
        |group| loader.part_of(&full, &view.rows(group * out_rank..(group + 1) * out_rank));
    own.clone().map(matrix).collect()
}

impl CompressedAttention {
    /// Loads the tensors of a layer's attention: this rank's groups of heads; rows, compressors and
    /// index are whole on every rank.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        place: OpPlace,
        spec: &CompressedSpec,
    ) -> Result<Self, Error> {
        let CompressedSpec { heads, head_dim: dim, groups, out_rank, eps, .. } = *spec;
        let Heads { queries: own, kv: own_groups } = Heads::of(loader.slice, heads, groups)?;
        if own.len() * groups != own_groups.len() * heads {
            return Err(Error::Config(format!(
                "{groups} output groups of heads cannot be divided among {} ranks",
                loader.slice.ranks()
            )));
        }
        let (fp8, fp4) = spec.roundings(loader.native_rounding);
        let rope = loader.rope(&spec.rotation, None)?;
        let of = |range: &Range<usize>, each| range.start * each..range.end * each;
        let sinks = loader.vector_part("attn_sinks.weight", own.clone())?;
        let compressor = match &spec.rows {
            Some(rows) => {
                let rotated = (rope, rows.dim - spec.rope_dim);
                Some(Compressor::load(loader, "attn_compressor", rows, (COMPRESSED, rotated, eps))?)
            }
            None => None,
        };
        let indexer = match &spec.index {
            Some(index) => {
                let rotated = (rope, index.rows.dim - spec.rope_dim);
                Some(Indexer::over_rows(loader, index, (INDEX, rotated, eps, fp4))?)
            }
            None => None,
        };
        let matrices = load_groups(loader, out_rank, &own_groups)?;
        let widths = [spec.q_rank, own.len(), dim, own_groups.len() * out_rank];
        Ok(Self {
            layer: place.of_rank(loader),
            q_a: Linear::load(loader, "attn_q_a", Slice::Whole)?,
            q_a_norm: Norm::load(loader, "attn_q_a_norm", eps)?,
            q_b: Linear::load(loader, "attn_q_b", Slice::Heads(of(&own, dim)))?,
            kv: Linear::load(loader, "attn_kv", Slice::Whole)?,
            kv_norm: Norm::load(loader, "attn_kv_a_norm", eps)?,
            q_norm: Norm::without_weight(loader, dim, eps),
            groups: matrices,
            out_rank,
            out: Linear::load(loader, "attn_output_b", Slice::Inputs(of(&own_groups, out_rank)))?,
            rope,
            dim,
            rotated: spec.rope_dim,
            rounding: fp8,
            spec: RowAttention {
                heads: own.len(),
                scale: spec.scale,
                sinks: Some(sinks),
                window: Some(WINDOW),
                compressed: compressor.as_ref().map(Compressor::rows),
                selection: None,
                runs: RowRuns::SINGLE,
                first: place.first,
            },
            compressor,
            indexer,
            work: CompressedBuffers::new(loader, widths)?,
            cache: spec.cache(loader.native_rounding),
        })
    }
}

impl Operation for CompressedAttention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn split(&self) -> Split {
        self.out.split
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let (CompressedBuffers { q_row, q, kv, mixed, low }, rows) = (self.work, pass.rows());
        Linear::forward_each(pass, x, [(&self.q_a, q_row[0]), (&self.kv, kv[0])], rows);
        self.q_a_norm.forward(pass, q_row[0], q_row[1], rows);
        self.q_b.forward(pass, q_row[1], q[0], rows);
        // q: [rows, heads * dim]
        self.q_norm.forward(pass, q[0], q[1], rows);
        self.kv_norm.forward(pass, kv[0], kv[1], rows);
        let last =
            |buffer| HeadColumns { buffer, first: self.dim - self.rotated, stride: self.dim };
        pass.backend.rotate(last(q[1]), self.rope, rows);
        pass.backend.rotate(last(kv[1]), self.rope, rows);
        let whole = HeadColumns { buffer: kv[1], first: 0, stride: self.dim };
        pass.backend.round(whole, self.dim, self.rounding, rows);
        pass.backend.store_rows(self.layer, WINDOW, kv[1], pass.batch);
        if let Some(compressor) = &self.compressor {
            compressor.forward(pass, self.layer, x);
        }
        let indexer = self.indexer.as_ref();
        let selection = indexer.map(|index| index.forward(pass, self.layer, (x, q_row[1])));
        let spec = RowAttention { selection, ..self.spec };
        // mixed: [rows, heads * dim]
        pass.backend.attend_rows(self.layer, q[1], mixed, &spec, pass.batch);
        pass.backend.rotate_back(last(mixed), self.rope, rows);
        let count = self.groups.len();
        let each = |buffer, width| HeadColumns { buffer, first: 0, stride: width / count };
        let group = self.spec.heads * self.dim;
        let columns = (each(mixed, group), each(low, count * self.out_rank));
        pass.backend.linear_heads(columns.0, &self.groups, columns.1, rows);
        self.out.forward(pass, low, out, rows);
        Ok(())
    }
}
