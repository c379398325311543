//! The sums of each layout as plain loops: the order that its module documents, element by element.

use super::super::{Isa, Layout, Weights};
use crate::quant::{
    BLOCK, BlockScales, CodeLayout, FLOATS_DOUBLED, IQ2_LEVELS, IQ3_S_LEVELS, IQ3_XXS_LEVELS,
    IQ4_LEVELS, QuantType, RowSpan, SPAN, fp8, grids,
};
use half::{bf16, f16};

/// Outputs `[rows of x, rows of the weights]` from weights as the file stores them.
pub fn product(isa: Isa, layout: &Layout, x: &[f32], file: Weights<'_>) -> Vec<f32> {
    let Weights { ty, cols, bytes, .. } = file;
    let rows: Vec<&[u8]> = bytes.chunks_exact(ty.bytes_for(cols).unwrap()).collect();
    let inputs = x.chunks_exact(cols);
    match layout.name {
        "int8" => {
            let weights: Vec<_> = rows.iter().map(|row| int_blocks(ty, row)).collect();
            let inputs = inputs.map(|x| x.chunks_exact(BLOCK).map(rounded).collect::<Vec<_>>());
            inputs
                .flat_map(|x| weights.iter().map(move |w| int8(&x, w)).collect::<Vec<_>>())
                .collect()
        }
        name => {
            let weights: Vec<_> = rows.iter().map(|row| values(ty, row)).collect();
            let dot = |x: &[f32], w: &[f32], row: &[u8]| match name {
                "stored" => stored(x, w),
                "f32" if fp8::FP8.contains(&ty) => fp8(ty, x, row, ascending),
                "f32" => ascending(x, w),
                "bf16" if isa.has_tiles() => tiles(x, w),
                "bf16" => pairs(x, w),
                _ => fp8(ty, x, row, pairs),
            };
            let all = inputs.flat_map(|x| {
                let x: Vec<f32> = match name {
                    "stored" | "f32" => x.to_vec(),
                    _ => x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect(),
                };
                let outputs = weights.iter().zip(&rows).map(|(w, row)| dot(&x, w, row));
                outputs.collect::<Vec<_>>()
            });
            all.collect()
        }
    }
}

fn values(ty: &QuantType, row: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; row.len() / ty.block_bytes * ty.block_len];
    (ty.dequantize.unwrap())(row, &mut values);
    values
}

/// Runs of 1024, sixteen lanes each, folded by halves.
fn stored(x: &[f32], w: &[f32]) -> f32 {
    let runs = x.chunks(1024).zip(w.chunks(1024)).map(|(x, w)| {
        let mut lanes = [0.0f32; 16];
        for (at, (x, w)) in x.iter().zip(w).enumerate() {
            lanes[at % 16] = x.mul_add(*w, lanes[at % 16]);
        }
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|lane| lanes[lane] += lanes[lane + half]);
        }
        lanes[0]
    });
    runs.reduce(|sum, run| sum + run).unwrap()
}

/// Inputs in ascending order.
fn ascending(x: &[f32], w: &[f32]) -> f32 {
    x.iter().zip(w).fold(0.0, |sum, (x, w)| x.mul_add(*w, sum))
}

/// Pairs of inputs in ascending order, the second of a pair first.
fn pairs(x: &[f32], w: &[f32]) -> f32 {
    x.chunks(2)
        .zip(w.chunks(2))
        .fold(0.0, |sum, (x, w)| x.iter().zip(w).rev().fold(sum, |sum, (x, w)| x.mul_add(*w, sum)))
}

/// Steps of 32 inputs: even inputs and odd ones on their own, and both to the sum.
fn tiles(x: &[f32], w: &[f32]) -> f32 {
    x.chunks(32).zip(w.chunks(32)).fold(0.0, |sum, (x, w)| {
        let mut parts = [0.0f32; 2];
        for (at, (x, w)) in x.iter().zip(w).enumerate() {
            parts[at % 2] = x.mul_add(*w, parts[at % 2]);
        }
        sum + (parts[0] + parts[1])
    })
}

