//! Grouped-query attention with rotary positions, and optional norms of queries, keys and values,
//! sliding window, gates and sinks. A layer may attend to the keys and values of an earlier one.

use super::linear::Linear;
use super::norm::Norm;
use super::operation::{OpPlace, Operation};
use super::rope::Rotations;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Heads, Slice};
use backend::{AttentionSpec, Buffer, Gate, HeadColumns, LayerCache, MapOp, Rope, Window};
use dist::Split;
use formats::layers::{
    GateFunction, GroupedSpec, KeySource, OutputGate, OwnGate, Reach, ValueSource,
};
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
    /// Where value heads are narrower than key heads.
    narrow: Option<NarrowValues>,
}

/// Values of heads that are narrower than key heads. Zeros in the cache make them as wide.
#[derive(Clone, Copy, Debug)]
struct NarrowValues {
    /// Values of a head.
    dim: usize,
    /// What the projection of values gives: `[rows, kv_heads * dim]`.
    projected: Buffer,
    /// Outputs of the heads without what follows their values: `[rows, heads * dim]`.
    mixed: Buffer,
}

impl AttentionBuffers {
    fn new(loader: &mut Loader<'_>, heads: &Heads, spec: &GroupedSpec) -> Result<Self, Error> {
        let (queries, kv_heads, head_dim) = (heads.queries.len(), heads.kv.len(), spec.head_dim);
        let narrow = match spec.value_dim {
            Some(dim) => Some(NarrowValues {
                dim,
                projected: loader.shared("v_narrow", kv_heads * dim)?,
                mixed: loader.shared("mixed_narrow", queries * dim)?,
            }),
            None => None,
        };
        let (q, kv) = (queries * head_dim, kv_heads * head_dim);
        Ok(Self {
            q: loader.shared("q", q)?,
            k: loader.shared("k", kv)?,
            v: match narrow {
                Some(_) => loader.filled("v_padded", &vec![0.0; kv])?,
                None => loader.shared("v", kv)?,
            },
            mixed: loader.shared("mixed", q)?,
            narrow,
        })
    }
}

/// A projection, and a norm of each head of its output, with its buffer.
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

/// Queries, keys and values of grouped-query attention, and the projection of what is attended to.
#[derive(Debug)]
pub(super) struct GroupedProjections {
    q: Projected,
    /// `None` where the keys and values are those of an earlier layer.
    kv: Option<KeysAndValues>,
    out: Linear,
    /// Where the outputs of heads are gated.
    gate: Option<HeadGate>,
    rotations: Rotations,
    /// Whether norms follow the rotation.
    norms_last: bool,
    head_dim: usize,
    work: AttentionBuffers,
}

/// What the outputs of heads are multiplied by.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadGate {
    /// Sigmoids of gates from the projection of queries.
    WithQueries {
        /// Queries with their gates: `[rows, heads * 2 * head_dim]`.
        both: Buffer,
        /// `[rows, heads * head_dim]`.
        gate: Buffer,
    },
    /// Functions of gates for parts of the outputs, `[rows, parts]`: one for each value or head.
    Own { linear: Linear, gate: Buffer, how: OwnGate },
}

#[derive(Debug)]
pub(crate) struct GroupedAttention {
    /// Index in this rank's KV cache of the layer whose keys and values are attended to.
    layer: usize,
    projections: GroupedProjections,
    spec: AttentionSpec,
    cache: LayerCache,
}

