//! Attention of DeepSeek V4: one row per position is key and value of all heads. A position attends
//! to the rows of a window, and in most layers to compressed rows, all or the choice of an
//! index.
//!
//! The last values of queries and rows are rotated, and the outputs are rotated back by the query's
//! position, because values carry the rotation of theirs.

use super::compressor::{Compressor, CompressorSizes};
use super::indexer::{self, Indexer};
use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{
    Buffer, HeadColumns, LayerCache, Matrix, Rope, Rounding, RowAttention, RowLayout, Rows,
};
use formats::ModelConfig;
use formats::config::CompressedConfig;
use std::ops::Range;

/// Which rows of a layer are those of the window, and where those of compressors begin.
const WINDOW: usize = 0;
const COMPRESSED: usize = 1;
const INDEX: usize = 4;

/// Workspace shared by all layers, as wide as this rank's heads.
#[derive(Clone, Copy, Debug)]
struct SparseBuffers {
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

impl SparseBuffers {
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
pub(crate) struct SparseAttention {
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
    pub out: Linear,
    rope: Rope,
    /// Values of a head, and how many of them, the last ones, are rotated.
    dim: usize,
    rotated: usize,
    rounding: Rounding,
    spec: RowAttention,
    work: SparseBuffers,
}

/// What a layer keeps; `native` says whether rows are rounded as the model was trained for.
pub(super) fn cache(
    model: &ModelConfig,
    config: &CompressedConfig,
    layer: usize,
    native: bool,
) -> LayerCache {
    let (fp8, fp4) = roundings(config, native);
    let layout = RowLayout::Plain(fp8);
    let mut rows = vec![Rows { layout, ..Rows::plain(model.head_dim, model.windows[layer]) }];
    if let Some(sizes) = sizes(model, config, layer) {
        rows.extend(sizes.rows(fp8));
    }
    if config.indexed[layer] {
        rows.extend(indexer::sizes(config, layer).rows(fp4));
    }
    LayerCache { rows, state: None }
}

/// How rows of attention and those of the index are rounded.
fn roundings(config: &CompressedConfig, native: bool) -> (Rounding, Rounding) {
    match native {
        true => (Rounding::Fp8 { rotated: config.rope_dim }, Rounding::Fp4),
        false => (Rounding::None, Rounding::None),
    }
}

/// The compressor of a layer, if it has one.
fn sizes(model: &ModelConfig, config: &CompressedConfig, layer: usize) -> Option<CompressorSizes> {
    let (every, overlap) = (config.ratios[layer], config.indexed[layer]);
    (every > 0).then_some(CompressorSizes { every, dim: model.head_dim, overlap })
}

/// The matrices `[out_rank, heads of a group * dim]` of the groups `own`, which one tensor holds.
fn load_groups(
    loader: &mut Loader<'_>,
    name: &str,
    config: &CompressedConfig,
    own: &Range<usize>,
) -> Result<Vec<Matrix>, Error> {
    let ModelConfig { heads, head_dim, .. } = *loader.checkpoint.config();
    let CompressedConfig { groups, out_rank, .. } = *config;
    let (name, inputs) = (format!("{name}.weight"), heads / groups * head_dim);
    let view = loader.checkpoint.require(&name, &[groups * out_rank, inputs])?.clone();
    let matrix =
        |group| loader.part_of(&name, &view.rows(group * out_rank..(group + 1) * out_rank));
    own.clone().map(matrix).collect()
}

impl SparseAttention {
    /// Loads the tensors of a layer's attention: this rank's groups of heads; rows, compressors and
    /// index are whole on every rank. `ropes` are those of layers without and with compression.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &CompressedConfig,
        ropes: [Rope; 2],
    ) -> Result<Self, Error> {
        let model = loader.checkpoint.config();
        let ModelConfig { hidden_size: hidden, head_dim: dim, heads, rms_norm_eps: eps, .. } =
            *model;
        let scale = model.attention_scale;
        let CompressedConfig { q_rank, groups, out_rank, rope_dim, .. } = *config;
        let name = |part: &str| format!("blk.{layer}.attn_{part}");
        let Heads { queries: own, kv: own_groups } = Heads::of(loader.slice, heads, groups)?;
        if own.len() * groups != own_groups.len() * heads {
            return Err(Error::Config(format!(
                "{groups} output groups of heads cannot be divided among {} ranks",
                loader.slice.ranks()
            )));
        }
        let (fp8, fp4) = roundings(config, loader.native_rounding);
        let sizes = sizes(model, config, layer);
        let rope = ropes[usize::from(sizes.is_some())];
        let of = |range: &Range<usize>, each| range.start * each..range.end * each;
        let q_heads = Slice::Heads(of(&own, dim));
        let sinks = loader.vector(&name("sinks.weight"), &[heads], own.clone())?;
        let compressor = match sizes {
            Some(sizes) => {
                let first = (COMPRESSED, rope);
                Some(Compressor::load(loader, &name("compressor"), sizes, first)?)
            }
            None => None,
        };
        let indexer = match config.indexed[layer] {
            true => Some(Indexer::load(loader, layer, config, (INDEX, rope, fp4))?),
            false => None,
        };
        let matrices = load_groups(loader, &name("output_a"), config, &own_groups)?;
        let inputs = Slice::Inputs(of(&own_groups, out_rank));
        let widths = [q_rank, own.len(), dim, own_groups.len() * out_rank];
        Ok(Self {
            layer: layer - loader.layers.start,
            q_a: Linear::load(loader, &name("q_a"), q_rank, hidden, Slice::Whole)?,
            q_a_norm: Norm::load(loader, &name("q_a_norm"), q_rank, eps)?,
            q_b: Linear::load(loader, &name("q_b"), heads * dim, q_rank, q_heads)?,
            kv: Linear::load(loader, &name("kv"), dim, hidden, Slice::Whole)?,
            kv_norm: Norm::load(loader, &name("kv_a_norm"), dim, eps)?,
            q_norm: Norm::without_weight(loader, dim, eps),
            groups: matrices,
            out_rank,
            out: Linear::load(loader, &name("output_b"), hidden, groups * out_rank, inputs)?,
            rope,
            dim,
            rotated: rope_dim,
            rounding: fp8,
            spec: RowAttention {
                heads: own.len(),
                scale,
                sinks: Some(sinks),
                window: Some(WINDOW),
                compressed: compressor.as_ref().map(Compressor::rows),
                selection: None,
            },
            compressor,
            indexer,
            work: SparseBuffers::new(loader, widths)?,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; stores the rows of the batch first.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let (SparseBuffers { q_row, q, kv, mixed, low }, rows) = (self.work, pass.rows());
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
    }
}
