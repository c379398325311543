//! Recurrences: a matrix per head that every row reads and changes.
//!
//! Heads of sequences are spread over the threads; a thread takes all rows of a head one after
//! another. Where a state is saved after a row, all heads are computed up to that row first.

use crate::batch::{Batch, SequenceRows, StateRows};
use crate::cpu::core::CpuCore;
use crate::cpu::scratch::scratch;
use crate::cpu::states::{StateMemory, StatePlace};
use crate::handles::{Buffer, Gate, RecurrenceRule, RecurrenceSpec};
use base::PairCut;
use kernels::delta::{self, DeltaRows, StateRule, Strided};
use kernels::elementwise;
use kernels::kv::STATE_TILE;
use std::ops::Range;

/// Epsilon of the norms of queries and keys: a constant of the reference.
const EPS: f32 = 1e-6;

/// The pieces of a call; kept, so that the next one allocates nothing.
#[derive(Default)]
pub(in crate::cpu) struct RecurrencePlan {
    /// Rows and state slot of each piece.
    cuts: Vec<PairCut>,
    /// Index of the sequence of each piece.
    sequences: Vec<usize>,
}

impl RecurrencePlan {
    /// Lists the rows of each sequence from its `round`-th save on, up to the next.
    fn cut(&mut self, batch: &Batch, round: usize) {
        self.cuts.clear();
        self.sequences.clear();
        for (index, sequence) in batch.sequences().iter().enumerate() {
            let (saves, rows) = (batch.saves(sequence), sequence.rows.clone());
            let behind = |save: usize| saves.get(save).map(|save| save.row + 1);
            let first = match round {
                0 => Some(rows.start),
                _ => behind(round - 1),
            };
            let Some(first) = first.filter(|first| *first < rows.end) else { continue };
            let row = slot_of(sequence).slot as usize;
            let rows = first..behind(round).unwrap_or(rows.end);
            self.cuts.push(PairCut { rows, row });
            self.sequences.push(index);
        }
    }
}

fn slot_of(sequence: &SequenceRows) -> StateRows {
    sequence.state.expect("a sequence of a model with states has a slot")
}

impl RecurrencePlan {
    /// Takes the rows of the batch through the recurrence of a layer.
    pub fn recur(
        &mut self,
        core: &mut CpuCore,
        states: &mut StateMemory,
        layer: usize,
        spec: &RecurrenceSpec,
        batch: &Batch,
    ) {
        let place = states.place(layer);
        prepare(core, place, spec, batch.rows());
        core.pool.begin("recurrence");
        let most = batch.sequences().iter().map(|sequence| batch.saves(sequence).len()).max();
        for round in 0..=most.unwrap_or(0) {
            self.cut(batch, round);
            self.compute(core, states, (place, round), spec, batch);
            for sequence in batch.sequences() {
                if let Some(save) = batch.saves(sequence).get(round) {
                    states.copy_layer(place, slot_of(sequence).slot, save.slot);
                }
            }
        }
        keep_guesses(core, states, place, spec, batch);
    }

    /// Computes the rows of a round: outputs and states.
    fn compute(
        &self,
        core: &mut CpuCore,
        states: &mut StateMemory,
        (place, round): (StatePlace, usize),
        spec: &RecurrenceSpec,
        batch: &Batch,
    ) {
        let (values, width) = (place.state.values, core.width(spec.out));
        let mut out = core.take(spec.out);
        let mut data = std::mem::take(&mut states.data);
        let (core_here, states_here, stride) = (&*core, &*states, states.stride);
        core.pool.for_each_pair(
            (&mut out[..batch.rows() * width], width),
            (&mut data, stride, place.start),
            (&self.cuts, (values, place.head())),
            |piece, mut out, mut state| {
                let sequence = &batch.sequences()[self.sequences[piece]];
                let head = out.cols().start / values;
                let slot = state.rows().start;
                let (core, states) = (core_here, states_here);
                let task = HeadTask { core, states, place, spec, sequence, head };
                let rows = out.rows();
                let state = state.row_mut(slot);
                if round == 0 {
                    task.begin(state);
                }
                task.run(rows, state, |row, column, values| {
                    out.row_mut(row)[column..][..values.len()].copy_from_slice(values);
                });
            },
        );
        core.put(spec.out, out);
        states.data = data;
    }
}