impl GroupedProjections {
    /// Loads `attn_q`, `attn_k`, `attn_v` and `attn_output`, with norms of heads `attn_q_norm` and
    /// `attn_k_norm`, with gates `attn_gate`: all of this rank's heads, which it returns.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &GroupedSpec) -> Result<(Self, Heads), Error> {
        let GroupedSpec { heads, head_dim, .. } = *spec;
        let own = Heads::of(loader.slice, heads, spec.kv_heads)?;
        let work = AttentionBuffers::new(loader, &own, spec)?;
        let each = |heads: &Range<usize>, dim: usize| heads.start * dim..heads.end * dim;
        let parts = match spec.gate {
            OutputGate::WithQueries => 2 * own.queries.start..2 * own.queries.end,
            OutputGate::None | OutputGate::Own(_) => own.queries.clone(),
        };
        let linear = Linear::load(loader, "attn_q", Slice::Heads(each(&parts, head_dim)))?;
        let q_norm = head_norm(loader, spec, ("attn_q_norm", "q_normed"), own.queries.len())?;
        let gate = HeadGate::load(loader, spec, &own.queries)?;
        let kv = match spec.has_own_keys() {
            true => Some(KeysAndValues::load(loader, spec, &own.kv)?),
            false => None,
        };
        let projections = Self {
            q: Projected { linear, norm: q_norm },
            kv,
            out: Linear::load(
                loader,
                "attn_output",
                Slice::Inputs(each(&own.queries, spec.values_of_head())),
            )?,
            gate,
            rotations: Rotations::load(loader, spec.rotation.as_deref(), spec.growth, head_dim)?,
            norms_last: spec.head_norms.is_some_and(|norms| norms.after_rotation),
            head_dim,
            work,
        };
        Ok((projections, own))
    }

    /// Which part of the outputs each rank has.
    pub fn split(&self) -> Split {
        self.out.split
    }

    /// Queries, `[rows, heads * head_dim]`, and the layer's own keys and values, `[rows, kv_heads *
    /// head_dim]`, of `x`, `[rows, hidden]`.
    pub fn project(&self, pass: &mut ForwardPass<'_>, x: Buffer) -> (Buffer, Option<[Buffer; 2]>) {
        let (rows, dim, q) = (pass.rows(), self.head_dim, self.work.q);
        let heads = |buffer| HeadColumns { buffer, first: 0, stride: dim };
        let projected = match self.gate {
            Some(HeadGate::WithQueries { both, .. }) => both,
            Some(HeadGate::Own { .. }) | None => q,
        };
        let queries = (&self.q.linear, projected);
        match &self.kv {
            Some(kv) => kv.project(pass, x, queries, self.work),
            None => Linear::forward_each(pass, x, [queries], rows),
        }
        match &self.gate {
            Some(HeadGate::WithQueries { both, gate }) => {
                let part = |first| HeadColumns { buffer: *both, first, stride: 2 * dim };
                pass.backend.copy_heads(part(0), dim, heads(q), rows);
                pass.backend.copy_heads(part(dim), dim, heads(*gate), rows);
            }
            Some(HeadGate::Own { linear, gate, .. }) => linear.forward(pass, x, *gate, rows),
            None => {}
        }
        let q = self.normed_and_rotated(pass, q, self.q.norm, self.rotations.queries);
        (q, self.kv.as_ref().map(|kv| self.finished(pass, kv)))
    }

    /// The layer's own keys and values alone.
    fn keys_and_values(&self, pass: &mut ForwardPass<'_>, x: Buffer) -> Option<[Buffer; 2]> {
        let kv = self.kv.as_ref()?;
        let (k, v) = kv.outputs(self.work);
        match v {
            Some(v) => Linear::forward_each(pass, x, [k, v], pass.batch.rows()),
            None => Linear::forward_each(pass, x, [k], pass.batch.rows()),
        }
        Some(self.finished(pass, kv))
    }

    /// Keys and values after their norms and rotation, from what the projections gave.
    fn finished(&self, pass: &mut ForwardPass<'_>, kv: &KeysAndValues) -> [Buffer; 2] {
        let v = kv.values(pass, self.work, self.head_dim);
        let k = self.normed_and_rotated(pass, self.work.k, kv.k.norm, self.rotations.keys);
        [k, v]
    }

    /// The buffer for what heads attend to, `[rows, heads * head_dim]`.
    pub fn mixed(&self) -> Buffer {
        self.work.mixed
    }

    /// Gates what heads attended to, and projects it to `out`, `[rows, hidden]`.
    pub fn output(&self, pass: &mut ForwardPass<'_>, out: Buffer) {
        let rows = pass.rows();
        let mixed = match self.work.narrow {
            None => self.work.mixed,
            Some(NarrowValues { dim, mixed, .. }) => {
                let all = HeadColumns { buffer: self.work.mixed, first: 0, stride: self.head_dim };
                let narrow = HeadColumns { buffer: mixed, first: 0, stride: dim };
                pass.backend.copy_heads(all, dim, narrow, rows);
                mixed
            }
        };
        let gated = self.gate.map_or(mixed, |gate| gate.apply(pass, mixed));
        self.out.forward(pass, gated, out, rows);
    }

    /// Queries or keys after their norm and rotation.
    fn normed_and_rotated(
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

impl GroupedAttention {
    /// Loads the projections, with sinks `attn_sinks`: all of this rank's heads.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the heads cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        place: OpPlace,
        spec: &GroupedSpec,
    ) -> Result<Self, Error> {
        let (projections, own) = GroupedProjections::load(loader, spec)?;
        let sinks = match spec.sinks {
            true => Some(loader.vector_part("attn_sinks.weight", own.queries.clone())?),
            false => None,
        };
        let of_rank =
            GroupedSpec { heads: own.queries.len(), kv_heads: own.kv.len(), ..spec.clone() };
        Ok(Self {
            layer: cached_layer(loader, place.layer, spec.keys)?,
            projections,
            spec: AttentionSpec {
                heads: own.queries.len(),
                scale: spec.scale,
                window: window_of(spec, place.first),
                sinks,
            },
            cache: of_rank.cache(place.layer),
        })
    }

    /// Attention of the queries `q` into `out`, `[rows, heads * head_dim]` each.
    fn attend(&self, pass: &mut ForwardPass<'_>, q: Buffer, out: Buffer) {
        if self.spec.window.ahead == 0 {
            return pass.backend.attention(self.layer, q, out, &self.spec, pass.batch);
        }
        let attention = pass.backend.bidirectional().expect("encoders load where there is one");
        attention.attend_both_ways(self.layer, q, out, &self.spec, pass.batch);
    }
}

