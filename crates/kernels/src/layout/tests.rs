//! Laws of all layouts: one order of every sum, one size of packed weights.

mod naive;

use super::*;
use crate::quant::{self, F16, NATIVE, TYPES, fp8::FP8};
use base::{AlignedVec, Rng, ThreadPool};

/// Every layout with every type that it takes.
fn cases() -> Vec<(&'static Layout, &'static QuantType)> {
    let types = TYPES.iter().chain(NATIVE).copied();
    let layouts = || PACKED.into_iter().chain([&STORED]);
    let all = types.flat_map(|ty| layouts().map(move |layout| (layout, ty)));
    all.filter(|(layout, ty)| layout.bytes(ty, GROUP, 256).is_some()).collect()
}

/// The instruction sets that have products of a layout.
fn isas(layout: &Layout) -> impl Iterator<Item = Isa> {
    let activations = layout.activations;
    Isa::available().into_iter().filter(move |isa| activations.run_on(*isa))
}

/// Weights of any bits a file may hold, but with factors of moderate size.
pub(super) fn weights(ty: &'static QuantType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![0; ty.bytes_for(rows * cols).unwrap()];
    let blocks = bytes.chunks_exact_mut(ty.block_bytes);
    if ENTRIES.contains(&ty) {
        blocks.for_each(|block| entry_block(ty, block, &mut rng));
        return bytes;
    }
    let Some(quantize) = ty.quantize else {
        blocks.for_each(|block| native_block(ty, block, &mut rng));
        return bytes;
    };
    let values: Vec<f32> = (0..rows * cols).map(|_| rng.normal()).collect();
    quantize(&values, None, &mut bytes);
    bytes
}

/// Types of codebook entries, of which all numbers exist, and whose search takes long.
const ENTRIES: [&QuantType; 7] = [
    &quant::IQ1_S,
    &quant::IQ1_M,
    &quant::IQ2_XXS,
    &quant::IQ2_XS,
    &quant::IQ2_S,
    &quant::IQ3_XXS,
    &quant::IQ3_S,
];

/// A block of codebook entries: the bits of an f16 factor, then any.
fn entry_block(ty: &QuantType, block: &mut [u8], rng: &mut Rng) {
    block.fill_with(|| rng.next_u64() as u8);
    let factor = half::f16::from_f32(rng.normal() / 500.0).to_le_bytes();
    match ty.name {
        "iq1_m" => {
            // Its nibbles are the high ones of four words.
            for (i, word) in block[48..].chunks_exact_mut(2).enumerate() {
                word[1] = word[1] & 15 | factor[i / 2] >> (i % 2 * 4) << 4;
            }
        }
        _ => block[..2].copy_from_slice(&factor),
    }
}

/// A block of FP8 codes, of grouped integers or of NVFP4: a scale of f32, then what the type has.
fn native_block(ty: &QuantType, block: &mut [u8], rng: &mut Rng) {
    block.fill_with(|| rng.next_u64() as u8);
    block[..4].copy_from_slice(&(rng.normal() / 7.0).to_le_bytes());
    match ty.name {
        "int4" => block[4] = rng.below(17) as u8,
        "int8" => block[4..6].copy_from_slice(&(rng.below(257) as i16 - 128).to_le_bytes()),
        "nvfp4_32" => {
            // One scale for the whole matrix, which multiplies.
            block[..4].copy_from_slice(&0.0037f32.to_le_bytes());
            block[4] = 0;
            block[5..7].iter_mut().for_each(|code| *code -= u8::from(*code & 0x7f == 0x7f));
        }
        // No code for NaN.
        _ => block[4..].iter_mut().for_each(|code| *code -= u8::from(*code & 0x7f == 0x7f)),
    }
}

pub(super) fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.normal() * 3.0).collect()
}