/// Normalises queries and keys for the delta rule, and turns gates into decays and betas.
fn prepare(core: &mut CpuCore, place: StatePlace, spec: &RecurrenceSpec, rows: usize) {
    match spec.rule {
        RecurrenceRule::Delta { b, .. } => {
            let keys = place.state.keys;
            unit_heads(core, spec.q, (keys, 1.0 / (keys as f32).sqrt()), rows);
            unit_heads(core, spec.k, (keys, 1.0), rows);
            core.each_row("recurrence_gates", (spec.beta, rows), |core, row, beta| {
                beta.copy_from_slice(core.row(b, row));
                elementwise::activate(core.isa, Gate::Sigmoid, beta);
            });
        }
        RecurrenceRule::StateSpace { limits, .. } => {
            core.each_row("recurrence_gates", (spec.beta, rows), |core, row, times| {
                let (a, dt) = (core.row(spec.a, row), &core.vectors[spec.dt.0]);
                delta::step_times(core.isa, a, dt, limits, times);
            });
        }
    }
    core.each_row("recurrence_gates", (spec.decay, rows), |core, row, decay| {
        match spec.rule {
            RecurrenceRule::Delta { least: Some(least), .. } => {
                return bounded_decays(core, spec, least, row, decay);
            }
            RecurrenceRule::Delta { least: None, .. } => {
                let (a, dt) = (core.row(spec.a, row), &core.vectors[spec.dt.0]);
                delta::step_times(core.isa, a, dt, [0.0, f32::INFINITY], decay);
            }
            RecurrenceRule::StateSpace { .. } => {
                decay.copy_from_slice(core.row(spec.beta, row));
            }
        }
        delta::decays(core.isa, &core.vectors[spec.rate.0], decay);
    });
}

/// Decays of a row of which the logarithm is at least `least`.
fn bounded_decays(
    core: &CpuCore,
    spec: &RecurrenceSpec,
    least: f32,
    row: usize,
    decay: &mut [f32],
) {
    decay.copy_from_slice(core.row(spec.a, row));
    elementwise::add(core.isa, decay, &core.vectors[spec.dt.0]);
    elementwise::apply_gate(core.isa, Gate::Product, decay, &core.vectors[spec.rate.0]);
    elementwise::scale(core.isa, decay, -1.0);
    elementwise::activate(core.isa, Gate::Sigmoid, decay);
    scratch(decay.len(), |bounds| {
        bounds.fill(least);
        delta::decays(core.isa, bounds, decay);
    });
}

/// Divides heads of `keys` values by their length, times `scale`.
fn unit_heads(core: &mut CpuCore, x: Buffer, (keys, scale): (usize, f32), rows: usize) {
    core.each_row("recurrence_inputs", (x, rows), |core, _, row| {
        let heads = row.chunks_exact_mut(keys);
        heads.for_each(|head| delta::l2_normalise(core.isa, head, EPS, scale));
    });
}

/// Keeps the inputs of guessed rows, which the next step folds if they proved right.
fn keep_guesses(
    core: &CpuCore,
    states: &mut StateMemory,
    place: StatePlace,
    spec: &RecurrenceSpec,
    batch: &Batch,
) {
    for sequence in batch.sequences() {
        let StateRows { slot, guesses, .. } = slot_of(sequence);
        for (guess, row) in (sequence.rows.end - guesses..sequence.rows.end).enumerate() {
            let outs = states.waiting_row(place, slot, guess);
            for (out, from) in outs.into_iter().zip([spec.k, spec.v, spec.decay, spec.beta]) {
                out.copy_from_slice(core.row(from, row));
            }
        }
    }
}

/// One head of the rows of a sequence.
struct HeadTask<'a> {
    core: &'a CpuCore,
    states: &'a StateMemory,
    place: StatePlace,
    spec: &'a RecurrenceSpec,
    sequence: &'a SequenceRows,
    head: usize,
}