impl Operation for GroupedAttention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn split(&self) -> Split {
        self.projections.split()
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let (q, kv) = self.projections.project(pass, x);
        // The rows' keys and values are stored first.
        if let Some([k, v]) = kv {
            pass.backend.store_kv(self.layer, k, Some(v), pass.batch);
        }
        self.attend(pass, q, self.projections.mixed());
        self.projections.output(pass, out);
        Ok(())
    }

    fn keep(&self, pass: &mut ForwardPass<'_>, x: Buffer, _: Buffer) -> Result<(), Error> {
        if let Some([k, v]) = self.projections.keys_and_values(pass, x) {
            pass.backend.store_kv(self.layer, k, Some(v), pass.batch);
        }
        Ok(())
    }
}

impl HeadGate {
    /// Loads that of the heads `own`, where outputs are gated.
    fn load(
        loader: &mut Loader<'_>,
        spec: &GroupedSpec,
        own: &Range<usize>,
    ) -> Result<Option<Self>, Error> {
        let values = own.len() * spec.head_dim;
        let outputs = spec.values_of_head();
        Ok(match spec.gate {
            OutputGate::None => None,
            OutputGate::WithQueries => Some(Self::WithQueries {
                both: loader.shared("q_gate", 2 * values)?,
                gate: loader.shared("gate_q", values)?,
            }),
            OutputGate::Own(how) => Some(Self::load_own(loader, how, own, outputs)?),
        })
    }

    /// Loads `attn_gate` of the heads `own`, whose outputs have `dim` values each.
    ///
    /// # Errors
    /// If the tensor is missing or has another shape, or the device has no memory for it.
    pub fn load_own(
        loader: &mut Loader<'_>,
        how: OwnGate,
        own: &Range<usize>,
        dim: usize,
    ) -> Result<Self, Error> {
        let each = if how.per_head { 1 } else { dim };
        let rows = own.start * each..own.end * each;
        let gate = loader.shared("gate_q", rows.len())?;
        let linear = Linear::load(loader, "attn_gate", Slice::Heads(rows))?;
        Ok(Self::Own { linear, gate, how })
    }

    /// Computes the gates of `x`, `[rows, hidden]`, where they are a projection of their own.
    pub fn project(&self, pass: &mut ForwardPass<'_>, x: Buffer) {
        if let Self::Own { linear, gate, .. } = self {
            linear.forward(pass, x, *gate, pass.rows());
        }
    }

