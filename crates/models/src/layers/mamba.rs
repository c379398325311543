//! State spaces (Mamba-2; Dao and Gu, 2024): a matrix per head, which every position decays and
//! adds its value to.
//!
//! Values, keys and queries (`x`, `B` and `C` in the paper) pass a short convolution along
//! positions, whose inputs are rows of the cache with a window; the matrices are states.

use super::convolved::{ConvolvedLinear, ConvolvedSource};
use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Heads, Slice};
use backend::{Buffer, Gate, LayerCache, RecurrenceRule, RecurrenceSpec, Rows, State};
use formats::config::{MambaConfig, MambaNorm};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mamba {
    /// Index of the layer in this rank's cache, and of its first rows there.
    layer: usize,
    first: usize,
    /// The gate of the outputs, and its buffer `[rows, heads * head_dim]`.
    gate: (Linear, Buffer),
    /// Values, keys and queries.
    inputs: [ConvolvedLinear; 3],
    /// Inputs of the lengths of steps.
    steps: Linear,
    norm: MambaNorm,
    /// Norm of the outputs and its buffer, where there is one.
    normed: Option<(Norm, Buffer)>,
    pub out: Linear,
    spec: RecurrenceSpec,
}

/// What a layer keeps of some heads with their groups.
pub(super) fn cache(config: &MambaConfig, [heads, groups]: [usize; 2]) -> LayerCache {
    let MambaConfig { head_dim, state, kernel, .. } = *config;
    let rows = |dim| Rows::plain(dim, Some(kernel));
    let (key_heads, keys, values) = (groups, state, head_dim);
    LayerCache {
        rows: vec![rows(heads * head_dim), rows(groups * state), rows(groups * state)],
        state: Some(State { heads, key_heads, keys, values, channel_decay: false }),
    }
}

/// This rank's heads, as `queries`, and their groups.
pub(super) fn mamba_heads(loader: &Loader<'_>, config: &MambaConfig) -> Result<Heads, Error> {
    let MambaConfig { heads, groups, norm, norm_groups, .. } = *config;
    let ranks = loader.slice.ranks();
    let divides = norm == MambaNorm::None || norm_groups.is_multiple_of(ranks);
    if ranks > 1 && !divides {
        return Err(Error::Config(format!(
            "norms of {norm_groups} groups of a state space cannot be divided among {ranks} ranks"
        )));
    }
    Heads::of(loader.slice, heads, groups)
}

impl Mamba {
    /// Loads `ssm_in`, `ssm_conv1d`, `ssm_dt`, `ssm_a`, `ssm_d`, `ssm_norm` and `ssm_out` of a
    /// layer: this rank's heads with their groups. `first` is the number of its first rows in the
    /// layer.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &MambaConfig,
        first: usize,
    ) -> Result<Self, Error> {
        let MambaConfig { heads, head_dim, groups, state, .. } = *config;
        let hidden = loader.checkpoint.config().hidden_size;
        let Heads { queries: own, kv } = mamba_heads(loader, config)?;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (inner, keys) = (heads * head_dim, groups * state);
        let values = own.start * head_dim..own.end * head_dim;
        let of_groups = kv.start * state..kv.end * state;
        let source = name("ssm_in.weight");
        let at = |part: &Range<usize>, first: usize| part.start + first..part.end + first;
        let all = 2 * (inner + keys) + heads;
        let gate = Linear::part(loader, (&source, &source, "ssm_in.z"), all, values.clone())?;
        let steps = at(&own, 2 * (inner + keys));
        let steps = Linear::part(loader, (&source, "", "ssm_in.dt"), all, steps)?;
        let conv = name("ssm_conv1d");
        let mut input = |part: &str, rows: Range<usize>, buffers| {
            let matrix = (&source[..], all, at(&rows, inner));
            let conv = (&conv[..], inner + 2 * keys, rows);
            let kernel = config.kernel;
            let source = ConvolvedSource { matrix, noted: "", part, conv, kernel, buffers };
            ConvolvedLinear::load(loader, &source)
        };
        let inputs = [
            input("ssm_in.x", values.clone(), ["delta_v_in", "delta_v"])?,
            input("ssm_in.b", at(&of_groups, inner), ["delta_k_in", "delta_k"])?,
            input("ssm_in.c", at(&of_groups, inner + keys), ["delta_q_in", "delta_q"])?,
        ];
        let spec = Self::spec(loader, layer, config, (&own, &inputs))?;
        let normed = match config.norm {
            MambaNorm::None => None,
            MambaNorm::BehindGate | MambaNorm::BeforeGate => {
                let unit = inner / config.norm_groups;
                let norm =
                    Norm::of_units(loader, &name("ssm_norm"), (inner, values.clone()), unit)?;
                Some((norm, loader.shared("delta_normed", values.len())?))
            }
        };
        Ok(Self {
            layer: layer - loader.layers.start,
            first,
            gate: (gate, loader.shared("delta_gate", values.len())?),
            inputs,
            steps,
            norm: config.norm,
            normed,
            out: Linear::load(loader, &name("ssm_out"), hidden, inner, Slice::Inputs(values))?,
            spec,
        })
    }

    /// The recurrence of the heads `own`.
    fn spec(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &MambaConfig,
        (own, inputs): (&Range<usize>, &[ConvolvedLinear; 3]),
    ) -> Result<RecurrenceSpec, Error> {
        let [v, k, q] = inputs.each_ref().map(|input| input.conv.out);
        let mut vector = |part: &str| {
            loader.vector(&format!("blk.{layer}.{part}"), &[config.heads], own.clone())
        };
        let (dt, rate, skip) = (vector("ssm_dt.bias")?, vector("ssm_a")?, vector("ssm_d")?);
        let mut buffer = |name, each| loader.shared(name, own.len() * each);
        Ok(RecurrenceSpec {
            rule: RecurrenceRule::StateSpace { skip, limits: config.limits },
            q,
            k,
            v,
            a: buffer("delta_a", 1)?,
            dt,
            rate,
            decay: buffer("delta_decay", 1)?,
            beta: buffer("delta_beta", 1)?,
            tiled: false,
            out: buffer("delta_out", config.head_dim)?,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; takes the states of the batch's sequences on.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let (rows, spec) = (pass.rows(), &self.spec);
        let [v, k, q] = self.inputs.each_ref().map(|input| (&input.linear, input.projected));
        let (gate, gated) = self.gate;
        let outputs = [(&gate, gated), v, k, q, (&self.steps, spec.a)];
        Linear::forward_each(pass, x, outputs, rows);
        for (which, input) in (self.first..).zip(&self.inputs) {
            pass.backend.short_conv(self.layer, which, input.projected, &input.conv, pass.batch);
        }
        // spec.out: [rows, heads * head_dim]
        pass.backend.recur(self.layer, spec, pass.batch);
        let read = match (self.norm, self.normed) {
            (MambaNorm::BehindGate, Some((norm, normed))) => {
                pass.backend.apply_gate(Gate::Silu, gated, spec.out, rows);
                norm.forward(pass, gated, normed, rows)
            }
            (_, normed) => {
                let up = normed
                    .map_or(spec.out, |(norm, normed)| norm.forward(pass, spec.out, normed, rows));
                pass.backend.apply_gate(Gate::Silu, gated, up, rows);
                gated
            }
        };
        self.out.forward(pass, read, out, rows);
    }
}
