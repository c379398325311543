//! Multi-head latent attention (DeepSeek V2, 2024): keys and values of all heads are expanded from
//! one row of `kv_rank` values per position; heads share one rotated key.
//!
//! The cache holds these rows only, and heads attend to them directly: `k_b` projects a query into
//! the latent space, `v_b` expands its output to the head's values. Expanding keys and values
//! instead gives the same numbers up to rounding, so the form must not depend on how many rows are
//! computed together; see docs/decisions/0011-latent-attention-is-absorbed.md.

use super::grouped::{HeadGate, cached_layer};
use super::indexer::Indexer;
use super::learned_growth::LearnedGrowth;
use super::linear::{Linear, PartOf};
use super::norm::Norm;
use super::operation::{OpPlace, Operation};
use super::rope::Rotations;
use crate::error::Error;
use crate::loader::{ComputedMatrix, Loader};
use crate::pass::ForwardPass;
use crate::ranks::{Heads, Slice};
use backend::{
    AttentionSpec, Buffer, HeadColumns, LayerCache, Matrix, Mode, Rope, RowAttention, RowRuns,
    Selection, Window,
};
use dist::Split;
use formats::TensorView;
use formats::layers::LatentConfig;
use formats::layers::{Chooser, LatentSpec};
use kernels::quant::{BF16, F32};
use std::ops::Range;

/// Workspace shared by all layers, as wide as this rank's heads.
#[derive(Clone, Copy, Debug)]
struct LatentBuffers {
    /// `[rows, heads * (nope + rope)]`.
    q: Buffer,
    /// `[rows, kv_rank]`, before the norm.
    row: Buffer,
    /// `[rows, rope]`, where values are rotated or could be.
    key: Option<Buffer>,
    /// What is cached: `[rows, kv_rank + rope]`.
    latent: Buffer,
    /// `[rows, heads * (kv_rank + rope)]`.
    q_latent: Buffer,
    /// Outputs of the heads in the latent space: `[rows, heads * kv_rank]`, with the rotated values
    /// of rows besides where positions are chosen.
    seen: Buffer,
    /// `[rows, heads * value_dim]`.
    mixed: Buffer,
}

impl LatentBuffers {
    fn new(loader: &mut Loader<'_>, heads: usize, spec: &LatentSpec) -> Result<Self, Error> {
        let LatentConfig { kv_rank, nope_dim, rope_dim, value_dim, .. } = spec.sizes;
        Ok(Self {
            q: loader.shared("q", heads * (nope_dim + rope_dim))?,
            row: loader.shared("row", kv_rank)?,
            key: if rope_dim > 0 { Some(loader.shared("key", rope_dim)?) } else { None },
            latent: loader.shared("latent", kv_rank + rope_dim)?,
            q_latent: loader.shared("q_latent", heads * (kv_rank + rope_dim))?,
            seen: {
                let chosen = spec.chosen.is_some();
                loader.shared("seen", heads * (kv_rank + if chosen { rope_dim } else { 0 }))?
            },
            mixed: loader.shared("mixed", heads * value_dim)?,
        })
    }
}

/// The low-rank projection that queries may come from, with its buffers `[rows, q_rank]`.
#[derive(Clone, Copy, Debug)]
struct QueryRow {
    linear: Linear,
    norm: Norm,
    row: Buffer,
    normed: Buffer,
}

/// The projections to what a layer caches.
#[derive(Clone, Copy, Debug)]
struct LatentRow {
    /// From the input to the latent row, and to the key that is rotated.
    row: Linear,
    key: Option<Linear>,
    norm: Norm,
}

/// Rotary embeddings of a layer.
#[derive(Clone, Copy, Debug)]
struct LatentRope {
    rotated: Rotations,
    /// Growth of the other values of queries.
    plain: Option<Rope>,
    /// Growth of all values of queries.
    learned: Option<LearnedGrowth>,
}

