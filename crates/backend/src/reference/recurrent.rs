//! Convolutions along positions and recurrences, as they are defined.

use super::gates::{sigmoid, softplus};
use super::machine::Reference;
use super::rows::dot;
use crate::batch::{Batch, StateRows};
use crate::handles::{Buffer, RecurrenceRule, RecurrenceSpec, ShortConv};
use kernels::kv::State;

/// Epsilon of the norms of queries and keys: a constant of the reference implementation.
const EPS: f32 = 1e-6;

/// What a row brings to the recurrence.
struct InputRow {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
}

impl Reference {
    /// Convolution of the stored rows `which` of a layer.
    pub(super) fn convolve(
        &mut self,
        (layer, which): (usize, usize),
        spec: &ShortConv,
        batch: &Batch,
    ) {
        let rows = &self.cache.layers[layer][which];
        let width = rows.spec.dim;
        let weight = &self.vectors[spec.weight.0];
        let kernel = weight.len() / width;
        let mut all = Vec::new();
        for sequence in batch.sequences() {
            let table = rows.table(batch, sequence);
            for position in sequence.position..sequence.end() {
                for channel in 0..width {
                    let bias = spec.bias.map_or(0.0, |bias| self.vectors[bias.0][channel]);
                    let first = (position + 1).saturating_sub(kernel);
                    let sum: f32 = (first..=position)
                        .map(|at| {
                            let tap = kernel - 1 - (position - at);
                            let input = rows.keys.row(rows.slot(at, table))[channel];
                            weight[tap * width + channel] * input
                        })
                        .sum();
                    let sum = sum + bias;
                    all.push(if spec.silu { sum * sigmoid(sum) } else { sum });
                }
            }
        }
        self.buffers[spec.out.0].values[..all.len()].copy_from_slice(&all);
    }

    /// Takes the rows of the batch through the recurrence of a layer.
    pub(super) fn take_through(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        let mut cached = self.cache.states[layer].take().expect("the layer has a state");
        let mut all = Vec::new();
        for sequence in batch.sequences() {
            let StateRows { slot, right, guesses } = sequence.state.expect("a state slot");
            let mut state = cached.slots[slot as usize].clone();
            if sequence.position == 0 {
                state.fill(0.0);
            }
            for [k, v, decay, beta] in cached.waiting[slot as usize].iter().take(right).cloned() {
                let row = InputRow { q: k.clone(), k, v, decay, beta };
                self.step(&cached.spec, spec, &mut state, &row);
            }
            cached.waiting[slot as usize].clear();
            let known = sequence.rows.end - guesses;
            for index in sequence.rows.clone() {
                let row = self.input_row(&cached.spec, spec, index);
                if index == known {
                    cached.slots[slot as usize] = state.clone();
                }
                all.extend(self.step(&cached.spec, spec, &mut state, &row));
                if index >= known {
                    let InputRow { k, v, decay, beta, .. } = row;
                    cached.waiting[slot as usize].push([k, v, decay, beta]);
                }
                for save in batch.saves(sequence).iter().filter(|save| save.row == index) {
                    cached.slots[save.slot as usize] = state.clone();
                }
            }
            if guesses == 0 {
                cached.slots[slot as usize] = state;
            }
        }
        self.buffers[spec.out.0].values[..all.len()].copy_from_slice(&all);
        self.cache.states[layer] = Some(cached);
    }

    fn input_row(&self, state: &State, spec: &RecurrenceSpec, row: usize) -> InputRow {
        let normed = |buffer: Buffer, scale: f32| -> Vec<f32> {
            let heads = self.row(buffer, row).chunks_exact(state.keys);
            heads
                .flat_map(|head| {
                    let factor = scale / (dot(head, head) + EPS).sqrt();
                    head.iter().map(move |value| value * factor)
                })
                .collect()
        };
        let (dt, rate) = (&self.vectors[spec.dt.0], &self.vectors[spec.rate.0]);
        let inputs = self.row(spec.a, row).iter().zip(dt).map(|(a, dt)| a + dt);
        let times = inputs.clone().map(softplus);
        let decay = |times: &[f32]| -> Vec<f32> {
            times.iter().zip(rate).map(|(time, rate)| (rate * time).exp()).collect()
        };
        let v = self.row(spec.v, row).to_vec();
        match spec.rule {
            RecurrenceRule::Delta { b, least } => InputRow {
                q: normed(spec.q, 1.0 / (state.keys as f32).sqrt()),
                k: normed(spec.k, 1.0),
                v,
                decay: match least {
                    None => decay(&times.collect::<Vec<_>>()),
                    Some(least) => {
                        let inputs = inputs.zip(rate);
                        inputs.map(|(x, rate)| (least * sigmoid(-rate * x)).exp()).collect()
                    }
                },
                beta: self.row(b, row).iter().map(|b| sigmoid(*b)).collect(),
            },
            RecurrenceRule::StateSpace { limits: [least, most], .. } => {
                let times: Vec<f32> = times.map(|time| time.clamp(least, most)).collect();
                let (q, k) = (self.row(spec.q, row).to_vec(), self.row(spec.k, row).to_vec());
                InputRow { q, k, v, decay: decay(&times), beta: times }
            }
        }
    }

    /// One row of all heads: changes the state, `[heads, keys, values]`; returns `[heads, values]`.
    fn step(
        &self,
        state_spec: &State,
        spec: &RecurrenceSpec,
        state: &mut [f32],
        row: &InputRow,
    ) -> Vec<f32> {
        let State { heads, key_heads, keys, values, .. } = *state_spec;
        let mut out = Vec::new();
        for (head, state) in state.chunks_exact_mut(keys * values).enumerate() {
            let shared = if spec.tiled { head % key_heads } else { head / (heads / key_heads) };
            let (q, k) = (&row.q[shared * keys..][..keys], &row.k[shared * keys..][..keys]);
            let v = &row.v[head * values..][..values];
            let decay = &row.decay[head * state_spec.decays()..][..state_spec.decays()];
            for (values, decay) in state.chunks_exact_mut(values).zip(decay.iter().cycle()) {
                values.iter_mut().for_each(|value| *value *= decay);
            }
            for (column, v) in v.iter().enumerate() {
                let entry = |key: usize| key * values + column;
                let (known, skip): (f32, f32) = match spec.rule {
                    RecurrenceRule::Delta { .. } => {
                        ((0..keys).map(|key| state[entry(key)] * k[key]).sum(), 0.0)
                    }
                    RecurrenceRule::StateSpace { skip, .. } => (0.0, self.vectors[skip.0][head]),
                };
                let change = (v - known) * row.beta[head];
                (0..keys).for_each(|key| state[entry(key)] += k[key] * change);
                let read: f32 = (0..keys).map(|key| state[entry(key)] * q[key]).sum();
                out.push(read + skip * v);
            }
        }
        out
    }
}
