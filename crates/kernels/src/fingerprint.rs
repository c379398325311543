//! What the machine, not this program, contributes to bits: sine and cosine of the system's
//! mathematical library, and products of BF16 pairs, whose rounding is the CPU's own.

use crate::isa::Isa;
use crate::layout::{GROUP, Inputs, Weights, packed};
use crate::quant::by_name;
use base::{AlignedVec, ThreadPool};

/// Values that are equal on machines that give equal bits: rotary angles of fixed positions and, if
/// `isa` has products of BF16 pairs, a fixed product.
pub fn fingerprint(isa: Isa) -> Vec<f32> {
    let mut values = angles();
    values.extend(product(isa).into_iter().flatten());
    values
}

fn angles() -> Vec<f32> {
    const PAIRS: usize = 64;
    let frequencies: [f32; PAIRS] = std::array::from_fn(|pair| 1e4f32.powf(-(pair as f32) / 64.0));
    let (mut cos, mut sin) = ([0.0; PAIRS], [0.0; PAIRS]);
    let mut values = frequencies.to_vec();
    for position in [1, 31, 4095, 131_071, 1_000_003] {
        crate::rope::angles(position, &frequencies, 1.0, &mut cos, &mut sin);
        values.extend(cos.iter().chain(&sin));
    }
    values
}

/// A product of BF16 weights with BF16 activations: of many sizes, so that the order of sums, what
/// is rounded between them, and numbers near the smallest can be told.
fn product(isa: Isa) -> Option<Vec<f32>> {
    const COLS: usize = 96;
    const ROWS: usize = 5;
    let ty = by_name("bf16").filter(|_| isa.has_bf16_dot())?;
    let layout = packed(ty, COLS, isa)?;
    let value = |at: usize| {
        let sign = if at.is_multiple_of(3) { -1.0 } else { 1.0 };
        let size = ((at * 7) % 23) as i32 - 11 - if at.is_multiple_of(31) { 60 } else { 0 };
        sign * (1.0 + (at * 37 % 128) as f32 / 128.0) * 2f32.powi(size)
    };
    let weights = (0..GROUP * COLS).map(|at| half::bf16::from_f32(value(at)));
    let bytes: Vec<u8> = weights.flat_map(half::bf16::to_le_bytes).collect();
    let mut group = AlignedVec::zeroed(layout.bytes(ty, GROUP, COLS)?);
    layout.pack(isa, ty, COLS, &bytes, &mut group);
    let x: Vec<f32> = (0..ROWS * COLS).map(|at| value(at * 5 + 1)).collect();
    let mut words = vec![0; layout.activations.words(ROWS, COLS)];
    layout.activations.round(isa, &x, COLS, &mut words);
    let inputs = Inputs { activations: layout.activations, rows: ROWS, cols: COLS, words: &words };
    let weights = Weights { ty, rows: GROUP, cols: COLS, bytes: &group };
    let mut out = vec![0.0; ROWS * GROUP];
    let pool = ThreadPool::new(1).ok()?;
    pool.for_each_tile(&mut out, GROUP, (ROWS, GROUP), |mut tile| {
        layout.product(isa, inputs, weights, &mut tile);
    });
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_pairs_are_part_of_it_where_there_are_any() {
        let angles = angles().len();
        for isa in Isa::available() {
            let values = fingerprint(isa);
            let expected = if isa.has_bf16_dot() { angles + 5 * GROUP } else { angles };
            assert_eq!(values.len(), expected, "{isa:?}");
            assert!(values.iter().all(|value| value.is_finite()), "{isa:?}");
            assert_eq!(values, fingerprint(isa));
        }
    }
}
