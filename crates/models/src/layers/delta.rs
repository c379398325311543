//! Gated DeltaNet (Yang et al., 2024; Qwen3-Next): a matrix per head instead of keys and values,
//! which every position decays and corrects. In Kimi Delta Attention (Kimi Team, 2025) each key of
//! a head has a decay of its own.
//!
//! Queries, keys and values pass a short convolution along positions. Its inputs are rows of the
//! cache with a window; the matrices are states.

use super::convolution::{ConvolvedLinear, ConvolvedSource};
use super::linear::{Linear, PartOf};
use super::norm::Norm;
use super::operation::{OpPlace, Operation};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Heads, Slice};
use backend::{Buffer, Gate, LayerCache, MapOp, RecurrenceRule, RecurrenceSpec};
use dist::Split;
use formats::layers::DeltaSpec;
use std::ops::Range;

/// A projection, or two with few values between them.
#[derive(Clone, Copy, Debug)]
struct Projection {
    first: Linear,
    /// Outputs of the first, `[rows, few]`, and the second.
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

#[derive(Debug)]
pub(crate) struct GatedDelta {
    /// Index of the layer in this rank's cache.
    layer: usize,
    /// Number of the first of its rows there.
    first: usize,
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
    out: Linear,
    spec: RecurrenceSpec,
    cache: LayerCache,
}

/// This rank's value heads, and their key heads.
struct HeldHeads<'a> {
    spec: &'a DeltaSpec,
    own: Range<usize>,
    keys: Range<usize>,
}

impl HeldHeads<'_> {
    /// Rows of this rank's key heads, and of its value heads.
    fn key_rows(&self) -> Range<usize> {
        self.keys.start * self.spec.key_dim..self.keys.end * self.spec.key_dim
    }

    fn value_rows(&self) -> Range<usize> {
        self.own.start * self.spec.value_dim..self.own.end * self.spec.value_dim
    }
}

