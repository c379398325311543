//! What the machine, not this program, contributes to bits: products of BF16 pairs, whose rounding
//! is the CPU's own.

use crate::isa::Isa;
use crate::layout::{GROUP, Inputs, Weights, packed};
use crate::quant::by_name;
use base::{AlignedVec, ThreadPool};

/// Values that are equal on machines that give equal bits: a fixed product of BF16 pairs, or
/// nothing if `isa` has none.
pub fn fingerprint(isa: Isa) -> Vec<f32> {
    product(isa).unwrap_or_default()
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
        sign * (1.0 + (at * 37 % 128) as f32 / 128.0) * base::math::exp2(f64::from(size)) as f32
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
        for isa in Isa::available() {
            let values = fingerprint(isa);
            let expected = if isa.has_bf16_dot() { 5 * GROUP } else { 0 };
            assert_eq!(values.len(), expected, "{isa:?}");
            assert!(values.iter().all(|value| value.is_finite()), "{isa:?}");
            assert_eq!(values, fingerprint(isa));
        }
    }
}
