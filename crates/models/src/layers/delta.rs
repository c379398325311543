//! Gated DeltaNet (Yang et al., 2024; Qwen3-Next): a matrix per head instead of keys and values,
//! which every position decays and corrects. In Kimi Delta Attention (Kimi Team, 2025) each key of
//! a head has a decay of its own.
//!
//! Queries, keys and values pass a short convolution along positions. Its inputs are rows of the
//! cache with a window; the matrices are states.

use super::convolved::{ConvolvedLinear, ConvolvedSource};
use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{Buffer, Gate, LayerCache, RecurrenceRule, RecurrenceSpec, Rows, State};
use formats::config::DeltaConfig;
use std::ops::Range;

/// A projection, or two with few values between them.
#[derive(Clone, Copy, Debug)]
struct Projection {
    first: Linear,
    /// What the first gives, `[rows, few]`, and the second.
    second: Option<(Buffer, Linear)>,
    out: Buffer,
}

impl Projection {
    /// The first product, and its buffer.
    fn begin(&self) -> (&Linear, Buffer) {
        (&self.first, self.second.map_or(self.out, |(few, _)| few))
    }

    /// The second product, if there is one.
    fn end(&self, pass: &mut ForwardPass<'_>, rows: usize) {
        if let Some((few, second)) = self.second {
            second.forward(pass, few, self.out, rows);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedDelta {
    /// Index of the layer in this rank's cache.
    layer: usize,
    /// Queries, keys and values.
    inputs: [ConvolvedLinear; 3],
    /// The gate of the outputs, `[rows, heads * value_dim]`, and how it is applied.
    gate: Projection,
    kind: Gate,
    /// Inputs of the decay, and of beta.
    alpha: Projection,
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
    let channel_decay = config.per_channel;
    let rows = |dim| Rows::plain(dim, Some(config.kernel));
    LayerCache {
        rows: vec![rows(key_heads * keys), rows(key_heads * keys), rows(heads * values)],
        state: Some(State { heads, key_heads, keys, values, channel_decay }),
    }
}

/// A layer that is loaded, and this rank's heads.
struct LayerParts<'a> {
    layer: usize,
    config: &'a DeltaConfig,
    own: Range<usize>,
    keys: Range<usize>,
}

impl LayerParts<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.layer)
    }

    /// Rows of this rank's key heads, and of its value heads.
    fn key_rows(&self) -> Range<usize> {
        self.keys.start * self.config.key_dim..self.keys.end * self.config.key_dim
    }

    fn value_rows(&self) -> Range<usize> {
        self.own.start * self.config.value_dim..self.own.end * self.config.value_dim
    }
}