/// All groups of a matrix, packed over `fill`.
pub(super) fn packed_over(
    fill: u8,
    isa: Isa,
    layout: &Layout,
    file: Weights<'_>,
) -> AlignedVec<u8> {
    let Weights { ty, rows, cols, bytes } = file;
    let mut packed = AlignedVec::zeroed(layout.bytes(ty, rows, cols).unwrap());
    packed.fill(fill);
    let group_rows = GROUP * ty.bytes_for(cols).unwrap();
    let groups = packed.chunks_mut(layout.bytes(ty, GROUP, cols).unwrap());
    assert_eq!(groups.len(), bytes.len().div_ceil(group_rows));
    for (rows, group) in bytes.chunks(group_rows).zip(groups) {
        layout.pack(isa, ty, cols, rows, group);
    }
    packed
}

/// Outputs `[rows of x, rows of the weights]`, in tiles of `columns`.
pub(super) fn product(
    isa: Isa,
    layout: &Layout,
    x: &[f32],
    weights: Weights<'_>,
    columns: usize,
) -> Vec<f32> {
    let (rows, cols, activations) = (x.len() / weights.cols, weights.cols, layout.activations);
    let mut words = vec![0; activations.words(rows, cols)];
    activations.round(isa, x, cols, &mut words);
    let inputs = Inputs { activations, rows, cols, words: &words };
    let mut out = vec![f32::NAN; rows * weights.rows];
    let tile = (rows, columns);
    ThreadPool::new(1).unwrap().for_each_tile(&mut out, weights.rows, tile, |mut tile| {
        layout.product(isa, inputs, weights, &mut tile);
    });
    out
}

/// Rows of inputs, outputs and about as many inputs, rounded up to whole quant blocks.
const SHAPES: [[usize; 3]; 7] = [
    [1, 5, 1],
    [3, 17, 33],
    [7, 40, 96],
    [13, 37, 600],
    [2, 66, 1100],
    [17, 33, 2304],
    [131, 20, 1216],
];

/// Calls `f` with every layout and type, and weights and inputs of each shape.
fn each_case(f: impl Fn(&'static Layout, Weights<'_>, &[f32])) {
    for (layout, ty) in cases() {
        for [m, rows, cols] in SHAPES {
            let cols = cols.next_multiple_of(ty.block_len);
            let bytes = weights(ty, rows, cols, 4);
            f(layout, Weights { ty, rows, cols, bytes: &bytes }, &random(m * cols, 5));
        }
    }
}

#[test]
fn every_layout_matches_its_naive_sum_bit_for_bit() {
    each_case(|layout, file, x| {
        let packed = packed_over(0, Isa::SCALAR, layout, file);
        let stored = Weights { bytes: &packed, ..file };
        for isa in isas(layout) {
            if isa == Isa::SCALAR && file.rows * x.len() > 500_000 {
                continue; // takes long
            }
            let want = naive::product(isa, layout, x, file);
            for columns in [16, 48] {
                let got = product(isa, layout, x, stored, columns);
                let shape = (x.len() / file.cols, file.rows, file.cols);
                assert!(got == want, "{} {} on {isa:?}: {shape:?}", layout.name, file.ty);
            }
        }
    });
}

/// Rows that are cut into panels, unpacked and held in all ways.
const ROW_COUNTS: [usize; 31] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    27, 63, 64, 65, 79,
];

#[test]
fn few_rows_give_the_bits_of_one() {
    for (layout, ty) in cases() {
        let (rows, cols) = (GROUP + 3, 512);
        let bytes = weights(ty, rows, cols, 6);
        let file = Weights { ty, rows, cols, bytes: &bytes };
        let packed = packed_over(0, Isa::SCALAR, layout, file);
        let stored = Weights { bytes: &packed, ..file };
        let x = random(ROW_COUNTS.into_iter().max().unwrap() * cols, 7);
        for isa in isas(layout) {
            let alone = x.chunks_exact(cols).flat_map(|row| product(isa, layout, row, stored, 64));
            let alone: Vec<f32> = alone.collect();
            for count in ROW_COUNTS {
                let together = product(isa, layout, &x[..count * cols], stored, rows);
                assert!(together == alone[..count * rows], "{isa:?} {ty}: {count} rows");
            }
        }
    }
}

