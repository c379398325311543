//! Multi-head latent attention (DeepSeek V2, 2024): keys and values of all heads are expanded from
//! one row of `kv_rank` values per position; heads share one rotated key.
//!
//! The cache holds these rows only, and heads attend to them directly: `k_b` projects a query into
//! the latent space, `v_b` expands its output to the head's values. Expanding keys and values
//! instead gives the same numbers up to rounding, so the form must not depend on how many rows are
//! computed together; see docs/decisions/0011-latent-attention-is-absorbed.md.

use super::attention::window_of;
use super::indexer::Indexer;
use super::{ForwardPass, LayerRope, Linear, Norm};
use crate::Error;
use crate::loader::{ComputedMatrix, Loader};
use crate::ranks::Slice;
use backend::{AttentionSpec, Buffer, HeadColumns, Matrix, Mode, Rope, RowAttention, Selection};
use dist::Split;
use formats::config::LatentConfig;
use formats::{ModelConfig, TensorView};
use kernels::quant::{BF16, F32};
use std::ops::Range;

/// Epsilon of the norms within attention: a constant of the reference, not of the configuration.
const EPS: f32 = 1e-6;

/// Workspace shared by all layers, as wide as this rank's heads.
#[derive(Clone, Copy, Debug)]
struct LatentBuffers {
    /// `[rows, heads * (nope + rope)]`.
    q: Buffer,
    /// `[rows, kv_rank]`, before the norm.
    row: Buffer,
    /// `[rows, rope]`.
    key: Buffer,
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
    fn new(loader: &mut Loader<'_>, heads: usize, sizes: LatentConfig) -> Result<Self, Error> {
        let LatentConfig { kv_rank, nope_dim, rope_dim, value_dim, .. } = sizes;
        Ok(Self {
            q: loader.shared("q", heads * (nope_dim + rope_dim))?,
            row: loader.shared("row", kv_rank)?,
            key: loader.shared("key", rope_dim)?,
            latent: loader.shared("latent", kv_rank + rope_dim)?,
            q_latent: loader.shared("q_latent", heads * (kv_rank + rope_dim))?,
            seen: {
                let chosen = loader.checkpoint.config().index.is_some();
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

/// Rotary embeddings of a layer.
#[derive(Clone, Copy, Debug)]
struct LatentRope {
    /// Rotations of queries and of keys, where they are rotated.
    rotated: [Option<Rope>; 2],
    /// Growth of the other values of queries.
    plain: Option<Rope>,
}

/// Which rows of a layer are those of the index's keys.
const INDEX: usize = 1;

#[derive(Debug)]
pub(crate) struct LatentAttention {
    /// Index of the layer in this rank's KV cache.
    layer: usize,
    /// From the input to the queries' row.
    q_a: Option<QueryRow>,
    /// From there, or from the input, to the queries.
    q: Linear,
    /// From the input to the latent row, and to the key that is rotated.
    row: Linear,
    key: Linear,
    norm: Norm,
    /// `[kv_rank, nope]` of each head.
    k_b: Vec<Matrix>,
    /// `[value_dim, kv_rank]` of each head.
    v_b: Vec<Matrix>,
    pub out: Linear,
    rope: LatentRope,
    /// The choice of positions, and the index that makes it in layers with one of their own.
    chosen: Option<(Selection, Option<Indexer>)>,
    sizes: LatentConfig,
    spec: AttentionSpec,
    work: LatentBuffers,
}

impl LatentAttention {
    /// Loads `attn_q_a` with its norm and `attn_q_b`, or `attn_q`; `attn_kv_a_mqa` with its norm;
    /// `attn_kv_b`, or `attn_k_b` and `attn_v_b`; `attn_output`. Every rank has the latent rows of
    /// all, and its own heads. `ropes` are those of attention and of an index.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        ropes: &[LayerRope],
        sizes: LatentConfig,
    ) -> Result<Self, Error> {
        let ModelConfig { hidden_size, heads, attention_scale, .. } = *loader.checkpoint.config();
        let window = window_of(loader.checkpoint.config(), layer);
        let LatentConfig { q_rank, kv_rank, nope_dim, rope_dim, value_dim } = sizes;
        let name = |part: &str| format!("blk.{layer}.attn_{part}");
        let own = loader.heads_of(layer)?.queries;
        let values = |each: usize| own.start * each..own.end * each;
        let (each, queries) = (nope_dim + rope_dim, heads * (nope_dim + rope_dim));
        let (q_a, q) = match q_rank {
            Some(rank) => {
                let row = QueryRow {
                    linear: Linear::load(loader, &name("q_a"), rank, hidden_size, Slice::Whole)?,
                    norm: Norm::load(loader, &name("q_a_norm"), rank, EPS)?,
                    row: loader.shared("q_row", rank)?,
                    normed: loader.shared("q_row_normed", rank)?,
                };
                let heads = Slice::Heads(values(each));
                (Some(row), Linear::load(loader, &name("q_b"), queries, rank, heads)?)
            }
            None => {
                let heads = Slice::Heads(values(each));
                (None, Linear::load(loader, &name("q"), queries, hidden_size, heads)?)
            }
        };
        let [row, key] = Self::load_row(loader, &name("kv_a_mqa"), [kv_rank, rope_dim])?;
        let (k_b, v_b) = Self::load_expansion(loader, layer, heads, &own, sizes)?;
        let inputs = Slice::Inputs(values(value_dim));
        let rope = LatentRope {
            rotated: ropes[0].of_layer(loader.checkpoint.config().unrotated[layer]),
            plain: ropes[0].unrotated,
        };
        let chosen = Self::load_index(loader, layer, ropes, sizes)?;
        Ok(Self {
            layer: layer - loader.layers.start,
            q_a,
            q,
            row,
            key,
            norm: Norm::load(loader, &name("kv_a_norm"), kv_rank, EPS)?,
            k_b,
            v_b,
            out: Linear::load(loader, &name("output"), hidden_size, heads * value_dim, inputs)?,
            rope,
            chosen,
            sizes,
            spec: AttentionSpec { heads: own.len(), scale: attention_scale, window, sinks: None },
            work: LatentBuffers::new(loader, own.len(), sizes)?,
        })
    }

    /// The choice of positions that a layer attends to, where the model has an index.
    fn load_index(
        loader: &mut Loader<'_>,
        layer: usize,
        ropes: &[LayerRope],
        sizes: LatentConfig,
    ) -> Result<Option<(Selection, Option<Indexer>)>, Error> {
        let config = loader.checkpoint.config();
        let Some(index) = &config.index else { return Ok(None) };
        if config.index_of(layer).is_none() {
            let of = (0..layer).rev().find(|before| index.layers[*before]).unwrap_or(layer);
            if !loader.layers.contains(&of) {
                let problem = format!("layer {layer} needs the positions that layer {of} chooses");
                return Err(Error::Config(format!("{problem}, which is in another stage")));
            }
            return Ok(Some((loader.selection(index.top)?, None)));
        }
        let q_rank = sizes.q_rank.unwrap_or(config.hidden_size);
        let rope = (q_rank, INDEX, ropes[1].keys);
        let indexer = Indexer::over_positions(loader, layer, index, rope)?;
        Ok(Some((indexer.selection(), Some(indexer))))
    }

    /// Loads the projections to the latent row and to the key, stored as one matrix.
    fn load_row(
        loader: &mut Loader<'_>,
        name: &str,
        [first, second]: [usize; 2],
    ) -> Result<[Linear; 2], Error> {
        let (all, tensor) = (first + second, format!("{name}.weight"));
        let mut part = |rows: Range<usize>, noted: &str| -> Result<Linear, Error> {
            let part = Linear::part(loader, (&tensor, noted, ""), all, rows)?;
            Ok(Linear { split: Split::Whole, ..part })
        };
        // Inputs of both are counted once, under the name of the first.
        Ok([part(0..first, &tensor)?, part(first..all, "")?])
    }

    /// The matrices that expand the latent row, for each head of this rank: one for keys,
    /// transposed, and one for values.
    fn load_expansion(
        loader: &mut Loader<'_>,
        layer: usize,
        heads: usize,
        own: &Range<usize>,
        sizes: LatentConfig,
    ) -> Result<(Vec<Matrix>, Vec<Matrix>), Error> {
        let LatentConfig { kv_rank, nope_dim, value_dim, .. } = sizes;
        let name = |part: &str| format!("blk.{layer}.attn_{part}.weight");
        if loader.checkpoint.tensor(&name("kv_b")).is_none() {
            let keys = loader.checkpoint.require(&name("k_b"), &[heads, kv_rank, nope_dim])?;
            let values = loader.checkpoint.require(&name("v_b"), &[heads, value_dim, kv_rank])?;
            let mut all = |view: &TensorView| -> Result<Vec<_>, Error> {
                own.clone().map(|head| loader.matrix_of(&view.part(head))).collect()
            };
            return Ok((all(keys)?, all(values)?));
        }
        let each = nope_dim + value_dim;
        let both = name("kv_b");
        let view = loader.checkpoint.require(&both, &[heads * each, kv_rank])?;
        let view = loader.converted(&both, view)?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for first in own.clone().map(|head| head * each) {
            let key = view.rows(first..first + nope_dim).named(name("k_b"));
            let turned = turned(&key, loader.mode(&both))?;
            keys.push(loader.computed(&both, &key, turned)?);
            let value = view.rows(first + nope_dim..first + each).named(name("v_b"));
            values.push(loader.part_of(&both, &value)?);
        }
        Ok((keys, values))
    }

    /// `[rows, hidden]` to `[rows, hidden]`; stores the rows' latents first.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let LatentConfig { kv_rank, nope_dim, rope_dim, value_dim, .. } = self.sizes;
        let (work, rows) = (&self.work, pass.rows());
        // q: [rows, heads * (nope + rope)]; row: [rows, kv_rank]; key: [rows, rope]
        let first = self.q_a.as_ref().map_or((&self.q, work.q), |q_a| (&q_a.linear, q_a.row));
        let outputs = [first, (&self.row, work.row), (&self.key, work.key)];
        Linear::forward_each(pass, x, outputs, rows);
        if let Some(QueryRow { norm, row, normed, .. }) = self.q_a {
            norm.forward(pass, row, normed, rows);
            self.q.forward(pass, normed, work.q, rows);
        }
        let heads = |buffer, first, stride| HeadColumns { buffer, first, stride };
        let (query, latent) = (nope_dim + rope_dim, kv_rank + rope_dim);
        // [rows, kv_rank + rope]
        self.norm.forward(pass, work.row, work.latent, rows);
        let (key, latent_key) = (heads(work.key, 0, rope_dim), heads(work.latent, kv_rank, latent));
        pass.backend.copy_heads(key, rope_dim, latent_key, rows);
        let rotated = heads(work.q, nope_dim, query);
        let turned = self.rope.rotated.into_iter().zip([rotated, latent_key]);
        for (rope, columns) in turned.chain([(self.rope.plain, heads(work.q, 0, query))]) {
            if let Some(rope) = rope {
                pass.backend.rotate(columns, rope, rows);
            }
        }
        // [rows, heads, nope + rope] to [rows, heads, kv_rank + rope]
        let queries = heads(work.q_latent, 0, latent);
        pass.backend.linear_heads(heads(work.q, 0, query), &self.k_b, queries, rows);
        let queries = heads(work.q_latent, kv_rank, latent);
        pass.backend.copy_heads(rotated, rope_dim, queries, rows);
        let seen = self.attend(pass, x);
        // [rows, heads, kv_rank] to [rows, heads, value_dim]
        let values = heads(work.mixed, 0, value_dim);
        pass.backend.linear_heads(seen, &self.v_b, values, rows);
        self.out.forward(pass, work.mixed, out, rows);
    }

    /// Stores the rows' latents, and attends to those of all positions or of the chosen ones.
    /// Returns the outputs of the heads, `kv_rank` columns each.
    fn attend(&self, pass: &mut ForwardPass<'_>, x: Buffer) -> HeadColumns {
        let (LatentBuffers { latent, q_latent, seen, .. }, layer) = (self.work, self.layer);
        let Some((selection, indexer)) = &self.chosen else {
            pass.backend.store_kv(layer, latent, None, pass.batch);
            pass.backend.attention(layer, q_latent, seen, &self.spec, pass.batch);
            return HeadColumns { buffer: seen, first: 0, stride: self.sizes.kv_rank };
        };
        pass.backend.store_rows(layer, 0, latent, pass.batch);
        if let Some(indexer) = indexer {
            let q_row = self.q_a.as_ref().map_or(x, |q_a| q_a.normed);
            indexer.forward(pass, layer, (x, q_row));
        }
        let spec = RowAttention {
            heads: self.spec.heads,
            scale: self.spec.scale,
            sinks: None,
            window: None,
            compressed: Some(0),
            selection: Some(*selection),
        };
        // [rows, heads * (kv_rank + rope)]
        pass.backend.attend_rows(layer, q_latent, seen, &spec, pass.batch);
        let stride = self.sizes.kv_rank + self.sizes.rope_dim;
        HeadColumns { buffer: seen, first: 0, stride }
    }
}

/// The transpose of a matrix. Single values keep their type; quantised ones become f32 in `exact`
/// mode and BF16 in `fast` mode, which rounds them anyway.
fn turned(view: &TensorView, mode: Mode) -> Result<ComputedMatrix, Error> {
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
