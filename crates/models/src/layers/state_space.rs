//! State spaces (Mamba-2; Dao and Gu, 2024): a matrix per head, which every position decays and
//! adds its value to.
//!
//! Values, keys and queries (`x`, `B` and `C` in the paper) pass a short convolution along
//! positions, whose inputs are rows of the cache with a window; the matrices are states.

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
use formats::layers::MambaNorm;
use formats::layers::StateSpaceSpec;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct StateSpace {
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
    out: Linear,
    spec: RecurrenceSpec,
    cache: LayerCache,
}

/// This rank's heads, as `queries`, and their groups.
fn heads(loader: &Loader<'_>, spec: &StateSpaceSpec) -> Result<Heads, Error> {
    let StateSpaceSpec { heads, groups, norm, norm_groups, .. } = *spec;
    let ranks = loader.slice.ranks();
    let divides = norm == MambaNorm::None || norm_groups.is_multiple_of(ranks);
    if ranks > 1 && !divides {
        return Err(Error::Config(format!(
            "norms of {norm_groups} groups of a state space cannot be divided among {ranks} ranks"
        )));
    }
    Heads::of(loader.slice, heads, groups)
}

impl StateSpace {
    /// Loads `ssm_in`, `ssm_conv1d`, `ssm_dt`, `ssm_a`, `ssm_d`, `ssm_norm` and `ssm_out`: this
    /// rank's heads with their groups.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        place: OpPlace,
        spec: &StateSpaceSpec,
    ) -> Result<Self, Error> {
        let StateSpaceSpec { head_dim, state, .. } = *spec;
        let Heads { queries: own, kv } = heads(loader, spec)?;
        let (inner, keys) = (spec.values(), spec.keys());
        let values = own.start * head_dim..own.end * head_dim;
        let of_groups = kv.start * state..kv.end * state;
        let at = |part: &Range<usize>, first: usize| part.start + first..part.end + first;
        let of = |factor, noted| PartOf { name: "ssm_in", noted, factor };
        let gate = Linear::part(loader, of("ssm_in.z", true), values.clone())?;
        let steps = at(&own, 2 * (inner + keys));
        let steps = Linear::part(loader, of("ssm_in.dt", false), steps)?;
        let mut input = |factor, rows: Range<usize>, buffers| {
            let (matrix, conv) = (of(factor, false), ("ssm_conv1d", rows.clone()));
            let source = ConvolvedSource { matrix, rows: at(&rows, inner), conv, buffers };
            ConvolvedLinear::load(loader, &source)
        };
        let inputs = [
            input("ssm_in.x", values.clone(), ["delta_v_in", "delta_v"])?,
            input("ssm_in.b", at(&of_groups, inner), ["delta_k_in", "delta_k"])?,
            input("ssm_in.c", at(&of_groups, inner + keys), ["delta_q_in", "delta_q"])?,
        ];
        let recurrence = Self::recurrence(loader, spec, (&own, &inputs))?;
        let normed = match spec.norm {
            MambaNorm::None => None,
            MambaNorm::BehindGate | MambaNorm::BeforeGate => {
                let unit = (inner / spec.norm_groups, spec.eps);
                let norm = Norm::of_units(loader, "ssm_norm", unit, values.clone())?;
                Some((norm, loader.shared("delta_normed", values.len())?))
            }
        };
        let of_rank = StateSpaceSpec { heads: own.len(), groups: kv.len(), ..spec.clone() };
        Ok(Self {
            layer: place.of_rank(loader),
            first: place.rows,
            gate: (gate, loader.shared("delta_gate", values.len())?),
            inputs,
            steps,
            norm: spec.norm,
            normed,
            out: Linear::load(loader, "ssm_out", Slice::Inputs(values))?,
            spec: recurrence,
            cache: of_rank.cache(),
        })
    }

    /// The recurrence of the heads `own`.
    fn recurrence(
        loader: &mut Loader<'_>,
        spec: &StateSpaceSpec,
        (own, inputs): (&Range<usize>, &[ConvolvedLinear; 3]),
    ) -> Result<RecurrenceSpec, Error> {
        let [v, k, q] = inputs.each_ref().map(|input| input.conv.out);
        let mut vector = |name: &str| loader.vector_part(name, own.clone());
        let (dt, rate, skip) = (vector("ssm_dt.bias")?, vector("ssm_a")?, vector("ssm_d")?);
        let mut buffer = |name, each| loader.shared(name, own.len() * each);
        Ok(RecurrenceSpec {
            rule: RecurrenceRule::StateSpace { skip, limits: spec.limits },
            q,
            k,
            v,
            a: buffer("delta_a", 1)?,
            dt,
            rate,
            decay: buffer("delta_decay", 1)?,
            beta: buffer("delta_beta", 1)?,
            tiled: false,
            out: buffer("delta_out", spec.head_dim)?,
        })
    }
}

impl Operation for StateSpace {
    fn name(&self) -> &'static str {
        "state space"
    }

    fn split(&self) -> Split {
        self.out.split
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
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
                pass.backend.map(MapOp::Gate(Gate::Silu, spec.out), gated, rows);
                norm.forward(pass, gated, normed, rows)
            }
            (_, normed) => {
                let up = normed
                    .map_or(spec.out, |(norm, normed)| norm.forward(pass, spec.out, normed, rows));
                pass.backend.map(MapOp::Gate(Gate::Silu, up), gated, rows);
                gated
            }
        };
        self.out.forward(pass, read, out, rows);
        Ok(())
    }
}
