//! Short convolutions, recurrences, and the states of recurrent layers.

use crate::gpu::{Access, Kernel};
use crate::parts::{EACH, EXP_TO_ONE, LANES, SIGMOID, dealt, workgroups};
use crate::webgpu::held::cache::PlainPlaces;
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::states::waiting_row;
use crate::webgpu::held::step::{Places, STEP};
use crate::webgpu::kv::{PLAIN_ROWS, STORED};
use crate::wgsl::params;
use backend::{Batch, Buffer, Error, RecurrenceRule, RecurrenceSpec, ShortConv, State, Vector};

/// Epsilon of the norms of queries and keys: a constant of the reference implementation.
const EPS: f32 = 1e-6;

/// Values of a key up to which the smaller kernel suffices.
const FEW_KEYS: usize = 128;
/// Value columns of a workgroup.
const COLUMNS: usize = 16;

static CONV: Kernel = Kernel {
    name: "short_conv",
    source: &[
        ConvParams::WGSL,
        include_str!("../shaders/short_conv.wgsl"),
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
        SIGMOID,
        EXP_TO_ONE,
        EACH,
    ],
    bindings: &[Access::Read, Access::Write, Access::Read, Access::Read, Access::Write],
};
static COPY: Kernel = Kernel {
    name: "state_copy",
    source: &[CopyParams::WGSL, include_str!("../shaders/state_copy.wgsl"), EACH],
    bindings: &[Access::Write, Access::Read],
};
static NORM: Kernel = Kernel {
    name: "delta_norm",
    source: &[NormParams::WGSL, include_str!("../shaders/delta_norm.wgsl"), LANES],
    bindings: &[Access::Write],
};
static DECAYS: Kernel = Kernel {
    name: "recurrence_decays",
    source: &[DecayParams::WGSL, include_str!("../shaders/decays.wgsl"), SIGMOID, EXP_TO_ONE, EACH],
    bindings: &[Access::Write, Access::Read, Access::Read, Access::Write],
};
static TIMES: Kernel = Kernel {
    name: "recurrence_times",
    source: &[
        DecayParams::WGSL,
        include_str!("../shaders/step_times.wgsl"),
        SIGMOID,
        EXP_TO_ONE,
        EACH,
    ],
    bindings: &[Access::Write, Access::Read, Access::Write],
};
static BETAS: Kernel = Kernel {
    name: "recurrence_betas",
    source: &[
        BetaParams::WGSL,
        include_str!("../shaders/sigmoids.wgsl"),
        SIGMOID,
        EXP_TO_ONE,
        EACH,
    ],
    bindings: &[Access::Write, Access::Write],
};
static DELTA_FEW: Kernel = Kernel {
    name: "delta_rule of few keys",
    source: &[
        "const PER = 16u;\n",
        DeltaParams::WGSL,
        include_str!("../shaders/delta_rule.wgsl"),
        Places::WGSL,
        STEP,
    ],
    bindings: &DELTA_BINDINGS,
};
static DELTA_MANY: Kernel = Kernel {
    name: "delta_rule of many keys",
    source: &[
        "const PER = 32u;\n",
        DeltaParams::WGSL,
        include_str!("../shaders/delta_rule.wgsl"),
        Places::WGSL,
        STEP,
    ],
    bindings: &DELTA_BINDINGS,
};
const DELTA_BINDINGS: [Access; 10] = [
    Access::Read,
    Access::Read,
    Access::Write,
    Access::Write,
    Access::Write,
    Access::Write,
    Access::Write,
    Access::Write,
    Access::Write,
    Access::Write,
];
static KEEP: Kernel = Kernel {
    name: "delta_keep",
    source: &[
        KeepParams::WGSL,
        include_str!("../shaders/delta_keep.wgsl"),
        Places::WGSL,
        STEP,
        EACH,
    ],
    bindings: &[
        Access::Read,
        Access::Write,
        Access::Write,
        Access::Write,
        Access::Write,
        Access::Write,
    ],
};

params! {
    struct CopyParams {
        count: u32,
        pairs: u32,
        pairs_at: u32,
    }
}

params! {
    struct BetaParams {
        count: u32,
    }
}

params! {
    struct ConvParams {
        places: Places,
        cached: PlainPlaces,
        count: u32,
        kernel: u32,
        biased: u32,
        silu: u32,
    }
}

params! {
    struct NormParams {
        units: u32,
        len: u32,
        eps: f32,
        scale: f32,
    }
}

