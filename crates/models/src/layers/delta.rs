//! Gated DeltaNet (Yang et al., 2024; Qwen3-Next): a matrix per head instead of keys and values,
//! which every position decays and corrects.
//!
//! Queries, keys and values pass a short convolution along positions. Its inputs are rows of the
//! cache with a window; the matrices are states.

use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{Buffer, Gate, LayerCache, RecurrenceRule, RecurrenceSpec, Rows, ShortConv, State};
use formats::config::DeltaConfig;
use std::ops::Range;

/// A projection with the convolution of its outputs.
#[derive(Clone, Copy, Debug)]
struct ConvolvedLinear {
    linear: Linear,
    /// Outputs of the projection: `[rows, channels]`.
    projected: Buffer,
    conv: ShortConv,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedDelta {
    /// Index of the layer in this rank's cache.
    layer: usize,
    /// Queries, keys and values.
    inputs: [ConvolvedLinear; 3],
    /// The gate of the outputs, and its buffer `[rows, heads * value_dim]`.
    gate: (Linear, Buffer),
    /// Projections to the inputs of the decay and of beta.
    alpha: Linear,
    beta: (Linear, Buffer),
    norm: Norm,
    /// Outputs after the norm: `[rows, heads * value_dim]`.
    normed: Buffer,
    pub out: Linear,
    spec: RecurrenceSpec,
}

/// What a layer keeps of some value heads with their key heads.
pub(super) fn cache(config: &DeltaConfig, [heads, key_heads]: [usize; 2]) -> LayerCache {
    let (keys, values) = (config.key_dim, config.value_dim);
    let rows = |dim| Rows::plain(dim, Some(config.kernel));
    LayerCache {
        rows: vec![rows(key_heads * keys), rows(key_heads * keys), rows(heads * values)],
        state: Some(State { heads, key_heads, keys, values, channel_decay: false }),
    }
}

impl GatedDelta {
    /// Loads `attn_qkv`, `attn_gate`, `ssm_conv1d`, `ssm_alpha`, `ssm_beta`, `ssm_dt`, `ssm_a`,
    /// `ssm_norm` and `ssm_out` of a layer: this rank's key heads with their value heads.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &DeltaConfig,
    ) -> Result<Self, Error> {
        let DeltaConfig { value_heads, key_heads, key_dim, value_dim, .. } = *config;
        let hidden = loader.checkpoint.config().hidden_size;
        let eps = loader.checkpoint.config().rms_norm_eps;
        let Heads { queries: own, kv: keys } = delta_heads(loader, config)?;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let key_rows = keys.start * key_dim..keys.end * key_dim;
        let values = own.start * value_dim..own.end * value_dim;
        let (q, k) = (key_heads * key_dim, value_heads * value_dim);
        let part = |rows: &Range<usize>, first: usize| rows.start + first..rows.end + first;
        let inputs = [
            Self::load_input(loader, layer, config, (["delta_q_in", "delta_q"], key_rows.clone()))?,
            Self::load_input(
                loader,
                layer,
                config,
                (["delta_k_in", "delta_k"], part(&key_rows, q)),
            )?,
            Self::load_input(
                loader,
                layer,
                config,
                (["delta_v_in", "delta_v"], part(&values, 2 * q)),
            )?,
        ];
        let gate = Slice::Heads(values.clone());
        let gate = Linear::load(loader, &name("attn_gate"), k, hidden, gate)?;
        let mut scalar = |name: String| {
            Linear::load_exact(loader, &name, value_heads, hidden, Slice::Heads(own.clone()))
        };
        let (alpha, beta) = (scalar(name("ssm_alpha"))?, scalar(name("ssm_beta"))?);
        let mut buffer = |name, each| loader.shared(name, own.len() * each);
        let (a, b) = (buffer("delta_a", 1)?, buffer("delta_b", 1)?);
        let (decay, betas) = (buffer("delta_decay", 1)?, buffer("delta_beta", 1)?);
        let (out, normed) = (buffer("delta_out", value_dim)?, buffer("delta_normed", value_dim)?);
        let gated = buffer("delta_gate", value_dim)?;
        let [q, k, v] = inputs.map(|input| input.conv.out);
        let spec = RecurrenceSpec {
            rule: RecurrenceRule::Delta { b },
            q,
            k,
            v,
            a,
            dt: loader.vector(&name("ssm_dt.bias"), &[value_heads], own.clone())?,
            rate: loader.vector(&name("ssm_a"), &[value_heads], own.clone())?,
            decay,
            beta: betas,
            tiled: config.tiled,
            out,
        };
        let inner = value_heads * value_dim;
        Ok(Self {
            layer: layer - loader.layers.start,
            inputs,
            gate: (gate, gated),
            alpha,
            beta: (beta, b),
            norm: Norm::load(loader, &name("ssm_norm"), value_dim, eps)?,
            normed,
            out: Linear::load(loader, &name("ssm_out"), hidden, inner, Slice::Inputs(values))?,
            spec,
        })
    }