/// Runs under one scale, each of pairs from zero.
fn fp8(ty: &QuantType, x: &[f32], row: &[u8], dot: fn(&[f32], &[f32]) -> f32) -> f32 {
    let runs = x.chunks_exact(ty.block_len).zip(row.chunks_exact(ty.block_bytes));
    runs.fold(0.0, |sum, (x, run)| {
        let (scale, codes) = run.split_at(4);
        let w: Vec<_> = codes.iter().map(|code| crate::quant::fp8::value(*code)).collect();
        dot(x, &w).mul_add(f32::from_le_bytes(scale.try_into().unwrap()), sum)
    })
}

/// Inputs of a block as bytes, and their scale.
fn rounded(x: &[f32]) -> ([i32; BLOCK], f32) {
    let largest = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let inverse = if largest > 0.0 { (127.0 / largest).min(f32::MAX) } else { 0.0 };
    (std::array::from_fn(|i| (x[i] * inverse).round_ties_even() as i32), largest / 127.0)
}

/// Weights of a block: whole numbers, and scale and minimum of each part.
struct IntBlock {
    values: [i32; BLOCK],
    scales: Vec<f32>,
    mins: Vec<f32>,
}

/// The blocks of a row.
fn int_blocks(ty: &QuantType, row: &[u8]) -> Vec<IntBlock> {
    let packing = ty.packing.unwrap();
    let spans = row.chunks(SPAN * BLOCK / ty.block_len * ty.block_bytes);
    let blocks = spans.flat_map(|bytes| {
        let mut span = RowSpan::EMPTY;
        (packing.unpack)(Isa::SCALAR, bytes, &mut span);
        let count = bytes.len() / ty.block_bytes * ty.block_len / BLOCK;
        (0..count).map(move |block| {
            let scales = &span.scales[block * BLOCK / ty.block_len];
            int_block(packing.code_layout, &span.codes[block * BLOCK..], scales, block)
        })
    });
    blocks.collect()
}