impl GatedDelta {
    /// Loads `attn_qkv`, `attn_gate`, `ssm_conv1d`, `ssm_alpha`, `ssm_beta`, `ssm_dt`, `ssm_a`,
    /// `ssm_norm` and `ssm_out`: this rank's key heads with their value heads. With decays per
    /// channel `attn_q`, `attn_k` and `attn_v` with a convolution each, `ssm_g_a` and `ssm_g_b`,
    /// `ssm_f_a` and `ssm_f_b`, and `attn_output` take the place of some of them.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, place: OpPlace, spec: &DeltaSpec) -> Result<Self, Error> {
        let (per_channel, Heads { queries: own, kv: keys }) =
            (spec.per_channel, heads(loader, spec)?);
        let of_rank = DeltaSpec { value_heads: own.len(), key_heads: keys.len(), ..*spec };
        let part = HeldHeads { spec, own: own.clone(), keys };
        let inputs = Self::load_inputs(loader, &part)?;
        let (gate, alpha) = match per_channel {
            true => (
                Self::two(loader, &part, ("ssm_g", "delta_gate_few", "delta_gate"))?,
                Self::two(loader, &part, ("ssm_f", "delta_a_few", "delta_a"))?,
            ),
            false => Self::gates_of_one(loader, &part)?,
        };
        let beta = Linear::load_exact(loader, "ssm_beta", Slice::Heads(own.clone()))?;
        let beta = (beta, loader.shared("delta_b", own.len())?);
        let recurrence = Self::recurrence(loader, &part, (&inputs, alpha.out, beta.1))?;
        let out = if per_channel { "attn_output" } else { "ssm_out" };
        Ok(Self {
            layer: place.of_rank(loader),
            first: place.rows,
            inputs,
            gate,
            kind: if per_channel || spec.sigmoid_gate { Gate::Sigmoid } else { Gate::Silu },
            alpha,
            beta,
            norm: Norm::load(loader, "ssm_norm", spec.eps)?,
            normed: loader.shared("delta_normed", own.len() * spec.value_dim)?,
            out: Linear::load(loader, out, Slice::Inputs(part.value_rows()))?,
            spec: recurrence,
            cache: of_rank.cache(),
        })
    }

    /// Queries, keys and values: rows of one matrix and channels of one convolution, or with a
    /// matrix and a convolution each.
    fn load_inputs(
        loader: &mut Loader<'_>,
        part: &HeldHeads<'_>,
    ) -> Result<[ConvolvedLinear; 3], Error> {
        let (spec, keys) = (part.spec, part.spec.keys());
        let mut input = |name: char, rows: Range<usize>, first: usize, buffers| {
            let (matrix, conv, first) = match spec.per_channel {
                true => (format!("attn_{name}"), format!("ssm_conv1d_{name}"), 0),
                false => ("attn_qkv".to_owned(), "ssm_conv1d".to_owned(), first),
            };
            let rows = rows.start + first..rows.end + first;
            let source = ConvolvedSource {
                // Inputs of the rows of one matrix are counted once.
                matrix: PartOf { name: &matrix, noted: first == 0, factor: &matrix },
                rows: rows.clone(),
                conv: (&conv, rows),
                buffers,
            };
            ConvolvedLinear::load(loader, &source)
        };
        Ok([
            input('q', part.key_rows(), 0, ["delta_q_in", "delta_q"])?,
            input('k', part.key_rows(), keys, ["delta_k_in", "delta_k"])?,
            input('v', part.value_rows(), 2 * keys, ["delta_v_in", "delta_v"])?,
        ])
    }

    /// The gate, and the inputs of the decay.
    fn gates_of_one(
        loader: &mut Loader<'_>,
        part: &HeldHeads<'_>,
    ) -> Result<(Projection, Projection), Error> {
        let rows = part.value_rows();
        let first = Linear::load(loader, "attn_gate", Slice::Heads(rows.clone()))?;
        let out = loader.shared("delta_gate", rows.len())?;
        let gate = Projection { first, second: None, out };
        let first = Linear::load_exact(loader, "ssm_alpha", Slice::Heads(part.own.clone()))?;
        let out = loader.shared("delta_a", part.own.len())?;
        Ok((gate, Projection { first, second: None, out }))
    }

    /// Two products, `name_a` and `name_b`, with the values of a key between them, or the first
    /// alone.
    fn two(
        loader: &mut Loader<'_>,
        part: &HeldHeads<'_>,
        (name, few, out): (&str, &'static str, &'static str),
    ) -> Result<Projection, Error> {
        let rows = part.value_rows();
        let out = loader.shared(out, rows.len())?;
        let slice = Slice::Heads(rows);
        if part.spec.full_rank {
            let first = Linear::load_exact(loader, &format!("{name}_a"), slice)?;
            return Ok(Projection { first, second: None, out });
        }
        let first = Linear::load_exact(loader, &format!("{name}_a"), Slice::Whole)?;
        let second = Linear::load_exact(loader, &format!("{name}_b"), slice)?;
        let second = Some((loader.shared(few, part.spec.key_dim)?, second));
        Ok(Projection { first, second, out })
    }

    fn recurrence(
        loader: &mut Loader<'_>,
        part: &HeldHeads<'_>,
        (inputs, a, b): (&[ConvolvedLinear; 3], Buffer, Buffer),
    ) -> Result<RecurrenceSpec, Error> {
        let HeldHeads { spec, ref own, .. } = *part;
        // Decays of a head, all of which have its rate.
        let each = if spec.per_channel { spec.key_dim } else { 1 };
        let [q, k, v] = inputs.each_ref().map(|input| input.conv.out);
        // Some files have these without their sign.
        let rates = loader.require("ssm_a")?.to_f32()?;
        let rates: Vec<f32> = rates.into_iter().map(|rate| -rate.abs()).collect();
        let rates = own.clone().flat_map(|head| std::iter::repeat_n(rates[head], each)).collect();
        let mut buffer = |name, each| loader.shared(name, own.len() * each);
        let (decay, beta) = (buffer("delta_decay", each)?, buffer("delta_beta", 1)?);
        Ok(RecurrenceSpec {
            rule: RecurrenceRule::Delta { b, least: spec.least },
            q,
            k,
            v,
            a,
            decay,
            beta,
            out: buffer("delta_out", spec.value_dim)?,
            dt: loader.vector_part("ssm_dt.bias", own.start * each..own.end * each)?,
            rate: loader.backend.vector(rates),
            tiled: spec.tiled,
        })
    }
}

impl Operation for GatedDelta {
    fn name(&self) -> &'static str {
        "gated delta rule"
    }

    fn split(&self) -> Split {
        self.out.split
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let (rows, spec) = (pass.rows(), &self.spec);
        let [q, k, v] = self.inputs.each_ref().map(|input| (&input.linear, input.projected));
        Linear::forward_each(pass, x, [q, k, v, self.gate.begin()], rows);
        let (beta, b) = &self.beta;
        Linear::forward_each(pass, x, [self.alpha.begin(), (beta, *b)], rows);
        self.gate.end(pass, rows);
        self.alpha.end(pass, rows);
        for (which, input) in (self.first..).zip(&self.inputs) {
            pass.backend.short_conv(self.layer, which, input.projected, &input.conv, pass.batch);
        }
        // spec.out: [rows, heads * value_dim]
        pass.backend.recur(self.layer, spec, pass.batch);
        self.norm.forward(pass, spec.out, self.normed, rows);
        pass.backend.map(MapOp::Gate(self.kind, self.normed), self.gate.out, rows);
        self.out.forward(pass, self.gate.out, out, rows);
        Ok(())
    }
}

/// This rank's value heads, as `queries`, and their key heads.
fn heads(loader: &Loader<'_>, spec: &DeltaSpec) -> Result<Heads, Error> {
    let DeltaSpec { value_heads, key_heads, tiled, .. } = *spec;
    if tiled && loader.slice.ranks() > 1 {
        return Err(Error::Config(
            "tiled value heads, as GGUF files of this family have them, cannot be divided among \
             ranks yet; expected 1 rank, or a checkpoint in safetensors"
                .into(),
        ));
    }
    Heads::of(loader.slice, value_heads, key_heads)
}