#[derive(Debug)]
pub(crate) struct LatentAttention {
    /// Index of the layer in this rank's KV cache.
    layer: usize,
    /// The same of the layer whose latent rows are attended to.
    source: usize,
    /// From the input to the queries' row.
    q_a: Option<QueryRow>,
    /// From there, or from the input, to the queries.
    q: Linear,
    /// `None` where the rows are those of an earlier layer.
    own: Option<LatentRow>,
    /// `[kv_rank, nope]` of each head.
    k_b: Vec<Matrix>,
    /// `[value_dim, kv_rank]` of each head.
    v_b: Vec<Matrix>,
    out: Linear,
    /// What the outputs of heads are multiplied by.
    gate: Option<HeadGate>,
    rope: LatentRope,
    /// Consecutive positions that are chosen together.
    run: usize,
    /// The choice of positions, and the index that makes it in layers with one of their own.
    chosen: Option<(Selection, Option<Indexer>)>,
    sizes: LatentConfig,
    spec: AttentionSpec,
    work: LatentBuffers,
    cache: LayerCache,
}

impl LatentAttention {
    /// Loads `attn_q_a` with its norm and `attn_q_b`, or `attn_q`; `attn_kv_a_mqa` with its norm,
    /// where the layer has latent rows of its own; `attn_kv_b`, or `attn_k_b` and `attn_v_b`;
    /// `attn_output`; `attn_gate` where outputs are gated, `attn_sinks` where heads have sinks, and
    /// `attn_growth` where queries grow by learned numbers. Every rank has the latent rows of all,
    /// and its own heads.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, place: OpPlace, spec: &LatentSpec) -> Result<Self, Error> {
        let LatentConfig { value_dim, .. } = spec.sizes;
        let own = Heads::of(loader.slice, spec.heads, spec.heads)?.queries;
        let values = |each: usize| own.start * each..own.end * each;
        let (q_a, q) = Self::load_queries(loader, spec, Slice::Heads(values(spec.query_dim())))?;
        let row = match spec.keys.is_own() {
            true => Some(LatentRow::load(loader, spec)?),
            false => None,
        };
        let (k_b, v_b) = Self::load_expansion(loader, &own, spec.sizes)?;
        let inputs = Slice::Inputs(values(value_dim));
        let rope = LatentRope::load(loader, &own, spec)?;
        let chosen = Self::load_index(loader, place, spec)?;
        let sinks = match spec.sinks {
            true => Some(loader.vector_part("attn_sinks.weight", own.clone())?),
            false => None,
        };
        let positions = spec.window.unwrap_or(usize::MAX);
        let window = Window { positions, first: place.first, ..Window::ALL };
        Ok(Self {
            layer: place.of_rank(loader),
            source: cached_layer(loader, place.layer, spec.keys)?,
            q_a,
            q,
            own: row,
            k_b,
            v_b,
            out: Linear::load(loader, "attn_output", inputs)?,
            gate: match spec.gate {
                Some(gate) => Some(HeadGate::load_own(loader, gate, &own, value_dim)?),
                None => None,
            },
            rope,
            run: spec.chosen.as_ref().map_or(1, |chosen| chosen.run),
            chosen,
            sizes: spec.sizes,
            spec: AttentionSpec { heads: own.len(), scale: spec.scale, window, sinks },
            work: LatentBuffers::new(loader, own.len(), spec)?,
            cache: spec.cache(),
        })
    }

    /// The projections to the queries `part`, and to the row that they come from, if any.
    fn load_queries(
        loader: &mut Loader<'_>,
        spec: &LatentSpec,
        part: Slice,
    ) -> Result<(Option<QueryRow>, Linear), Error> {
        let Some(rank) = spec.sizes.q_rank else {
            return Ok((None, Linear::load(loader, "attn_q", part)?));
        };
        let row = QueryRow {
            linear: Linear::load(loader, "attn_q_a", Slice::Whole)?,
            norm: Norm::load(loader, "attn_q_a_norm", spec.eps)?,
            row: loader.shared("q_row", rank)?,
            normed: loader.shared("q_row_normed", rank)?,
        };
        Ok((Some(row), Linear::load(loader, "attn_q_b", part)?))
    }

    /// The choice of positions that a layer attends to, where the model has an index.
    fn load_index(
        loader: &mut Loader<'_>,
        place: OpPlace,
        spec: &LatentSpec,
    ) -> Result<Option<(Selection, Option<Indexer>)>, Error> {
        let Some(chosen) = &spec.chosen else { return Ok(None) };
        let selection = loader.selection(chosen.top / chosen.run)?;
        match &chosen.by {
            Chooser::Layer(of) if !loader.layers.contains(of) => {
                let layer = place.layer;
                let problem = format!("layer {layer} needs the positions that layer {of} chooses");
                Err(Error::Config(format!("{problem}, which is in another stage")))
            }
            Chooser::Layer(_) => Ok(Some((selection, None))),
            Chooser::Index(index) => {
                // After the latent rows of the layer.
                let place = OpPlace { rows: usize::from(spec.keys.is_own()), ..place };
                let place = (place, selection);
                let indexer = Indexer::over_positions(loader, index, place, spec.learned_growth)?;
                Ok(Some((selection, Some(indexer))))
            }
        }
    }

    /// The matrices that expand the latent row, for each head of this rank: one for keys,
    /// transposed, and one for values.
    fn load_expansion(
        loader: &mut Loader<'_>,
        own: &Range<usize>,
        sizes: LatentConfig,
    ) -> Result<(Vec<Matrix>, Vec<Matrix>), Error> {
        let LatentConfig { nope_dim, value_dim, .. } = sizes;
        const BOTH: &str = "attn_kv_b.weight";
        if !loader.has(BOTH) {
            let keys = loader.require("attn_k_b.weight")?;
            let values = loader.require("attn_v_b.weight")?;
            let mut all = |view: &TensorView| -> Result<Vec<_>, Error> {
                own.clone().map(|head| loader.matrix_of(&view.part(head))).collect()
            };
            return Ok((all(keys)?, all(values)?));
        }
        let each = nope_dim + value_dim;
        let both = loader.full_name(BOTH);
        let view = loader.converted(&both, loader.require(BOTH)?)?;
        let [k_b, v_b] = ["attn_k_b.weight", "attn_v_b.weight"].map(|name| loader.full_name(name));
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for first in own.clone().map(|head| head * each) {
            let key = view.rows(first..first + nope_dim).named(k_b.clone());
            let transposed = transposed(&key, loader.mode(&both))?;
            keys.push(loader.computed(&both, &key, transposed)?);
            let value = view.rows(first + nope_dim..first + each).named(v_b.clone());
            values.push(loader.part_of(&both, &value)?);
        }
        Ok((keys, values))
    }

    /// Stores the rows' own latents, and attends to those of all positions or of the chosen ones.
    /// Returns the outputs of the heads, `kv_rank` columns each.
    fn attend(&self, pass: &mut ForwardPass<'_>, x: Buffer) -> HeadColumns {
        let (LatentBuffers { q_latent, seen, .. }, layer) = (self.work, self.source);
        if self.own.is_some() {
            self.store(pass);
        }
        let Some((selection, indexer)) = &self.chosen else {
            pass.backend.attention(layer, q_latent, seen, &self.spec, pass.batch);
            return HeadColumns { buffer: seen, first: 0, stride: self.sizes.kv_rank };
        };
        if let Some(indexer) = indexer {
            let q_row = self.q_a.as_ref().map_or(x, |q_a| q_a.normed);
            indexer.forward(pass, self.layer, (x, q_row));
        }
        let spec = RowAttention {
            heads: self.spec.heads,
            scale: self.spec.scale,
            sinks: self.spec.sinks,
            window: None,
            compressed: Some(0),
            selection: Some(*selection),
            runs: RowRuns { len: self.run, own: false },
            first: self.spec.window.first,
        };
        // [rows, heads * (kv_rank + rope)]
        pass.backend.attend_rows(layer, q_latent, seen, &spec, pass.batch);
        let stride = self.sizes.kv_rank + self.sizes.rope_dim;
        HeadColumns { buffer: seen, first: 0, stride }
    }
}