params! {
    struct DecayParams {
        count: u32,
        decays: u32,
        least: f32,
        most: f32,
        /// Least logarithm of decays; 0 where they have none.
        bound: f32,
    }
}

params! {
    struct DeltaParams {
        places: Places,
        /// Heads of states: those of the memory that is bound, and the first of them.
        heads: u32,
        first_head: u32,
        all_heads: u32,
        key_heads: u32,
        keys: u32,
        values: u32,
        tiled: u32,
        /// Rows that may wait in a slot, and values of each: keys, values, decays and betas.
        guesses: u32,
        waiting_row: u32,
        /// Decays of a head: one, or one for each key.
        decays: u32,
        /// Whether values are added instead of corrections.
        space: u32,
    }
}

params! {
    struct KeepParams {
        places: Places,
        /// Most guesses of a sequence in this batch, and of a slot.
        most: u32,
        guesses: u32,
        waiting_row: u32,
        keys: u32,
        values: u32,
        decays: u32,
        heads: u32,
        count: u32,
    }
}

impl WebGpu {
    /// Copies the matrices of all layers, one pair of slots (from, to) after the other.
    pub(crate) fn copy_state_slots(&mut self, copies: &[(u32, u32)]) {
        if copies.is_empty() {
            return;
        }
        let pairs: Vec<u32> = copies.iter().flat_map(|&(from, to)| [from, to]).collect();
        let inbox = self.gpu.inbox();
        for layer in self.states.layers.iter().flatten() {
            for (_, heads, part) in layer.parts() {
                let count = heads * layer.state.keys * layer.state.values;
                // A run may submit, and what was sent before is then overwritten.
                let at = self.gpu.send(&pairs);
                let (count_of, pairs) = (count as u32, copies.len() as u32);
                let params = CopyParams { count: count_of, pairs, pairs_at: at };
                let bound = [part, &inbox];
                self.gpu.run(&COPY, dealt(count), &bound, &params);
            }
        }
    }

    /// Stores the rows of `x`, `[rows, channels]`, and computes the convolution over what is
    /// stored.
    pub(crate) fn convolve(
        &mut self,
        layer: usize,
        which: usize,
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        self.store_plain(layer, which, x);
        let cached = self.kv.rows(layer, which);
        let weight = &self.vectors[spec.weight.0];
        let count = batch.rows() * cached.rows.dim;
        let params = ConvParams {
            places: self.step.places(),
            cached: cached.plain(),
            count: count as u32,
            kernel: (weight.len() / cached.rows.dim) as u32,
            biased: u32::from(spec.bias.is_some()),
            silu: u32::from(spec.silu),
        };
        let bias = spec.bias.map_or(weight, |bias| &self.vectors[bias.0]);
        let out = &self.buffers[spec.out.0].words;
        let bound = [self.step.words(), &cached.words, weight, bias, out];
        self.gpu.run(&CONV, dealt(count), &bound, &params);
    }

    /// Takes the rows of the batch through the recurrence of a layer. Leaves queries and keys
    /// normalised.
    pub(crate) fn take_through(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        let Some(kept) = self.states.layers.get(layer).and_then(Option::as_ref) else {
            let problem = format!("device wgpu: layer {layer} has no state");
            return self.note(Err(Error::Device(problem)));
        };
        let (state, rows) = (kept.state, batch.rows());
        if let RecurrenceRule::Delta { .. } = spec.rule {
            self.unit_heads(spec.q, state.keys, 1.0 / (state.keys as f32).sqrt(), rows);
            self.unit_heads(spec.k, state.keys, 1.0, rows);
        }
        self.recurrence_gates(spec, state, rows);
        self.delta_rows(layer, spec, batch);
        self.keep_guesses(layer, spec, batch);
    }

    /// Normalises each head of `x`, times `scale`.
    fn unit_heads(&mut self, x: Buffer, len: usize, scale: f32, rows: usize) {
        let buffer = &self.buffers[x.0];
        let units = rows * buffer.width / len;
        let params = NormParams { units: units as u32, len: len as u32, eps: EPS, scale };
        self.gpu.run(&NORM, workgroups(units), &[&buffer.words], &params);
    }

