use super::activations::{RECORD, word};
use super::*;
use crate::Isa;
use crate::layout::tests::random;
use crate::quant::BLOCK;

fn activations(isa: Isa, x: &[f32], cols: usize) -> Vec<u32> {
    let mut out = vec![0; words(x.len() / cols, cols)];
    round(isa, x, cols, &mut out);
    out
}

/// Values and integers of one row as its activations were rounded.
fn rounded(row: &[f32]) -> Vec<(Vec<i8>, f32)> {
    let words = activations(Isa::SCALAR, row, row.len());
    let records = words.chunks_exact(RECORD);
    records
        .map(|r| {
            let bytes = r[..8].iter().flat_map(|w| w.to_le_bytes()).map(|b| b as i8).collect();
            (bytes, f32::from_bits(r[word::SCALE]))
        })
        .collect()
}

#[test]
fn rounded_activations_are_as_near_as_bytes_can_be() {
    let x = random(256, 1);
    for (block, (bytes, scale)) in x.chunks_exact(BLOCK).zip(rounded(&x)) {
        let largest = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert_eq!(scale, largest / 127.0);
        for (value, byte) in block.iter().zip(bytes) {
            assert!((value - f32::from(byte) * scale).abs() <= scale * 0.501, "{value}");
        }
    }
}

#[test]
fn extreme_activations_stay_bounded_or_give_nan() {
    let tiny = [f32::MIN_POSITIVE / 64.0; 32];
    let (bytes, scale) = rounded(&tiny).remove(0);
    assert!(scale.is_finite() && bytes.iter().all(|b| (0..=127).contains(b)));
    assert_eq!(rounded(&[0.0; 32]), [(vec![0; 32], 0.0)]);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 17, 31] {
            let mut x = [1.0; 32];
            x[at] = bad;
            for isa in Isa::available() {
                assert!(f32::from_bits(activations(isa, &x, 32)[word::SCALE]).is_nan(), "{isa:?}");
            }
        }
    }
}
