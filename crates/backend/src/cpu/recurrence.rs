//! Recurrences: a matrix per head that every row reads and changes.
//!
//! Heads of sequences are spread over the threads; a thread takes all rows of a head one after
//! another. Where a state is saved after a row, all heads are computed up to that row first.

use super::Cpu;
use super::products::scratch;
use super::states::StatePlace;
use crate::{Batch, Buffer, Gate, RecurrenceRule, RecurrenceSpec, SequenceRows, StateRows};
use base::PairCut;
use kernels::delta::{self, DeltaRows, StateRule, Strided};
use kernels::elementwise;
use kernels::kv::STATE_TILE;
use std::ops::Range;

/// Epsilon of the norms of queries and keys: a constant of the reference.
const EPS: f32 = 1e-6;

/// The pieces of a call; kept, so that the next one allocates nothing.
#[derive(Default)]
pub(super) struct RecurrencePlan {
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

impl Cpu {
    /// Normalises queries and keys for the delta rule, and turns gates into decays and betas.
    pub(super) fn prepare_recurrence(
        &mut self,
        place: StatePlace,
        spec: &RecurrenceSpec,
        rows: usize,
    ) {
        match spec.rule {
            RecurrenceRule::Delta { b } => {
                let keys = place.state.keys;
                self.unit_heads(spec.q, keys, 1.0 / (keys as f32).sqrt(), rows);
                self.unit_heads(spec.k, keys, 1.0, rows);
                self.each_row("recurrence_gates", (spec.beta, rows), |this, row, beta| {
                    beta.copy_from_slice(this.row(b, row));
                    elementwise::activate(this.isa, Gate::Sigmoid, beta);
                });
            }
            RecurrenceRule::StateSpace { limits, .. } => {
                self.each_row("recurrence_gates", (spec.beta, rows), |this, row, times| {
                    let (a, dt) = (this.row(spec.a, row), &this.vectors[spec.dt.0]);
                    delta::step_times(this.isa, a, dt, limits, times);
                });
            }
        }
        self.each_row("recurrence_gates", (spec.decay, rows), |this, row, decay| {
            match spec.rule {
                RecurrenceRule::Delta { .. } => {
                    let (a, dt) = (this.row(spec.a, row), &this.vectors[spec.dt.0]);
                    delta::step_times(this.isa, a, dt, [0.0, f32::INFINITY], decay);
                }
                RecurrenceRule::StateSpace { .. } => {
                    decay.copy_from_slice(this.row(spec.beta, row));
                }
            }
            delta::decays(this.isa, &this.vectors[spec.rate.0], decay);
        });
    }

    /// Divides heads of `keys` values by their length, times `scale`.
    fn unit_heads(&mut self, x: Buffer, keys: usize, scale: f32, rows: usize) {
        self.each_row("recurrence_inputs", (x, rows), |this, _, row| {
            let heads = row.chunks_exact_mut(keys);
            heads.for_each(|head| delta::l2_normalise(this.isa, head, EPS, scale));
        });
    }

    /// Computes all rows: outputs, states, saved states.
    pub(super) fn run_recurrence(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        self.pool.begin("recurrence");
        let place = self.states.place(layer);
        let most = batch.sequences().iter().map(|sequence| batch.saves(sequence).len()).max();
        let mut plan = std::mem::take(&mut self.recurrence);
        for round in 0..=most.unwrap_or(0) {
            plan.cut(batch, round);
            self.recurrence_round((place, round), spec, batch, &plan);
            for sequence in batch.sequences() {
                if let Some(save) = batch.saves(sequence).get(round) {
                    self.states.copy_layer(place, slot_of(sequence).slot, save.slot);
                }
            }
        }
        self.recurrence = plan;
        self.keep_guesses(place, spec, batch);
    }

    fn recurrence_round(
        &mut self,
        (place, round): (StatePlace, usize),
        spec: &RecurrenceSpec,
        batch: &Batch,
        plan: &RecurrencePlan,
    ) {
        let (values, width) = (place.state.values, self.width(spec.out));
        let mut out = self.take(spec.out);
        let mut states = std::mem::take(&mut self.states.data);
        let (this, stride) = (&*self, self.states.stride);
        this.pool.for_each_pair(
            (&mut out[..batch.rows() * width], width),
            (&mut states, stride, place.start),
            (&plan.cuts, (values, place.head())),
            |piece, mut out, mut state| {
                let sequence = &batch.sequences()[plan.sequences[piece]];
                let head = out.cols().start / values;
                let slot = state.rows().start;
                let task = HeadTask { this, place, spec, sequence, head };
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
        self.put(spec.out, out);
        self.states.data = states;
    }

    /// Keeps the inputs of guessed rows, which the next step folds if they proved right.
    fn keep_guesses(&mut self, place: StatePlace, spec: &RecurrenceSpec, batch: &Batch) {
        for sequence in batch.sequences() {
            let StateRows { slot, guesses, .. } = slot_of(sequence);
            for (guess, row) in (sequence.rows.end - guesses..sequence.rows.end).enumerate() {
                let outs = self.states.waiting_row(place, slot, guess);
                for (out, from) in outs.into_iter().zip([spec.k, spec.v, spec.decay, spec.beta]) {
                    let super::Workspace { width, data } = &self.buffers[from.0];
                    out.copy_from_slice(&data[row * width..][..*width]);
                }
            }
        }
    }
}

/// One head of the rows of a sequence.
struct HeadTask<'a> {
    this: &'a Cpu,
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
                StateRule::StateSpace { skip: self.this.vectors[skip.0][self.head] }
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
        let (waiting, key_head) = (self.this.states.waiting(self.place, slot), self.key_head());
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
            delta::delta_rule(self.this.isa, state, &inputs, columns.len(), None);
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
        let (this, state_spec, key_head) = (self.this, self.place.state, self.key_head());
        let part = |buffer: Buffer, first: usize| Strided {
            data: &this.read_rows(buffer, rows.clone())[first..],
            stride: this.width(buffer),
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
        delta::delta_rule(this.isa, state, &inputs, columns.len(), Some((out, STATE_TILE)));
    }
}
