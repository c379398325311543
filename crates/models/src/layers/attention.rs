//! Grouped-query attention with rotary positions, and optional norms of queries and keys, sliding
//! window and sinks.

use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{AttentionSpec, Buffer, Gate, HeadColumns, Rope};
use formats::ModelConfig;
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    /// Index of the layer in this rank's KV cache.
    layer: usize,
    q: Linear,
    k: Linear,
    v: Linear,
    pub out: Linear,
    /// Norms of each head of queries and of keys, with buffers for what they give.
    norms: Option<[(Norm, Buffer); 2]>,
    /// Where the outputs of heads are gated: queries with their gates, `[rows, heads * 2 *
    /// head_dim]`, and the gates, `[rows, heads * head_dim]`.
    gate: Option<[Buffer; 2]>,
    rope: Rope,
    head_dim: usize,
    spec: AttentionSpec,
    work: AttentionBuffers,
}

/// Variants of grouped attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionOptions {
    /// Whether heads of queries and keys have norms.
    pub head_norms: bool,
    /// Whether query heads have sinks.
    pub sinks: bool,
    /// Whether the projection of queries gives each head a gate of its outputs, after its query.
    pub gate: bool,
}

impl Attention {
    /// Loads `attn_q`, `attn_k`, `attn_v` and `attn_output` of a layer, with `head_norms`
    /// `attn_q_norm` and `attn_k_norm`, with `sinks` `attn_sinks`: all of this rank's heads.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        rope: Rope,
        AttentionOptions { head_norms, sinks, gate }: AttentionOptions,
    ) -> Result<Self, Error> {
        let ModelConfig { hidden_size, heads, kv_heads, head_dim, rms_norm_eps, .. } =
            *loader.checkpoint.config();
        let scale = loader.checkpoint.config().attention_scale;
        let window = loader.checkpoint.config().windows[layer];
        let prefix = format!("blk.{layer}");
        let own = loader.heads()?;
        let sinks = match sinks {
            true => {
                let name = format!("{prefix}.attn_sinks.weight");
                Some(loader.vector(&name, &[heads], own.queries.clone())?)
            }
            false => None,
        };
        let mut norm = |part: &str, buffer: &'static str, heads: &Range<usize>| {
            let norm =
                Norm::load(loader, &format!("{prefix}.attn_{part}_norm"), head_dim, rms_norm_eps)?;
            Ok::<_, Error>((norm, loader.shared(buffer, heads.len() * head_dim)?))
        };
        let norms = match head_norms {
            true => Some([norm("q", "q_normed", &own.queries)?, norm("k", "k_normed", &own.kv)?]),
            false => None,
        };
        let work = AttentionBuffers::new(loader, &own, head_dim)?;
        let values = |heads: &Range<usize>| heads.start * head_dim..heads.end * head_dim;
        let mut inner = |part: &str, heads: usize, own: &Range<usize>| {
            let name = format!("{prefix}.attn_{part}");
            Linear::load(loader, &name, heads * head_dim, hidden_size, Slice::Heads(values(own)))
        };
        let q = match gate {
            true => inner("q", 2 * heads, &(2 * own.queries.start..2 * own.queries.end))?,
            false => inner("q", heads, &own.queries)?,
        };
        let (k, v) = (inner("k", kv_heads, &own.kv)?, inner("v", kv_heads, &own.kv)?);
        let (out, inputs) = (format!("{prefix}.attn_output"), Slice::Inputs(values(&own.queries)));
        let gated = own.queries.len() * head_dim;
        Ok(Self {
            layer: layer - loader.layers.start,
            gate: match gate {
                true => {
                    Some([loader.shared("q_gate", 2 * gated)?, loader.shared("gate_q", gated)?])
                }
                false => None,
            },
            q,
            k,
            v,
            out: Linear::load(loader, &out, hidden_size, heads * head_dim, inputs)?,
            norms,
            rope,
            head_dim,
            spec: AttentionSpec { heads: own.queries.len(), scale, window, sinks },
            work,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; stores the rows' keys and values first.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let AttentionBuffers { mut q, mut k, v, mixed } = self.work;
        let rows = pass.rows();
        // q: [rows, heads * head_dim]; k, v: [rows, kv_heads * head_dim]
        let projected = self.gate.map_or(q, |[both, _]| both);
        Linear::forward_each(pass, x, [(&self.q, projected), (&self.k, k), (&self.v, v)], rows);
        let (heads, dim) =
            (|buffer| HeadColumns { buffer, first: 0, stride: self.head_dim }, self.head_dim);
        if let Some([both, gate]) = self.gate {
            let part = |first| HeadColumns { buffer: both, first, stride: 2 * dim };
            pass.backend.copy_heads(part(0), dim, heads(q), rows);
            pass.backend.copy_heads(part(dim), dim, heads(gate), rows);
        }
        if let Some([(q_norm, q_normed), (k_norm, k_normed)]) = self.norms {
            q_norm.forward(pass, q, q_normed, rows);
            k_norm.forward(pass, k, k_normed, rows);
            (q, k) = (q_normed, k_normed);
        }
        pass.backend.rotate(heads(q), self.rope, rows);
        pass.backend.rotate(heads(k), self.rope, rows);
        pass.backend.store_kv(self.layer, k, Some(v), pass.batch);
        // mixed: [rows, heads * head_dim]
        pass.backend.attention(self.layer, q, mixed, &self.spec, pass.batch);
        let gated = self.gate.map_or(mixed, |[_, gate]| {
            pass.backend.apply_gate(Gate::Sigmoid, gate, mixed, rows);
            gate
        });
        self.out.forward(pass, gated, out, rows);
    }
}
