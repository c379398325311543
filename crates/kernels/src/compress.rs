//! Compression of consecutive rows to one: a softmax over the rows for each channel, and the
//! weighted sum (the compressors of DeepSeek V4).
//!
//! Rows are added in ascending order, each channel on its own, so that the result depends on
//! neither where rows lie nor which other channels are computed.

use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};
use crate::math::exp_to_one;
use std::ops::Range;

/// One of the rows that become one.
#[derive(Clone, Copy, Debug)]
pub struct PoolSlot<'a> {
    /// Values of the channels.
    pub value: &'a [f32],
    /// Gates of the channels.
    pub gate: &'a [f32],
    /// What is added to the gates.
    pub bias: &'a [f32],
}

isa_dispatch! {
    /// `out[c] = sum over slots of weight * value[c]`, where the weights of channel `c` are the
    /// softmax of `gate[c] + bias[c]` over the slots. There is at least one slot, and every slice
    /// has the length of `out`.
    pub fn pool(slots: &[PoolSlot<'_>], out: &mut [f32]) = pool_body
}

#[inline(always)]
fn pool_body<L: Lanes>(slots: &[PoolSlot<'_>], out: &mut [f32]) {
    let len = out.len();
    let fits = |row: &[f32]| row.len() == len;
    let whole = |slot: &PoolSlot<'_>| fits(slot.value) && fits(slot.gate) && fits(slot.bias);
    assert!(!slots.is_empty() && slots.iter().all(whole), "slots of {len} channels");
    for (index, out) in out.chunks_mut(LANES).enumerate() {
        let start = index * LANES;
        let at = start..start + out.len();
        let mut max = gate::<L>(&slots[0], &at);
        for slot in &slots[1..] {
            max = max.max(gate(slot, &at));
        }
        let (mut weights, mut values) = (L::splat(0.0), L::splat(0.0));
        for slot in slots {
            let weight = exp_to_one(gate::<L>(slot, &at).sub(max));
            weights = weights.add(weight);
            values = weight.mul_add(load::<L>(&slot.value[at.clone()]), values);
        }
        let mut pooled = [0.0; LANES];
        values.div(weights).store(&mut pooled);
        out.copy_from_slice(&pooled[..out.len()]);
    }
}

/// Gates with what is added to them.
#[inline(always)]
fn gate<L: Lanes>(slot: &PoolSlot<'_>, at: &Range<usize>) -> L {
    load::<L>(&slot.gate[at.clone()]).add(load(&slot.bias[at.clone()]))
}

/// Up to sixteen values.
#[inline(always)]
fn load<L: Lanes>(from: &[f32]) -> L {
    match from.first_chunk() {
        Some(whole) => L::load(whole),
        None => load_partial(from, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use base::Rng;

    #[test]
    fn pooling_follows_its_definition_on_every_isa() {
        for (count, channels) in [(1, 16), (4, 40), (8, 128), (3, 7), (128, 64), (16, 33)] {
            let mut rng = Rng::new((count * channels) as u64);
            let mut random =
                |len: usize| (0..len).map(|_| 3.0 * rng.normal()).collect::<Vec<f32>>();
            let all = count * channels;
            let (values, gates, biases) = (random(all), random(all), random(all));
            let slots: Vec<_> = (0..count)
                .map(|j| {
                    let row = j * channels..(j + 1) * channels;
                    PoolSlot {
                        value: &values[row.clone()],
                        gate: &gates[row.clone()],
                        bias: &biases[row],
                    }
                })
                .collect();
            let mut want = vec![f32::NAN; channels];
            pool(Isa::SCALAR, &slots, &mut want);
            for (c, got) in want.iter().enumerate() {
                let weight = |slot: &PoolSlot<'_>| f64::from(slot.gate[c] + slot.bias[c]).exp();
                let weights: f64 = slots.iter().map(weight).sum();
                let sum: f64 = slots.iter().map(|s| weight(s) * f64::from(s.value[c])).sum();
                assert!((f64::from(*got) - sum / weights).abs() < 1e-5, "{got}");
            }
            for isa in Isa::available() {
                let mut got = vec![f32::NAN; channels];
                pool(isa, &slots, &mut got);
                assert_eq!(got, want, "{isa:?}");
                // A channel has the same bits among fewer channels.
                let some = channels / 2;
                let fewer = |row: &[f32]| row[some..].to_vec();
                let parts: Vec<_> = slots
                    .iter()
                    .map(|slot| [fewer(slot.value), fewer(slot.gate), fewer(slot.bias)])
                    .collect();
                let parts: Vec<_> = parts
                    .iter()
                    .map(|[value, gate, bias]| PoolSlot { value, gate, bias })
                    .collect();
                let mut got = vec![f32::NAN; channels - some];
                pool(isa, &parts, &mut got);
                assert_eq!(got, want[some..], "{isa:?}");
            }
        }
    }

    #[test]
    fn gates_of_any_size_give_weights() {
        let (huge, tiny) = ([3e38; 5], [-3e38; 5]);
        let (a, b) = ([2.0; 5], [6.0; 5]);
        for isa in Isa::available() {
            let run = |gates: [&[f32]; 2]| {
                let slots = [(&a, gates[0]), (&b, gates[1])].map(|(value, gate)| PoolSlot {
                    value,
                    gate,
                    bias: &[0.0; 5],
                });
                let mut out = [f32::NAN; 5];
                pool(isa, &slots, &mut out);
                out
            };
            assert_eq!(run([&huge, &huge]), [4.0; 5], "{isa:?}");
            assert_eq!(run([&tiny, &huge]), [6.0; 5], "{isa:?}");
            assert_eq!(run([&tiny, &tiny]), [4.0; 5], "{isa:?}");
        }
    }
}
