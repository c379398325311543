//! Grouped-query attention with rotary positions, and optional norms of queries, keys and values,
//! sliding window and sinks. A layer may attend to the keys and values of an earlier one.

use super::{ForwardPass, LayerRope, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{AttentionSpec, Buffer, Gate, HeadColumns, Rope, Window};
use formats::ModelConfig;
use formats::config::{GroupedConfig, ValueSource};
use std::ops::Range;

/// Workspace shared by all layers, as wide as this rank's heads.
#[derive(Clone, Copy, Debug)]
struct AttentionBuffers {
    /// `[rows, heads * head_dim]`.
    q: Buffer,
    /// `[rows, kv_heads * head_dim]`, as `v`.
    k: Buffer,
    v: Buffer,
    /// Outputs of the heads: `[rows, heads * head_dim]`.
    mixed: Buffer,
}

impl AttentionBuffers {
    fn new(loader: &mut Loader<'_>, heads: &Heads, head_dim: usize) -> Result<Self, Error> {
        let (q, kv) = (heads.queries.len() * head_dim, heads.kv.len() * head_dim);
        Ok(Self {
            q: loader.shared("q", q)?,
            k: loader.shared("k", kv)?,
            v: loader.shared("v", kv)?,
            mixed: loader.shared("mixed", q)?,
        })
    }
}

/// A projection, and a norm of each head of what it gives, with its buffer.
#[derive(Clone, Copy, Debug)]
struct Projected {
    linear: Linear,
    norm: Option<(Norm, Buffer)>,
}

/// Keys and values of a layer that has its own.
#[derive(Clone, Copy, Debug)]
struct KeysAndValues {
    k: Projected,
    /// `None` where values are what keys are before their norm.
    v: Option<Linear>,
    v_norm: Option<(Norm, Buffer)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    /// Index in this rank's KV cache of the layer whose keys and values are attended to.
    layer: usize,
    q: Projected,
    /// `None` where the keys and values are those of an earlier layer.
    kv: Option<KeysAndValues>,
    pub out: Linear,
    /// Where the outputs of heads are gated: queries with their gates, `[rows, heads * 2 *
    /// head_dim]`, and the gates, `[rows, heads * head_dim]`.
    gate: Option<[Buffer; 2]>,
    /// Rotations of queries and of keys, where they are rotated.
    ropes: [Option<Rope>; 2],
    /// Whether norms follow the rotation.
    norms_last: bool,
    head_dim: usize,
    spec: AttentionSpec,
    work: AttentionBuffers,
}

impl Attention {
    /// Loads `attn_q`, `attn_k`, `attn_v` and `attn_output` of a layer, with norms of heads
    /// `attn_q_norm` and `attn_k_norm`, with sinks `attn_sinks`: all of this rank's heads.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        rope: LayerRope,
        options: GroupedConfig,
    ) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let ModelConfig { hidden_size: hidden, heads, attention_scale: scale, .. } = *config;
        let (head_dim, window) = (config.head_dim_of(layer), window_of(config, layer));
        let prefix = format!("blk.{layer}");
        let own = loader.heads_of(layer)?;
        let sinks = match options.sinks {
            true => {
                let name = format!("{prefix}.attn_sinks.weight");
                Some(loader.vector(&name, &[heads], own.queries.clone())?)
            }
            false => None,
        };
        let work = AttentionBuffers::new(loader, &own, head_dim)?;
        let values = |heads: &Range<usize>| heads.start * head_dim..heads.end * head_dim;
        let (parts, rows) = match options.gate {
            true => (2 * own.queries.start..2 * own.queries.end, 2 * heads),
            false => (own.queries.clone(), heads),
        };
        let name = format!("{prefix}.attn_q");
        let part = Slice::Heads(values(&parts));
        let linear = Linear::load(loader, &name, rows * head_dim, hidden, part)?;
        let q_norm = head_norm(loader, layer, ("q", "q_normed"), own.queries.len())?;
        let gated = own.queries.len() * head_dim;
        let gate = match options.gate {
            true => Some([loader.shared("q_gate", 2 * gated)?, loader.shared("gate_q", gated)?]),
            false => None,
        };
        let (of, ropes) = (config.kv_layer(layer), rope.of_layer(config.unrotated[layer]));
        let kv = match of == layer {
            true => Some(KeysAndValues::load(loader, layer, options, &own.kv)?),
            false => None,
        };
        // One layer of an encoder is computed after another, in the same place.
        let of = if config.encoder.is_some() { 0 } else { of };
        let layer = of.checked_sub(loader.layers.start).ok_or_else(|| {
            let problem = format!("layer {layer} needs keys and values of layer {of}");
            Error::Config(format!("{problem}, which is in another stage"))
        })?;
        let (out, inputs) = (format!("{prefix}.attn_output"), Slice::Inputs(values(&own.queries)));
        Ok(Self {
            layer,
            q: Projected { linear, norm: q_norm },
            kv,
            out: Linear::load(loader, &out, hidden, heads * head_dim, inputs)?,
            gate,
            ropes,
            norms_last: options.norms_last,
            head_dim,
            spec: AttentionSpec { heads: own.queries.len(), scale, window, sinks },
            work,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; stores the rows' keys and values first.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let AttentionBuffers { mut q, mixed, .. } = self.work;
        let (rows, dim) = (pass.rows(), self.head_dim);
        let heads = |buffer| HeadColumns { buffer, first: 0, stride: dim };
        // q: [rows, heads * head_dim]
        let projected = self.gate.map_or(q, |[both, _]| both);
        let queries = (&self.q.linear, projected);
        match &self.kv {
            Some(kv) => kv.project(pass, x, queries, self.work),
            None => Linear::forward_each(pass, x, [queries], rows),
        }
        if let Some([both, gate]) = self.gate {
            let part = |first| HeadColumns { buffer: both, first, stride: 2 * dim };
            pass.backend.copy_heads(part(0), dim, heads(q), rows);
            pass.backend.copy_heads(part(dim), dim, heads(gate), rows);
        }
        q = self.turn(pass, q, self.q.norm, self.ropes[0]);
        if let Some(kv) = &self.kv {
            let v = kv.values(pass, self.work);
            let k = self.turn(pass, self.work.k, kv.k.norm, self.ropes[1]);
            pass.backend.store_kv(self.layer, k, Some(v), pass.batch);
        }
        // mixed: [rows, heads * head_dim]
        pass.backend.attention(self.layer, q, mixed, &self.spec, pass.batch);
        let gated = self.gate.map_or(mixed, |[_, gate]| {
            pass.backend.apply_gate(Gate::Sigmoid, gate, mixed, rows);
            gate
        });
        self.out.forward(pass, gated, out, rows);
    }

    /// Queries or keys after their norm and rotation.
    fn turn(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        norm: Option<(Norm, Buffer)>,
        rope: Option<Rope>,
    ) -> Buffer {
        let rotate = |pass: &mut ForwardPass<'_>, buffer| {
            if let Some(rope) = rope {
                let heads = HeadColumns { buffer, first: 0, stride: self.head_dim };
                pass.backend.rotate(heads, rope, pass.batch.rows());
            }
        };
        if self.norms_last {
            rotate(pass, x);
            return normalised(pass, x, norm);
        }
        let x = normalised(pass, x, norm);
        rotate(pass, x);
        x
    }
}