impl HeadTask<'_> {
    /// The head of keys that the head shares.
    fn key_head(&self) -> usize {
        let state = self.place.state;
        match self.spec.tiled {
            true => self.head % state.key_heads,
            false => self.head / (state.heads / state.key_heads),
        }
    }

    fn rule(&self) -> StateRule {
        match self.spec.rule {
            RecurrenceRule::Delta { .. } => StateRule::Delta,
            RecurrenceRule::StateSpace { skip, .. } => {
                StateRule::StateSpace { skip: self.core.vectors[skip.0][self.head] }
            }
        }
    }

    /// The tiles of the head's state, and the columns of each.
    fn tiles<'s>(
        &self,
        state: &'s mut [f32],
    ) -> impl Iterator<Item = (&'s mut [f32], Range<usize>)> {
        let values = self.place.state.values;
        state.chunks_exact_mut(self.place.state.tile()).enumerate().map(move |(tile, state)| {
            let first = tile * STATE_TILE;
            (state, first..(first + STATE_TILE).min(values))
        })
    }

    /// Empties the state at the first position; folds the guesses that proved right.
    fn begin(&self, state: &mut [f32]) {
        if self.sequence.position == 0 {
            state.fill(0.0);
        }
        let StateRows { slot, right, .. } = slot_of(self.sequence);
        if right == 0 {
            return;
        }
        let (waiting, key_head) = (self.states.waiting(self.place, slot), self.key_head());
        let stride = waiting.stride();
        let strided = |data| Strided { data, stride };
        for (state, columns) in self.tiles(state) {
            let inputs = DeltaRows {
                keys: self.place.state.keys,
                rows: right,
                q: strided(waiting.key(key_head)),
                k: strided(waiting.key(key_head)),
                v: strided(&waiting.value(self.head)[columns.start..]),
                decay: strided(waiting.decay(self.head)),
                per_channel: self.place.state.channel_decay,
                beta: strided(waiting.beta(self.head)),
                rule: self.rule(),
            };
            delta::delta_rule(self.core.isa, state, &inputs, columns.len(), None);
        }
    }

    /// Computes `rows`, and calls `put(row, first column, outputs)`. Rows of guesses leave the
    /// state as it is.
    fn run(
        &self,
        rows: Range<usize>,
        state: &mut [f32],
        mut put: impl FnMut(usize, usize, &[f32]),
    ) {
        let known = self.sequence.rows.end - slot_of(self.sequence).guesses;
        let known = rows.start..rows.end.min(known);
        let guessed = known.end..rows.end;
        let size = self.place.state.tile();
        for (state, columns) in self.tiles(state) {
            scratch(rows.len() * STATE_TILE + size, |values| {
                let (outs, copy) = values.split_at_mut(rows.len() * STATE_TILE);
                let (first, last) = outs.split_at_mut(known.len() * STATE_TILE);
                self.rows(known.clone(), state, &columns, first);
                if !guessed.is_empty() {
                    copy.copy_from_slice(state);
                    self.rows(guessed.clone(), copy, &columns, last);
                }
                for (row, values) in rows.clone().zip(outs.chunks_exact(STATE_TILE)) {
                    put(row, columns.start, &values[..columns.len()]);
                }
            });
        }
    }

    fn rows(&self, rows: Range<usize>, state: &mut [f32], columns: &Range<usize>, out: &mut [f32]) {
        if rows.is_empty() {
            return;
        }
        let (core, state_spec, key_head) = (self.core, self.place.state, self.key_head());
        let part = |buffer: Buffer, first: usize| Strided {
            data: &core.read_rows(buffer, rows.clone())[first..],
            stride: core.width(buffer),
        };
        let spec = self.spec;
        let inputs = DeltaRows {
            keys: state_spec.keys,
            rows: rows.len(),
            q: part(spec.q, key_head * state_spec.keys),
            k: part(spec.k, key_head * state_spec.keys),
            v: part(spec.v, self.head * state_spec.values + columns.start),
            decay: part(spec.decay, self.head * state_spec.decays()),
            per_channel: state_spec.channel_decay,
            beta: part(spec.beta, self.head),
            rule: self.rule(),
        };
        delta::delta_rule(core.isa, state, &inputs, columns.len(), Some((out, STATE_TILE)));
    }
}