    /// Rows `rows` of `attn_qkv` with their convolution.
    fn load_input(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &DeltaConfig,
        (names, rows): ([&'static str; 2], Range<usize>),
    ) -> Result<ConvolvedLinear, Error> {
        let DeltaConfig { value_heads, key_heads, key_dim, value_dim, kernel, .. } = *config;
        let all = 2 * key_heads * key_dim + value_heads * value_dim;
        let hidden = loader.checkpoint.config().hidden_size;
        let source = format!("blk.{layer}.attn_qkv.weight");
        let view = loader.checkpoint.require(&source, &[all, hidden])?.clone();
        // The inputs of all three are counted once, under the name of the first.
        let noted = if rows.start == 0 { source.clone() } else { String::new() };
        let weight = loader.part_of(&source, &view.rows(rows.clone()).named(noted))?;
        let conv = format!("blk.{layer}.ssm_conv1d.weight");
        let taps = loader.checkpoint.require(&conv, &[all, kernel])?.to_f32()?;
        let of = |tap: usize, channel: usize| taps[channel * kernel + tap];
        let turned = (0..kernel).flat_map(|tap| rows.clone().map(move |channel| (tap, channel)));
        let turned = turned.map(|(tap, channel)| of(tap, channel)).collect();
        let bias =
            loader.optional_part(&format!("blk.{layer}.ssm_conv1d.bias"), &[all], rows.clone())?;
        let conv = ShortConv {
            silu: true,
            weight: loader.backend.vector(turned),
            bias,
            out: loader.shared(names[1], rows.len())?,
        };
        let projected = loader.shared(names[0], rows.len())?;
        let split = Slice::Heads(rows).split();
        Ok(ConvolvedLinear { linear: Linear { weight, bias: None, split }, projected, conv })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; takes the states of the batch's sequences on.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let (rows, spec) = (pass.rows(), &self.spec);
        let [q, k, v] = self.inputs.each_ref().map(|input| (&input.linear, input.projected));
        let (gate, gated) = self.gate;
        Linear::forward_each(pass, x, [q, k, v, (&gate, gated)], rows);
        let (beta, b) = self.beta;
        Linear::forward_each(pass, x, [(&self.alpha, spec.a), (&beta, b)], rows);
        for (which, input) in self.inputs.iter().enumerate() {
            pass.backend.short_conv(self.layer, which, input.projected, &input.conv, pass.batch);
        }
        // spec.out: [rows, heads * value_dim]
        pass.backend.recur(self.layer, spec, pass.batch);
        self.norm.forward(pass, spec.out, self.normed, rows);
        pass.backend.apply_gate(Gate::Silu, gated, self.normed, rows);
        self.out.forward(pass, gated, out, rows);
    }
}

/// This rank's value heads, as `queries`, and their key heads.
pub(super) fn delta_heads(loader: &Loader<'_>, config: &DeltaConfig) -> Result<Heads, Error> {
    let DeltaConfig { value_heads, key_heads, tiled, .. } = *config;
    if tiled && loader.slice.ranks() > 1 {
        return Err(Error::Config(
            "tiled value heads, as GGUF files of this family have them, cannot be divided among \
             ranks yet; expected 1 rank, or a checkpoint in safetensors"
                .into(),
        ));
    }
    Heads::of(loader.slice, value_heads, key_heads)
}
