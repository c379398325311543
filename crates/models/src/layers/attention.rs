//! Grouped-query attention with rotary positions, and optional norms of queries and keys, sliding
//! window and sinks.

use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{AttentionSpec, Backend, Buffer, HeadColumns, Rope};
use dist::Split;
use formats::ModelConfig;
use std::ops::Range;

/// Workspace shared by the attention of all layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionBuffers {
    q: Buffer,
    k: Buffer,
    v: Buffer,
    /// Queries and keys after their norms.
    q_normed: Buffer,
    k_normed: Buffer,
    /// What the heads saw, before the output projection.
    mixed: Buffer,
}

impl AttentionBuffers {
    /// Room for this rank's `heads` of `head_dim` values.
    pub fn new(
        backend: &mut dyn Backend,
        rows: usize,
        heads: &Heads,
        head_dim: usize,
    ) -> Result<Self, Error> {
        let (q, kv) = (heads.queries.len() * head_dim, heads.kv.len() * head_dim);
        let mut buffer = |width| backend.buffer(rows, width);
        Ok(Self {
            q: buffer(q)?,
            k: buffer(kv)?,
            v: buffer(kv)?,
            q_normed: buffer(q)?,
            k_normed: buffer(kv)?,
            mixed: buffer(q)?,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    /// Its number in the KV cache.
    layer: usize,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    /// Norms of each head of queries and keys.
    norms: Option<(Norm, Norm)>,
    rope: Rope,
    head_dim: usize,
    spec: AttentionSpec,
}

impl Attention {
    /// Loads `attn_q`, `attn_k`, `attn_v`, `attn_output` of a layer, `attn_sinks` if there, and with
    /// `norms` `attn_q_norm` and `attn_k_norm`: all of this rank's heads.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        rope: Rope,
        norms: bool,
    ) -> Result<Self, Error> {
        let ModelConfig { hidden_size, heads, kv_heads, head_dim, rms_norm_eps, .. } =
            *loader.checkpoint.config();
        let scale = loader.checkpoint.config().attention_scale;
        let window = loader.checkpoint.config().windows[layer];
        let prefix = format!("blk.{layer}");
        let own = loader.heads()?;
        let sinks = format!("{prefix}.attn_sinks.weight");
        let sinks = loader.optional_part(&sinks, &[heads], own.queries.clone())?;
        let norms = match norms {
            true => Some((
                loader.norm(&format!("{prefix}.attn_q_norm"), head_dim, rms_norm_eps)?,
                loader.norm(&format!("{prefix}.attn_k_norm"), head_dim, rms_norm_eps)?,
            )),
            false => None,
        };
        let values = |heads: &Range<usize>| heads.start * head_dim..heads.end * head_dim;
        let mut inner = |part: &str, heads: usize, own: &Range<usize>| {
            let name = format!("{prefix}.attn_{part}");
            loader.linear(&name, heads * head_dim, hidden_size, Slice::Heads(values(own)))
        };
        let q = inner("q", heads, &own.queries)?;
        let (k, v) = (inner("k", kv_heads, &own.kv)?, inner("v", kv_heads, &own.kv)?);
        let (out, inputs) = (format!("{prefix}.attn_output"), Slice::Inputs(values(&own.queries)));
        Ok(Self {
            layer: layer - loader.layers.start,
            q,
            k,
            v,
            out: loader.linear(&out, hidden_size, heads * head_dim, inputs)?,
            norms,
            rope,
            head_dim,
            spec: AttentionSpec { heads: own.queries.len(), scale, window, sinks },
        })
    }

    /// What each rank has of the outputs.
    pub fn split(&self) -> Split {
        self.out.split()
    }

    /// `[rows, hidden]` to `[rows, hidden]`; stores the rows' keys and values first.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        out: Buffer,
        work: &AttentionBuffers,
    ) {
        let rows = pass.rows();
        // [rows, heads * head_dim], and twice [rows, kv_heads * head_dim]
        let outputs = [(&self.q, work.q), (&self.k, work.k), (&self.v, work.v)];
        Linear::forward_each(pass, x, outputs, rows);
        let (q, k) = match &self.norms {
            Some((q_norm, k_norm)) => {
                q_norm.forward(pass, work.q, work.q_normed, rows);
                k_norm.forward(pass, work.k, work.k_normed, rows);
                (work.q_normed, work.k_normed)
            }
            None => (work.q, work.k),
        };
        let heads = |buffer| HeadColumns { buffer, first: 0, stride: self.head_dim };
        pass.backend.rotate(heads(q), self.rope, rows);
        pass.backend.rotate(heads(k), self.rope, rows);
        pass.backend.store_kv(self.layer, k, Some(work.v), pass.batch);
        pass.backend.attention(self.layer, q, work.mixed, &self.spec, pass.batch);
        self.out.forward(pass, work.mixed, out, rows);
    }
}