#[test]
fn products_agree_with_dequantised_weights_times_inputs() {
    for (layout, ty) in cases() {
        let [m, rows, cols] = [3, 21, 512];
        let bytes = weights(ty, rows, cols, 2);
        let mut values = vec![0.0; rows * cols];
        (ty.dequantize.unwrap())(&bytes, &mut values);
        let file = Weights { ty, rows, cols, bytes: &bytes };
        let packed = packed_over(0, Isa::SCALAR, layout, file);
        let x = random(m * cols, 3);
        // Half a step of what the inputs are rounded to, relative to the largest of a block.
        let step = match layout.activations {
            Activations::F32 | Activations::F32Panels => 1e-6,
            Activations::Bf16 => 4e-3,
            Activations::Int8 => 2e-2,
        };
        for isa in isas(layout) {
            let got = product(isa, layout, &x, Weights { bytes: &packed, ..file }, rows);
            for (at, got) in got.into_iter().enumerate() {
                let (x, w) = (&x[at / rows * cols..][..cols], &values[at % rows * cols..][..cols]);
                let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let (want, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
                let off = (f64::from(got) - want).abs();
                assert!(off <= step * size, "{} {ty} [{at}]: {got} is not {want}", layout.name);
            }
        }
    }
}

#[test]
fn every_isa_packs_the_bytes_of_scalar() {
    for (layout, ty) in cases() {
        for (rows, blocks) in [(16, 8), (16, 24), (7, 8), (16, 9)] {
            let cols = (blocks * 32usize).next_multiple_of(ty.block_len);
            let mut rng = Rng::new(8);
            let bytes = ty.bytes_for(rows * cols).unwrap();
            let bytes: Vec<u8> = (0..bytes).map(|_| rng.next_u64() as u8).collect();
            let file = Weights { ty, rows, cols, bytes: &bytes };
            let want = packed_over(0, Isa::SCALAR, layout, file);
            for isa in Isa::available() {
                assert!(*packed_over(0, isa, layout, file) == *want, "{isa:?} {ty} {rows}x{cols}");
            }
        }
    }
}

#[test]
fn packed_size_matches_prediction() {
    for ty in TYPES.iter().chain(NATIVE).copied() {
        for layout in PACKED.into_iter().chain([&STORED]) {
            for (rows, cols) in [(1, 1), (1, 31), (15, 32), (16, 96), (17, 256), (33, 1280)] {
                let Some(len) = layout.bytes(ty, rows, cols) else { continue };
                // `pack` panics where a group has another size. What it leaves as it was is
                // padding to whole lines of scales, and nothing where layouts have none.
                let bytes = vec![0x3c; ty.bytes_for(cols).unwrap() * rows];
                let file = Weights { ty, rows, cols, bytes: &bytes };
                let [zeros, ones] =
                    [0, 0xff].map(|fill| packed_over(fill, Isa::SCALAR, layout, file));
                let left = zeros.iter().zip(&*ones).filter(|(a, b)| a != b).count();
                let spans = rows.div_ceil(GROUP) * cols.div_ceil(256);
                assert_eq!((zeros.len(), ones.len()), (len, len));
                let padding = if layout.activations == Activations::Int8 { 63 * spans } else { 0 };
                assert!(left <= padding, "{} {ty} {rows}x{cols}: {left} unused", layout.name);
            }
        }
    }
}

#[test]
fn types_go_to_the_layout_whose_products_the_isa_has() {
    let name = |ty, cols, isa| packed(ty, cols, isa).map(|layout| layout.name);
    for isa in Isa::available() {
        let bf16 = |name| isa.has_bf16_dot().then_some(name);
        assert_eq!(name(&crate::quant::Q8_0, 64, isa), Some("int8"));
        assert_eq!(name(&crate::quant::Q8_0, 65, isa), None);
        assert_eq!(name(&crate::quant::BF16, 65, isa), bf16("bf16").or(Some("f32")));
        assert_eq!(name(FP8[0], 256, isa), bf16("fp8").or(Some("f32")));
        assert_eq!(name(&F16, 64, isa), Some("f32"));
        assert_eq!(name(&crate::quant::BF16, 0, isa), None);
    }
}
