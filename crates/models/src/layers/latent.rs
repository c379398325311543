//! Multi-head latent attention (DeepSeek V2, 2024): keys and values of all heads are expanded from
//! one row of `kv_rank` values per position; heads share one rotated key.
//!
//! The cache holds these rows only, and heads attend to them directly: `k_b` projects a query into
//! the latent space, `v_b` expands its output to the head's values. Expanding keys and values
//! instead gives the same numbers up to rounding, so the form must not depend on how many rows are
//! computed together; see docs/decisions/0011-latent-attention-is-absorbed.md.

use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::{ComputedMatrix, Loader};
use crate::ranks::Slice;
use backend::{AttentionSpec, Buffer, HeadColumns, Matrix, Mode, Rope};
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
    /// Outputs of the heads in the latent space: `[rows, heads * kv_rank]`.
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
            seen: loader.shared("seen", heads * kv_rank)?,
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
    rope: Rope,
    sizes: LatentConfig,
    spec: AttentionSpec,
    work: LatentBuffers,
}

impl LatentAttention {
    /// Loads `attn_q_a` with its norm and `attn_q_b`, or `attn_q`; `attn_kv_a_mqa` with its norm;
    /// `attn_kv_b`, or `attn_k_b` and `attn_v_b`; `attn_output`. Every rank has the latent rows of
    /// all, and its own heads.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        rope: Rope,
        sizes: LatentConfig,
    ) -> Result<Self, Error> {
        let ModelConfig { hidden_size, heads, attention_scale, .. } = *loader.checkpoint.config();
        let window = loader.checkpoint.config().windows[layer];
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
            sizes,
            spec: AttentionSpec { heads: own.len(), scale: attention_scale, window, sinks: None },
            work: LatentBuffers::new(loader, own.len(), sizes)?,
        })
    }

    /// Loads the projections to the latent row and to the key, stored as one matrix.
    fn load_row(
        loader: &mut Loader<'_>,
        name: &str,
        [first, second]: [usize; 2],
    ) -> Result<[Linear; 2], Error> {
        let (all, hidden) = (first + second, loader.checkpoint.config().hidden_size);
        let view = loader.checkpoint.require(&format!("{name}.weight"), &[all, hidden])?.clone();
        let bias = match loader.checkpoint.tensor(&format!("{name}.bias")) {
            Some(_) => loader.checkpoint.require(&format!("{name}.bias"), &[all])?.to_f32()?,
            None => Vec::new(),
        };
        let mut part = |rows: std::ops::Range<usize>| -> Result<Linear, Error> {
            let bias = bias.get(rows.clone()).map(|bias| loader.backend.vector(bias.to_vec()));
            // Inputs of both are counted once, under the name of the first.
            let name = if rows.start == 0 { view.name.clone() } else { String::new() };
            let weight = loader.part_of(&view.name, &view.rows(rows).named(name))?;
            Ok(Linear { weight, bias, split: Split::Whole })
        };
        Ok([part(0..first)?, part(first..all)?])
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
        pass.backend.rotate(latent_key, self.rope, rows);
        pass.backend.store_kv(self.layer, work.latent, None, pass.batch);
        // [rows, heads, nope + rope] to [rows, heads, kv_rank + rope]
        let rotated = heads(work.q, nope_dim, query);
        pass.backend.rotate(rotated, self.rope, rows);
        let queries = heads(work.q_latent, 0, latent);
        pass.backend.linear_heads(heads(work.q, 0, query), &self.k_b, queries, rows);
        let queries = heads(work.q_latent, kv_rank, latent);
        pass.backend.copy_heads(rotated, rope_dim, queries, rows);
        pass.backend.attention(self.layer, work.q_latent, work.seen, &self.spec, pass.batch);
        // [rows, heads, kv_rank] to [rows, heads, value_dim]
        let values = heads(work.mixed, 0, value_dim);
        pass.backend.linear_heads(heads(work.seen, 0, kv_rank), &self.v_b, values, rows);
        self.out.forward(pass, work.mixed, out, rows);
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