impl LatentAttention {
    /// Completes the latent row, `[rows, kv_rank + rope]`, from what its projections gave.
    fn complete(&self, pass: &mut ForwardPass<'_>, own: &LatentRow) {
        let LatentConfig { kv_rank, rope_dim, .. } = self.sizes;
        let (work, rows) = (&self.work, pass.rows());
        let heads = |buffer, first, stride| HeadColumns { buffer, first, stride };
        let latent_key = heads(work.latent, kv_rank, kv_rank + rope_dim);
        own.norm.forward(pass, work.row, work.latent, rows);
        if let Some(key) = work.key {
            pass.backend.copy_heads(heads(key, 0, rope_dim), rope_dim, latent_key, rows);
        }
        if let Some(rope) = self.rope.rotated.keys {
            pass.backend.rotate(latent_key, rope, rows);
        }
    }

    /// Stores the latent rows of the layer.
    fn store(&self, pass: &mut ForwardPass<'_>) {
        let latent = self.work.latent;
        match &self.chosen {
            Some(_) => pass.backend.store_rows(self.source, 0, latent, pass.batch),
            None => pass.backend.store_kv(self.source, latent, None, pass.batch),
        }
    }
}

impl Operation for LatentAttention {
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
        let LatentConfig { kv_rank, nope_dim, rope_dim, value_dim, .. } = self.sizes;
        let (work, rows) = (&self.work, pass.rows());
        // q: [rows, heads * (nope + rope)]; row: [rows, kv_rank]; key: [rows, rope]
        let first = self.q_a.as_ref().map_or((&self.q, work.q), |q_a| (&q_a.linear, q_a.row));
        match &self.own {
            Some(own) => own.project(pass, x, Some(first), work),
            None => Linear::forward_each(pass, x, [first], rows),
        }
        if let Some(QueryRow { norm, row, normed, .. }) = self.q_a {
            norm.forward(pass, row, normed, rows);
            self.q.forward(pass, normed, work.q, rows);
        }
        let heads = |buffer, first, stride| HeadColumns { buffer, first, stride };
        let (query, latent) = (nope_dim + rope_dim, kv_rank + rope_dim);
        if let Some(own) = &self.own {
            self.complete(pass, own);
        }
        let rotated = heads(work.q, nope_dim, query);
        let all =
            [(self.rope.rotated.queries, rotated), (self.rope.plain, heads(work.q, 0, query))];
        for (rope, columns) in all {
            if let Some(rope) = rope {
                pass.backend.rotate(columns, rope, rows);
            }
        }
        if let Some(growth) = self.rope.learned {
            growth.apply(pass, work.q);
        }
        // [rows, heads, nope + rope] to [rows, heads, kv_rank + rope]
        let queries = heads(work.q_latent, 0, latent);
        pass.backend.linear_heads(heads(work.q, 0, query), &self.k_b, queries, rows);
        if rope_dim > 0 {
            let queries = heads(work.q_latent, kv_rank, latent);
            pass.backend.copy_heads(rotated, rope_dim, queries, rows);
        }
        let seen = self.attend(pass, x);
        // [rows, heads, kv_rank] to [rows, heads, value_dim]
        let values = heads(work.mixed, 0, value_dim);
        pass.backend.linear_heads(seen, &self.v_b, values, rows);
        let gated = match self.gate {
            Some(gate) => {
                gate.project(pass, x);
                gate.apply(pass, work.mixed)
            }
            None => work.mixed,
        };
        self.out.forward(pass, gated, out, rows);
        Ok(())
    }

    fn keep(&self, pass: &mut ForwardPass<'_>, x: Buffer, _: Buffer) -> Result<(), Error> {
        if let Some(own) = &self.own {
            own.project(pass, x, None, &self.work);
            self.complete(pass, own);
            self.store(pass);
        }
        if let Some((_, Some(indexer))) = &self.chosen {
            indexer.keep(pass, self.layer, x);
        }
        Ok(())
    }
}