fn int_block(layout: CodeLayout, codes: &[u8], from: &BlockScales, block: usize) -> IntBlock {
    use CodeLayout::*;
    let value = |i: usize| match layout {
        Bytes | BytesZero => i32::from(codes[i] as i8),
        Levels | SuperLevels => i32::from(IQ4_LEVELS[usize::from(codes[i])]),
        Floats | SuperFloats | RunFloats => i32::from(FLOATS_DOUBLED[usize::from(codes[i])]),
        Four => i32::from(codes[i]) - 8,
        Five => i32::from(codes[i]) - 16,
        SuperThree => i32::from(codes[i]) - 4,
        SuperSix => i32::from(codes[i]) - 32,
        Ternary | Two => i32::from(codes[i]) - 1,
        Signs => 2 * i32::from(codes[i]) - 1,
        FourMin | FiveMin | SuperTwoMin | SuperFourMin | SuperFiveMin | FourZero => codes[i].into(),
        Iq1S | Iq1M => {
            let down = codes[i / 8 * 8] & 128 != 0;
            8 * (entry(&grids::IQ1, codes, i, 8) - 1) + if down { -1 } else { 1 }
        }
        Iq2Xxs => signed(codes[i], &IQ2_LEVELS, entry(&grids::IQ2_XXS, codes, i, 8)),
        Iq2Xs => signed(codes[i], &IQ2_LEVELS, entry(&grids::IQ2_XS, codes, i, 8)),
        Iq2S => signed(codes[i], &IQ2_LEVELS, entry(&grids::IQ2_S, codes, i, 8)),
        Iq3Xxs => signed(codes[i], &IQ3_XXS_LEVELS, entry(&grids::IQ3_XXS, codes, i, 4)),
        Iq3S => signed(codes[i], &IQ3_S_LEVELS, entry(&grids::IQ3_S, codes, i, 4)),
    };
    let [scale, min] = [from.scale, from.min].map(|bits| f16::from_bits(bits).to_f32());
    let parts = |factor: f32, steps: &[i8; 16], parts: usize| -> Vec<f32> {
        steps[block * parts..][..parts].iter().map(|step| factor * f32::from(*step)).collect()
    };
    // Of other layouts, whose steps are any bytes, it is not used.
    let odd = from.scales.map(|step| step.wrapping_mul(2).wrapping_add(1));
    let (scales, mins) = match layout {
        Bytes | Four | Five | Levels | Signs | Two => (vec![scale], vec![]),
        FourMin | FiveMin => (vec![scale], vec![min]),
        Floats => (vec![f32::from_bits(u32::from(from.scale) << 16)], vec![]),
        FourZero | BytesZero => (vec![from.wide], vec![from.wide * f32::from(from.zero)]),
        SuperTwoMin => (parts(scale, &from.scales, 2), parts(min, &from.mins, 2)),
        SuperThree | SuperSix => (parts(scale, &from.scales, 2), vec![]),
        SuperFourMin | SuperFiveMin => (parts(scale, &from.scales, 1), parts(min, &from.mins, 1)),
        SuperLevels | Ternary => (parts(scale, &from.scales, 1), vec![]),
        Iq1S | Iq2Xxs => (parts(scale / 8.0, &odd, 1), vec![]),
        Iq1M | Iq2Xs | Iq2S => (parts(scale / 8.0, &odd, 2), vec![]),
        Iq3Xxs => (parts(scale / 4.0, &odd, 1), vec![]),
        Iq3S => (parts(scale, &odd, 1), vec![]),
        RunFloats => {
            let scales = from.scales[block % 2 * 2..][..2].iter();
            (scales.map(|code| 0.5 * fp8::value(*code as u8)).collect(), vec![])
        }
        SuperFloats => {
            let scales = from.scales[..2].iter().map(|code| from.wide * fp8::value(*code as u8));
            (scales.collect(), vec![])
        }
    };
    IntBlock { values: std::array::from_fn(value), scales, mins }
}

/// The level of code `i`, which belongs to an entry of `len` codes.
fn entry(grid: &[u16], codes: &[u8], i: usize, len: usize) -> i32 {
    let number = |at: usize| usize::from(codes[i / len * len + at] & 127);
    let bits = if len == 8 { 2 } else { 3 };
    i32::from(grid[number(0) | number(1) << 7] >> (i % len * bits)) & ((1 << bits) - 1)
}

/// A level, negated where the highest bit of its code is set.
fn signed(code: u8, levels: &[f32], level: i32) -> i32 {
    let value = levels[level as usize] as i32;
    if code & 128 != 0 { -value } else { value }
}

/// Whole numbers of each part of a block are added exactly; parts times their scales, the second
/// fused to the first, times the scale of the inputs go to the sum; then the minima.
fn int8(x: &[([i32; BLOCK], f32)], w: &[IntBlock]) -> f32 {
    x.iter().zip(w).fold(0.0, |sum, ((bytes, unit), w)| {
        let len = BLOCK / w.scales.len();
        let dots = bytes.chunks(len).zip(w.values.chunks(len));
        let dots = dots.map(|(x, w)| x.iter().zip(w).map(|(x, w)| x * w).sum::<i32>() as f32);
        let scaled = dots.zip(&w.scales).fold(None, |scaled, (dot, scale)| {
            Some(scaled.map_or(dot * scale, |first: f32| dot.mul_add(*scale, first)))
        });
        let sum = scaled.unwrap().mul_add(*unit, sum);
        let inputs = bytes.chunks(len).map(|bytes| unit * -bytes.iter().sum::<i32>() as f32);
        inputs.zip(&w.mins).fold(sum, |sum, (inputs, min)| min.mul_add(inputs, sum))
    })
}