/// `x`, or what a norm makes of it.
fn normalised(pass: &mut ForwardPass<'_>, x: Buffer, norm: Option<(Norm, Buffer)>) -> Buffer {
    norm.map_or(x, |(norm, normed)| norm.forward(pass, x, normed, pass.batch.rows()))
}

impl KeysAndValues {
    /// Loads those of a layer, for the KV heads `own`.
    fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        options: GroupedConfig,
        own: &Range<usize>,
    ) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (dim, eps) = (config.head_dim_of(layer), config.rms_norm_eps);
        let (heads, hidden) = (config.kv_heads_of(layer), config.hidden_size);
        let takes_keys = config.takes_keys_as_values(layer);
        let mut load = |part: &str| {
            let name = format!("blk.{layer}.attn_{part}");
            let values = Slice::Heads(own.start * dim..own.end * dim);
            Linear::load(loader, &name, heads * dim, hidden, values)
        };
        let linear = load("k")?;
        let v = if takes_keys { None } else { Some(load("v")?) };
        let norm = head_norm(loader, layer, ("k", "k_normed"), own.len())?;
        let v_norm = match options.values {
            ValueSource::Projected => None,
            ValueSource::Normed | ValueSource::NormedKeys => {
                let norm = Norm::without_weight(loader, dim, eps);
                Some((norm, loader.shared("v_normed", own.len() * dim)?))
            }
        };
        Ok(Self { k: Projected { linear, norm }, v, v_norm })
    }

    /// Queries, keys and values of `x`, which is rounded once.
    fn project(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        queries: (&Linear, Buffer),
        AttentionBuffers { k, v, .. }: AttentionBuffers,
    ) {
        let (rows, keys) = (pass.rows(), (&self.k.linear, k));
        match &self.v {
            Some(values) => Linear::forward_each(pass, x, [queries, keys, (values, v)], rows),
            None => Linear::forward_each(pass, x, [queries, keys], rows),
        }
    }

    /// Values, `[rows, kv_heads * head_dim]`, before keys are changed.
    fn values(&self, pass: &mut ForwardPass<'_>, work: AttentionBuffers) -> Buffer {
        let projected = if self.v.is_some() { work.v } else { work.k };
        normalised(pass, projected, self.v_norm)
    }
}

/// The positions that queries of a layer attend to.
pub(super) fn window_of(config: &ModelConfig, layer: usize) -> Window {
    let positions = config.windows[layer].unwrap_or(usize::MAX);
    let ahead = match config.encoder {
        Some(_) if positions == usize::MAX => usize::MAX,
        Some(_) => positions - 1,
        None => 0,
    };
    Window { positions, is_chunk: config.chunked && positions != usize::MAX, ahead }
}

/// Loads the norm of each of `heads` heads of queries or of keys, or of all together, with a buffer
/// for what it gives, where the layer has one.
fn head_norm(
    loader: &mut Loader<'_>,
    layer: usize,
    (part, buffer): (&str, &'static str),
    heads: usize,
) -> Result<Option<(Norm, Buffer)>, Error> {
    let config = loader.checkpoint.config();
    let (dim, eps) = (config.head_dim_of(layer), config.rms_norm_eps);
    let options = config.grouped().copied().unwrap_or_default();
    if options.bare_norms && !config.unrotated[layer] {
        let norm = Norm::without_weight(loader, dim, eps);
        return Ok(Some((norm, loader.shared(buffer, heads * dim)?)));
    }
    if !options.head_norms {
        return Ok(None);
    }
    let whole = options.whole_norms;
    if whole && loader.slice.ranks() > 1 {
        let problem = "norms over all heads cannot be divided among ranks";
        return Err(Error::Config(problem.to_owned()));
    }
    let width = if whole { heads * dim } else { dim };
    let norm = Norm::load(loader, &format!("blk.{layer}.attn_{part}_norm"), width, eps)?;
    Ok(Some((norm, loader.shared(buffer, heads * dim)?)))
}
