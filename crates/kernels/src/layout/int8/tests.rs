use super::activations::{RECORD, word};
use super::*;
use crate::Isa;
use crate::quant::{BLOCK, NATIVE, QuantType, TYPES};
use base::{AlignedVec, Rng, ThreadPool};

fn packable() -> impl Iterator<Item = &'static QuantType> {
    TYPES.iter().chain(NATIVE).copied().filter(|ty| ty.packing.is_some())
}

/// Weights of any bits a file may hold, but with factors of moderate size.
fn weights(ty: &'static QuantType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![0; ty.bytes_for(rows * cols).unwrap()];
    let Some(quantize) = ty.quantize else {
        bytes.chunks_exact_mut(ty.block_bytes).for_each(|block| grouped(block, &mut rng));
        return bytes;
    };
    let values: Vec<f32> = (0..rows * cols).map(|_| rng.normal()).collect();
    quantize(&values, None, &mut bytes);
    bytes
}

/// A block of grouped integers: `INT4`, or `INT8`.
fn grouped(block: &mut [u8], rng: &mut Rng) {
    block.fill_with(|| rng.next_u64() as u8);
    block[..4].copy_from_slice(&(rng.normal() / 7.0).to_le_bytes());
    match block.len() {
        21 => block[4] = rng.below(17) as u8,
        _ => block[4..6].copy_from_slice(&(rng.below(257) as i16 - 128).to_le_bytes()),
    }
}

fn pack_all(ty: &'static QuantType, rows: usize, cols: usize, bytes: &[u8]) -> AlignedVec<u8> {
    let layout = ty.packing.unwrap().code_layout;
    let mut packed = AlignedVec::zeroed(Packed::bytes_for(layout, rows, cols));
    let group = packed.len() / rows.div_ceil(GROUP);
    let group_rows = ty.bytes_for(cols).unwrap() * GROUP;
    for (bytes, group) in bytes.chunks(group_rows).zip(packed.chunks_exact_mut(group)) {
        pack(Isa::SCALAR, ty, cols, bytes, group);
    }
    packed
}

#[test]
fn every_isa_packs_the_bytes_of_scalar() {
    for ty in packable() {
        for (rows, blocks) in [(16, 8), (16, 24), (7, 8), (16, 9)] {
            let cols = (blocks * BLOCK).next_multiple_of(ty.block_len);
            let mut rng = Rng::new(8);
            let bytes = ty.bytes_for(rows * cols).unwrap();
            let bytes: Vec<u8> = (0..bytes).map(|_| rng.next_u64() as u8).collect();
            let want = pack_all(ty, rows, cols, &bytes);
            for isa in Isa::available() {
                let mut got = AlignedVec::zeroed(want.len());
                pack(isa, ty, cols, &bytes, &mut got);
                assert!(*got == *want, "{isa:?} {ty} {rows}x{cols}");
            }
        }
    }
}

fn activations(isa: Isa, x: &[f32], cols: usize) -> Vec<u32> {
    let mut out = vec![0; words(x.len() / cols, cols)];
    quantise(isa, x, cols, &mut out);
    out
}

/// `[m, rows]` outputs, in tiles of `columns`.
fn product(isa: Isa, x: &[f32], weights: Packed<'_>, columns: usize) -> Vec<f32> {
    let m = x.len() / weights.cols;
    let words = activations(isa, x, weights.cols);
    let input = Activations { words: &words, rows: m, cols: weights.cols };
    let mut out = vec![f32::NAN; m * weights.rows];
    ThreadPool::new(1).unwrap().for_each_tile(&mut out, weights.rows, (m, columns), |mut tile| {
        matmul(isa, input, weights, &mut tile);
    });
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

fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.normal() * 3.0).collect()
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

#[test]
fn products_agree_with_dequantised_weights_times_rounded_activations() {
    for ty in packable() {
        let (m, n, k) = (3, 21, 512);
        let bytes = weights(ty, n, k, 2);
        let mut values = vec![0.0; n * k];
        (ty.dequantize.unwrap())(&bytes, &mut values);
        let packed = pack_all(ty, n, k, &bytes);
        let layout = ty.packing.unwrap().code_layout;
        let x = random(m * k, 3);
        let got = product(Isa::SCALAR, &x, Packed { layout, rows: n, cols: k, bytes: &packed }, n);
        for (i, row) in x.chunks_exact(k).enumerate() {
            let row: Vec<f64> = rounded(row)
                .into_iter()
                .flat_map(|(b, s)| b.into_iter().map(move |b| f64::from(b) * f64::from(s)))
                .collect();
            for (j, w) in values.chunks_exact(k).enumerate() {
                let terms = row.iter().zip(w).map(|(x, w)| x * f64::from(*w));
                let (want, size) =
                    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let got = f64::from(got[i * n + j]);
                assert!((got - want).abs() <= size * 1e-5, "{ty} [{i}, {j}]: {got} is not {want}");
            }
        }
    }
}

#[test]
fn every_isa_and_tile_gives_the_bits_of_scalar() {
    for ty in packable() {
        for (m, n, k) in [(1, 16, 256), (2, 70, 256), (13, 37, 512), (31, 100, 256)] {
            let bytes = weights(ty, n, k, 4);
            let packed = pack_all(ty, n, k, &bytes);
            let layout = ty.packing.unwrap().code_layout;
            let weights = Packed { layout, rows: n, cols: k, bytes: &packed };
            let x = random(m * k, 5);
            let want = product(Isa::SCALAR, &x, weights, n);
            for isa in Isa::available() {
                for columns in [16, 48, 112] {
                    assert_eq!(
                        product(isa, &x, weights, columns),
                        want,
                        "{isa:?} {ty} {m}x{n}x{k}"
                    );
                }
            }
        }
    }
}

#[test]
fn runs_of_weights_taken_apart_give_the_bits_of_scalar() {
    let (m, n, k) = (23, 37, 2304);
    for ty in packable().filter(|ty| ["q2_k", "q3_k", "q6_k"].contains(&ty.name)) {
        let bytes = weights(ty, n, k, 8);
        let packed = pack_all(ty, n, k, &bytes);
        let layout = ty.packing.unwrap().code_layout;
        let weights = Packed { layout, rows: n, cols: k, bytes: &packed };
        let x = random(m * k, 9);
        let want = product(Isa::SCALAR, &x[..2 * k], weights, n);
        for isa in Isa::available() {
            assert_eq!(product(isa, &x, weights, 48)[..2 * n], want, "{isa:?} {ty}");
        }
    }
}

#[test]
fn one_row_alone_has_the_bits_it_has_among_many() {
    for ty in packable() {
        let (m, n, k) = (11, 80, 256);
        let bytes = weights(ty, n, k, 6);
        let packed = pack_all(ty, n, k, &bytes);
        let layout = ty.packing.unwrap().code_layout;
        let weights = Packed { layout, rows: n, cols: k, bytes: &packed };
        let x = random(m * k, 7);
        for isa in Isa::available() {
            let whole = product(isa, &x, weights, n);
            for (row, want) in x.chunks_exact(k).zip(whole.chunks_exact(n)) {
                assert_eq!(product(isa, row, weights, 64), want, "{isa:?} {ty}");
            }
        }
    }
}