    /// Computes decays and betas.
    fn recurrence_gates(&mut self, spec: &RecurrenceSpec, state: State, rows: usize) {
        let buffer = |buffer: Buffer| &self.buffers[buffer.0].words;
        let vector = |vector: Vector| &self.vectors[vector.0];
        let [least, most] = match spec.rule {
            RecurrenceRule::Delta { .. } => [0.0, f32::MAX],
            RecurrenceRule::StateSpace { limits, .. } => limits,
        };
        let decays = state.heads * state.decays();
        let count = rows * decays;
        let bound = match spec.rule {
            RecurrenceRule::Delta { least, .. } => least.unwrap_or(0.0),
            RecurrenceRule::StateSpace { .. } => 0.0,
        };
        let params = DecayParams { count: count as u32, decays: decays as u32, least, most, bound };
        let bound = [buffer(spec.a), vector(spec.dt), vector(spec.rate), buffer(spec.decay)];
        self.gpu.run(&DECAYS, dealt(count), &bound, &params);
        let count = rows * state.heads;
        match spec.rule {
            RecurrenceRule::Delta { b, .. } => {
                let bound = [buffer(b), buffer(spec.beta)];
                self.gpu.run(&BETAS, dealt(count), &bound, &BetaParams { count: count as u32 });
            }
            // The lengths of steps come from the inputs of decays.
            RecurrenceRule::StateSpace { .. } => {
                let params = DecayParams { count: count as u32, ..params };
                let bound = [buffer(spec.a), vector(spec.dt), buffer(spec.beta)];
                self.gpu.run(&TIMES, dealt(count), &bound, &params);
            }
        }
    }

    /// Computes outputs, states and saved states.
    fn delta_rows(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        let Some(kept) = &self.states.layers[layer] else { return };
        let State { heads: all_heads, key_heads, keys, values, .. } = kept.state;
        let skip = match spec.rule {
            RecurrenceRule::Delta { .. } => None,
            RecurrenceRule::StateSpace { skip, .. } => Some(skip),
        };
        let kernel = if keys > FEW_KEYS { &DELTA_MANY } else { &DELTA_FEW };
        for (first, heads, part) in kept.parts() {
            let params = DeltaParams {
                places: self.step.places(),
                heads: heads as u32,
                first_head: first as u32,
                all_heads: all_heads as u32,
                key_heads: key_heads as u32,
                keys: keys as u32,
                values: values as u32,
                tiled: u32::from(spec.tiled),
                guesses: kept.guesses as u32,
                waiting_row: waiting_row(&kept.state) as u32,
                decays: kept.state.decays() as u32,
                space: u32::from(skip.is_some()),
            };
            let buffers = [spec.q, spec.k, spec.v, spec.decay, spec.beta, spec.out];
            let [q, k, v, decay, beta, out] = buffers.map(|buffer| &self.buffers[buffer.0].words);
            let skips = skip.map_or(self.step.words(), |skip| &self.vectors[skip.0]);
            let bound = [self.step.words(), skips, part, &kept.waiting, q, k, v, decay, beta, out];
            let groups = batch.sequences().len() * heads * values.div_ceil(COLUMNS);
            self.gpu.run(kernel, workgroups(groups), &bound, &params);
        }
    }

    /// Keeps the inputs of guessed rows, which the next step folds if they proved right.
    fn keep_guesses(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        let Some(kept) = &self.states.layers[layer] else { return };
        let guesses = |state: backend::StateRows| state.guesses;
        let states = batch.sequences().iter().filter_map(|sequence| sequence.state);
        let most = states.map(guesses).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        if most > kept.guesses {
            let problem =
                format!("device wgpu: {most} guesses, of which {} may wait", kept.guesses);
            return self.note(Err(Error::Device(problem)));
        }
        let State { heads, key_heads, keys, values, .. } = kept.state;
        let row = waiting_row(&kept.state);
        let count = batch.sequences().len() * most * row;
        let params = KeepParams {
            places: self.step.places(),
            most: most as u32,
            guesses: kept.guesses as u32,
            waiting_row: row as u32,
            keys: (key_heads * keys) as u32,
            values: (heads * values) as u32,
            decays: (heads * kept.state.decays()) as u32,
            heads: heads as u32,
            count: count as u32,
        };
        let buffers = [spec.k, spec.v, spec.decay, spec.beta];
        let [k, v, decay, beta] = buffers.map(|buffer| &self.buffers[buffer.0].words);
        let bound = [self.step.words(), &kept.waiting, k, v, decay, beta];
        self.gpu.run(&KEEP, dealt(count), &bound, &params);
    }
}

#[cfg(test)]
mod tests;