impl GatedDelta {
    /// Loads `attn_qkv`, `attn_gate`, `ssm_conv1d`, `ssm_alpha`, `ssm_beta`, `ssm_dt`, `ssm_a`,
    /// `ssm_norm` and `ssm_out` of a layer: this rank's key heads with their value heads. With
    /// decays per channel `attn_q`, `attn_k` and `attn_v` with a convolution each, `ssm_g_a` and
    /// `ssm_g_b`, `ssm_f_a` and `ssm_f_b`, and `attn_output` take the place of some of them.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &DeltaConfig,
    ) -> Result<Self, Error> {
        let DeltaConfig { value_heads, value_dim, per_channel, .. } = *config;
        let hidden = loader.checkpoint.config().hidden_size;
        let eps = loader.checkpoint.config().rms_norm_eps;
        let Heads { queries: own, kv: keys } = delta_heads(loader, config)?;
        let parts = LayerParts { layer, config, own: own.clone(), keys };
        let inputs = Self::load_inputs(loader, &parts)?;
        let (gate, alpha) = match per_channel {
            true => (
                Self::two(loader, &parts, ("ssm_g", "delta_gate_few", "delta_gate"))?,
                Self::two(loader, &parts, ("ssm_f", "delta_a_few", "delta_a"))?,
            ),
            false => Self::gates_of_one(loader, &parts)?,
        };
        let slice = Slice::Heads(own.clone());
        let beta = Linear::load_exact(loader, &parts.name("ssm_beta"), value_heads, hidden, slice)?;
        let beta = (beta, loader.shared("delta_b", own.len())?);
        let spec = Self::spec(loader, &parts, (&inputs, alpha.out, beta.1))?;
        let out = parts.name(if per_channel { "attn_output" } else { "ssm_out" });
        let outputs = Slice::Inputs(parts.value_rows());
        Ok(Self {
            layer: layer - loader.layers.start,
            inputs,
            gate,
            kind: if per_channel { Gate::Sigmoid } else { Gate::Silu },
            alpha,
            beta,
            norm: Norm::load(loader, &parts.name("ssm_norm"), value_dim, eps)?,
            normed: loader.shared("delta_normed", own.len() * value_dim)?,
            out: Linear::load(loader, &out, hidden, value_heads * value_dim, outputs)?,
            spec,
        })
    }

    /// Queries, keys and values: rows of one matrix and channels of one convolution, or with a
    /// matrix and a convolution each.
    fn load_inputs(
        loader: &mut Loader<'_>,
        parts: &LayerParts<'_>,
    ) -> Result<[ConvolvedLinear; 3], Error> {
        let DeltaConfig { per_channel: apart, kernel, .. } = *parts.config;
        let (keys, values) = (parts.config.keys(), parts.config.values());
        let mut input =
            |part: char, rows: Range<usize>, (count, first): (usize, usize), buffers| {
                let (matrix, conv, all, first) = match apart {
                    true => (format!("attn_{part}.weight"), format!("ssm_conv1d_{part}"), count, 0),
                    false => {
                        let all = parts.config.channels();
                        ("attn_qkv.weight".to_owned(), "ssm_conv1d".to_owned(), all, first)
                    }
                };
                let (matrix, conv) = (parts.name(&matrix), parts.name(&conv));
                let rows = rows.start + first..rows.end + first;
                // Inputs of the rows of one matrix are counted once.
                let noted = if first == 0 { &matrix[..] } else { "" };
                let source = ConvolvedSource {
                    matrix: (&matrix, all, rows.clone()),
                    noted,
                    part: "",
                    conv: (&conv, all, rows),
                    kernel,
                    buffers,
                };
                ConvolvedLinear::load(loader, &source)
            };
        Ok([
            input('q', parts.key_rows(), (keys, 0), ["delta_q_in", "delta_q"])?,
            input('k', parts.key_rows(), (keys, keys), ["delta_k_in", "delta_k"])?,
            input('v', parts.value_rows(), (values, 2 * keys), ["delta_v_in", "delta_v"])?,
        ])
    }

    /// The gate, and the inputs of the decay.
    fn gates_of_one(
        loader: &mut Loader<'_>,
        parts: &LayerParts<'_>,
    ) -> Result<(Projection, Projection), Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let (heads, rows) = (parts.config.value_heads, parts.value_rows());
        let slice = Slice::Heads(rows.clone());
        let name = parts.name("attn_gate");
        let first = Linear::load(loader, &name, parts.config.values(), hidden, slice)?;
        let out = loader.shared("delta_gate", rows.len())?;
        let gate = Projection { first, second: None, out };
        let slice = Slice::Heads(parts.own.clone());
        let first = Linear::load_exact(loader, &parts.name("ssm_alpha"), heads, hidden, slice)?;
        let out = loader.shared("delta_a", parts.own.len())?;
        Ok((gate, Projection { first, second: None, out }))
    }

    /// Two products, `name_a` and `name_b`, with the values of a key between them.
    fn two(
        loader: &mut Loader<'_>,
        parts: &LayerParts<'_>,
        (name, few, out): (&str, &'static str, &'static str),
    ) -> Result<Projection, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let (between, rows) = (parts.config.key_dim, parts.value_rows());
        let (a, b) = (parts.name(&format!("{name}_a")), parts.name(&format!("{name}_b")));
        let first = Linear::load_exact(loader, &a, between, hidden, Slice::Whole)?;
        let slice = Slice::Heads(rows.clone());
        let second = Linear::load_exact(loader, &b, parts.config.values(), between, slice)?;
        let second = Some((loader.shared(few, between)?, second));
        Ok(Projection { first, second, out: loader.shared(out, rows.len())? })
    }

    fn spec(
        loader: &mut Loader<'_>,
        parts: &LayerParts<'_>,
        (inputs, a, b): (&[ConvolvedLinear; 3], Buffer, Buffer),
    ) -> Result<RecurrenceSpec, Error> {
        let LayerParts { config, ref own, .. } = *parts;
        // Decays of a head, all of which have its rate.
        let each = if config.per_channel { config.key_dim } else { 1 };
        let [q, k, v] = inputs.each_ref().map(|input| input.conv.out);
        let rates = loader.checkpoint.require(&parts.name("ssm_a"), &[config.value_heads])?;
        let rates = rates.to_f32()?;
        let rates = own.clone().flat_map(|head| std::iter::repeat_n(rates[head], each)).collect();
        let dt = own.start * each..own.end * each;
        let mut buffer = |name, each| loader.shared(name, own.len() * each);
        let (decay, beta) = (buffer("delta_decay", each)?, buffer("delta_beta", 1)?);
        Ok(RecurrenceSpec {
            rule: RecurrenceRule::Delta { b },
            q,
            k,
            v,
            a,
            decay,
            beta,
            out: buffer("delta_out", config.value_dim)?,
            dt: loader.vector(&parts.name("ssm_dt.bias"), &[config.value_heads * each], dt)?,
            rate: loader.backend.vector(rates),
            tiled: config.tiled,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; takes the states of the batch's sequences on.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let (rows, spec) = (pass.rows(), &self.spec);
        let [q, k, v] = self.inputs.each_ref().map(|input| (&input.linear, input.projected));
        Linear::forward_each(pass, x, [q, k, v, self.gate.begin()], rows);
        let (beta, b) = &self.beta;
        Linear::forward_each(pass, x, [self.alpha.begin(), (beta, *b)], rows);
        self.gate.end(pass, rows);
        self.alpha.end(pass, rows);
        for (which, input) in self.inputs.iter().enumerate() {
            pass.backend.short_conv(self.layer, which, input.projected, &input.conv, pass.batch);
        }
        // spec.out: [rows, heads * value_dim]
        pass.backend.recur(self.layer, spec, pass.batch);
        self.norm.forward(pass, spec.out, self.normed, rows);
        pass.backend.apply_gate(self.kind, self.gate.out, self.normed, rows);
        self.out.forward(pass, self.gate.out, out, rows);
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