impl LatentRow {
    /// Loads the projections to the latent row and to the key, if it has values, stored as one
    /// matrix, and the norm of the row.
    fn load(loader: &mut Loader<'_>, spec: &LatentSpec) -> Result<Self, Error> {
        let LatentConfig { kv_rank: first, rope_dim: second, .. } = spec.sizes;
        let mut part = |rows: Range<usize>, noted: bool| -> Result<Linear, Error> {
            let part = PartOf { name: "attn_kv_a_mqa", noted, factor: "attn_kv_a_mqa" };
            Ok(Linear { split: Split::Whole, ..Linear::part(loader, part, rows)? })
        };
        // Inputs of both are counted once, under the name of the first.
        let row = part(0..first, true)?;
        let key = (second > 0).then(|| part(first..first + second, false)).transpose()?;
        Ok(Self { row, key, norm: Norm::load(loader, "attn_kv_a_norm", spec.eps)? })
    }

    /// The latent row and the key of `x`, and `first`, another projection of it; `x` is rounded
    /// once.
    fn project(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        first: Option<(&Linear, Buffer)>,
        work: &LatentBuffers,
    ) {
        let (rows, row) = (pass.rows(), (&self.row, work.row));
        let key = self.key.as_ref().zip(work.key);
        match (first, key) {
            (Some(first), Some(key)) => Linear::forward_each(pass, x, [first, row, key], rows),
            (Some(first), None) => Linear::forward_each(pass, x, [first, row], rows),
            (None, Some(key)) => Linear::forward_each(pass, x, [row, key], rows),
            (None, None) => Linear::forward_each(pass, x, [row], rows),
        }
    }
}