    /// The outputs of heads, `[rows, heads * head_dim]`, after their gates.
    pub fn apply(self, pass: &mut ForwardPass<'_>, mixed: Buffer) -> Buffer {
        let rows = pass.rows();
        let each = |gate| (MapOp::Gate(Gate::Sigmoid, mixed), gate);
        let (op, out) = match self {
            Self::WithQueries { gate, .. } => each(gate),
            Self::Own { gate, how, .. } => match how.function {
                GateFunction::Sigmoid if !how.per_head => each(gate),
                GateFunction::Sigmoid => (MapOp::ScaleBySigmoid(gate), mixed),
                GateFunction::Softplus => (MapOp::ScaleBySoftplus(gate), mixed),
            },
        };
        pass.backend.map(op, out, rows);
        out
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
        spec: &GroupedSpec,
        own: &Range<usize>,
    ) -> Result<Self, Error> {
        let dim = spec.head_dim;
        let mut load = |name: &str, dim: usize| {
            Linear::load(loader, name, Slice::Heads(own.start * dim..own.end * dim))
        };
        let linear = load("attn_k", dim)?;
        let v = match spec.values {
            ValueSource::NormedKeys => None,
            ValueSource::Projected | ValueSource::Normed => {
                Some(load("attn_v", spec.values_of_head())?)
            }
        };
        let norm = head_norm(loader, spec, ("attn_k_norm", "k_normed"), own.len())?;
        let v_norm = match spec.values {
            ValueSource::Projected => None,
            ValueSource::Normed | ValueSource::NormedKeys => {
                let norm = Norm::without_weight(loader, dim, spec.eps);
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
        work: AttentionBuffers,
    ) {
        let rows = pass.rows();
        match self.outputs(work) {
            (keys, Some(values)) => Linear::forward_each(pass, x, [queries, keys, values], rows),
            (keys, None) => Linear::forward_each(pass, x, [queries, keys], rows),
        }
    }

    /// The projections of keys and of values, if these have one, with their outputs.
    fn outputs(&self, work: AttentionBuffers) -> ((&Linear, Buffer), Option<(&Linear, Buffer)>) {
        let v = work.narrow.map_or(work.v, |narrow| narrow.projected);
        ((&self.k.linear, work.k), self.v.as_ref().map(|values| (values, v)))
    }

    /// Values, `[rows, kv_heads * head_dim]`, before keys are changed.
    fn values(&self, pass: &mut ForwardPass<'_>, work: AttentionBuffers, dim: usize) -> Buffer {
        if let Some(NarrowValues { dim: narrow, projected, .. }) = work.narrow {
            let from = HeadColumns { buffer: projected, first: 0, stride: narrow };
            let to = HeadColumns { buffer: work.v, first: 0, stride: dim };
            pass.backend.copy_heads(from, narrow, to, pass.rows());
        }
        let projected = if self.v.is_some() { work.v } else { work.k };
        normalised(pass, projected, self.v_norm)
    }
}

/// Index in this rank's cache of the layer whose keys and values `layer` attends to.
///
/// # Errors
/// If another stage has that layer.
pub(super) fn cached_layer(
    loader: &Loader<'_>,
    layer: usize,
    keys: KeySource,
) -> Result<usize, Error> {
    let of = match keys {
        KeySource::Own => layer,
        KeySource::Layer(earlier) => earlier,
        KeySource::First => 0,
    };
    of.checked_sub(loader.layers.start).ok_or_else(|| {
        let problem = format!("layer {layer} needs keys and values of layer {of}");
        Error::Config(format!("{problem}, which is in another stage"))
    })
}

/// The positions that queries attend to.
fn window_of(spec: &GroupedSpec, first: usize) -> Window {
    let positions = spec.window.unwrap_or(usize::MAX);
    let ahead = match spec.reach {
        Reach::Around if positions == usize::MAX => usize::MAX,
        Reach::Around => positions - 1,
        Reach::Before | Reach::Chunk => 0,
    };
    let is_chunk = spec.reach == Reach::Chunk && positions != usize::MAX;
    Window { positions, is_chunk, ahead, first }
}

/// Loads the norm of each of `heads` heads of queries or of keys, or of all together, with a buffer
/// for its output, where the layer has one.
fn head_norm(
    loader: &mut Loader<'_>,
    spec: &GroupedSpec,
    (name, buffer): (&str, &'static str),
    heads: usize,
) -> Result<Option<(Norm, Buffer)>, Error> {
    let (dim, eps) = (spec.head_dim, spec.eps);
    let Some(norms) = spec.head_norms else { return Ok(None) };
    if norms.whole && loader.slice.ranks() > 1 {
        let problem = "norms over all heads cannot be divided among ranks";
        return Err(Error::Config(problem.to_owned()));
    }
    let norm = match norms.weights {
        true => Norm::load(loader, name, eps)?,
        false => Norm::without_weight(loader, dim, eps),
    };
    Ok(Some((norm, loader.shared(buffer, heads * dim)?)))
}