impl LatentRope {
    /// The rotations of a layer, and the growth of the heads `own`.
    fn load(loader: &mut Loader<'_>, own: &Range<usize>, spec: &LatentSpec) -> Result<Self, Error> {
        let LatentConfig { nope_dim, rope_dim, .. } = spec.sizes;
        let rotated = Rotations::load(loader, spec.rotation.as_deref(), spec.growth, rope_dim)?;
        let plain = spec.growth.map(|growth| loader.growth(nope_dim, growth)).transpose()?;
        let learned = match spec.learned_growth {
            true => Some(LearnedGrowth::load(loader, "attn_growth", own.clone())?),
            false => None,
        };
        Ok(Self { rotated, plain, learned })
    }
}

/// The transpose of a matrix. Single values keep their type; quantised ones become f32 in `exact`
/// mode and BF16 in `fast` mode, which rounds them anyway.
fn transposed(view: &TensorView, mode: Mode) -> Result<ComputedMatrix, Error> {
    let [rows, cols] = view.shape[..] else { panic!("a matrix") };
    let (ty, bytes) = match view.ty.block_len {
        1 => (view.ty, view.bytes().read(0..view.bytes().len()).into_owned()),
        _ => {
            let ty = if mode == Mode::Exact { &F32 } else { &BF16 };
            let values = view.to_f32()?;
            let mut bytes = vec![0; values.len() * ty.block_bytes];
            ty.quantize.expect("floats can be written")(&values, None, &mut bytes);
            (ty, bytes)
        }
    };
    let size = ty.block_bytes;
    let mut out = vec![0; bytes.len()];
    for (index, value) in bytes.chunks_exact(size).enumerate() {
        let (row, col) = (index / cols, index % cols);
        out[(col * rows + row) * size..][..size].copy_from_slice(value);
    }
    Ok(ComputedMatrix { ty, rows: cols, cols: rows, bytes: out })
}
