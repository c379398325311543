//! Products with weights of every type.

use crate::pair::Pair;
use crate::{on_device, on_every_device, open_gpu};
use backend::{Buffer, HeadColumns, Matrix, MatrixSpec, MemoryPolicy, Mode};
use base::Rng;
use kernels::quant::{BF16, F16, F32, INT4, INT8, NATIVE, NVFP4_32, Q4_0, Q4_K, QuantType, TYPES};
use std::sync::Arc;

/// Largest difference of a sum, in units of the sum of absolute products.
const CLOSE: f32 = 1e-5;

/// Every type that can be computed with.
fn types() -> impl Iterator<Item = &'static QuantType> {
    TYPES.iter().chain(NATIVE).copied().filter(|ty| ty.is_supported())
}

/// Random weights of a type.
pub fn weights(rng: &mut Rng, ty: &QuantType, values: usize) -> Vec<u8> {
    let mut bytes = vec![0; ty.bytes_for(values).unwrap()];
    if let Some(quantize) = ty.quantize {
        let values: Vec<f32> = (0..values).map(|_| rng.normal()).collect();
        quantize(&values, None, &mut bytes);
        return bytes;
    }
    let factor = 0.1 + rng.below(100) as f32 / 100.0;
    for block in bytes.chunks_exact_mut(ty.block_bytes) {
        // Codes of FP8 and of scales of NVFP4: neither NaN nor large.
        block.iter_mut().for_each(|byte| *byte = rng.below(64) as u8 | (rng.below(2) as u8 * 128));
        let scale = if *ty == NVFP4_32 { factor } else { 0.01 + rng.below(100) as f32 / 500.0 };
        block[..4].copy_from_slice(&scale.to_le_bytes());
        if *ty == INT4 {
            block[4] = rng.below(16) as u8;
        } else if *ty == INT8 {
            block[4..6].copy_from_slice(&(rng.below(257) as i16 - 128).to_le_bytes());
        } else if *ty == NVFP4_32 {
            block[4] = 0;
            block[5..7].iter_mut().for_each(|scale| *scale &= 127);
        }
    }
    bytes
}

/// A matrix on both, and its values.
struct Stored {
    matrix: Matrix,
    values: Vec<f32>,
    cols: usize,
    order: Option<Arc<[u32]>>,
}

impl Stored {
    fn new(pair: &mut Pair, ty: &'static QuantType, rows: usize, cols: usize) -> Self {
        Self::in_order(pair, ty, [rows, cols], None)
    }

    fn in_order(
        pair: &mut Pair,
        ty: &'static QuantType,
        [rows, cols]: [usize; 2],
        order: Option<Arc<[u32]>>,
    ) -> Self {
        let bytes = weights(&mut pair.rng, ty, rows * cols);
        let mut values = vec![0.0; rows * cols];
        (ty.dequantize.unwrap())(&bytes, &mut values);
        let spec = MatrixSpec::new(ty.name.to_owned(), ty, [rows, cols], Arc::new(bytes));
        let spec = MatrixSpec { order: order.clone(), ..spec };
        let matrix = pair.both(|backend| backend.matrix(spec.clone()).unwrap());
        Self { matrix, values, cols, order }
    }

    /// The sums of absolute products with inputs.
    fn absolute(&self, x: &[f32]) -> Vec<f32> {
        let input = |at: usize| self.order.as_ref().map_or(at, |order| order[at] as usize);
        let rows = self.values.chunks_exact(self.cols);
        let sum = |w: &[f32]| (0..).zip(w).map(|(at, w)| (w * x[input(at)]).abs()).sum();
        rows.map(sum).collect()
    }
}

/// A random order of columns.
pub fn shuffled(rng: &mut Rng, cols: usize) -> Arc<[u32]> {
    let mut order: Vec<u32> = (0..cols as u32).collect();
    for at in (1..cols).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    order.into()
}

/// Asserts that products agree: `x` are the inputs, `at` the first columns of inputs and outputs.
fn agree(pair: &mut Pair, stored: &Stored, x: &[Vec<f32>], (out, at): (Buffer, usize), what: &str) {
    let [cpu, tested] = pair.read(out, x.len());
    let width = cpu.len() / x.len();
    for (row, x) in x.iter().enumerate() {
        for (output, absolute) in stored.absolute(x).into_iter().enumerate() {
            let place = row * width + at + output;
            let (cpu, tested) = (cpu[place], tested[place]);
            let device = pair.tested.device().name;
            assert!(
                (cpu - tested).abs() <= CLOSE * absolute.max(1e-20),
                "{device}: {what}: row {row}, output {output}: {tested}, expected {cpu} \
                 (of {absolute})"
            );
        }
    }
}

/// The inputs of rows.
fn inputs(pair: &mut Pair, x: Buffer, rows: usize) -> Vec<Vec<f32>> {
    let [values, _] = pair.read(x, rows);
    values.chunks_exact(values.len() / rows).map(<[f32]>::to_vec).collect()
}

/// Columns up to 2080, whole blocks of a type.
fn random_cols(pair: &mut Pair, ty: &QuantType) -> usize {
    let block = ty.block_len.max(if pair.number(0, 2) == 0 { 1 } else { 32 });
    block * pair.number(1, 2080 / block)
}

fn check_type(pair: &mut Pair, ty: &'static QuantType) {
    let (outputs, cols) = (pair.number(1, 90), random_cols(pair, ty));
    let rows = [1, pair.number(2, 8), pair.number(9, 70)][pair.number(0, 2)];
    let order = (pair.number(0, 1) == 1).then(|| shuffled(&mut pair.rng, cols));
    let stored = Stored::in_order(pair, ty, [outputs, cols], order);
    let (x, out) = (pair.buffer(rows, cols), pair.buffer(rows, outputs));
    pair.both(|backend| backend.linear(x, &[(stored.matrix, out)], rows));
    let what = format!("{ty}: {rows} rows, [{outputs}, {cols}]");
    let x = inputs(pair, x, rows);
    agree(pair, &stored, &x, (out, 0), &what);
}

#[test]
fn products_of_every_type_agree() {
    on_every_device(2, |pair| types().for_each(|ty| check_type(pair, ty)));
}

/// Calls `check` with both in fast mode, where the device has one.
pub fn in_fast_mode(times: u64, check: impl FnMut(&mut Pair)) {
    if let Some(gpu) = fixtures::gpu() {
        on_device(&gpu, Mode::Fast, times, check);
    }
}

#[test]
fn products_of_codes_agree() {
    in_fast_mode(3, |pair| {
        for ty in types() {
            if pair.tested.held(ty, 1, ty.block_len.max(32), Mode::Fast).layout != "int8" {
                continue; // not held as codes
            }
            let (outputs, rows) = (pair.number(1, 90), [1, 5, 40][pair.number(0, 2)]);
            let block = ty.block_len.max(32);
            let cols = block * pair.number(1, 2080 / block);
            let order = (pair.number(0, 1) == 1).then(|| shuffled(&mut pair.rng, cols));
            let stored = Stored::in_order(pair, ty, [outputs, cols], order);
            let (x, out) = (pair.buffer(rows, cols), pair.buffer(rows, outputs));
            pair.both(|backend| backend.linear(x, &[(stored.matrix, out)], rows));
            let what = format!("{ty} in fast mode: {rows} rows, [{outputs}, {cols}]");
            let x = inputs(pair, x, rows);
            agree(pair, &stored, &x, (out, 0), &what);
        }
    });
}

#[test]
fn several_products_of_many_rows_agree() {
    let check = |pair: &mut Pair, all: [&'static QuantType; 4]| {
        let (rows, cols) = (pair.number(100, 300), 256 * pair.number(1, 3));
        let x = pair.buffer(rows, cols);
        let order = shuffled(&mut pair.rng, cols);
        let mut outputs = Vec::new();
        for (at, ty) in all.into_iter().enumerate() {
            let width = pair.number(1, 100);
            let order = (at % 2 == 1).then(|| Arc::clone(&order));
            let stored = Stored::in_order(pair, ty, [width, cols], order);
            outputs.push((stored, pair.buffer(rows, width)));
        }
        let all: Vec<_> = outputs.iter().map(|(stored, out)| (stored.matrix, *out)).collect();
        pair.both(|backend| backend.linear(x, &all, rows));
        let x = inputs(pair, x, rows);
        for (stored, out) in outputs {
            agree(pair, &stored, &x, (out, 0), "several products");
        }
    };
    on_every_device(2, |pair| check(pair, [&F32, &BF16, &F16, &Q4_0]));
    in_fast_mode(2, |pair| check(pair, [&F32, &Q4_0, &Q4_K, &Q4_K]));
}

#[test]
fn products_of_heads_agree() {
    let check = |pair: &mut Pair, ty: &'static QuantType| {
        let (rows, heads) = ([1, 6, 33][pair.number(0, 2)], pair.number(1, 6));
        let (cols, outputs) = (32 * pair.number(1, 9), pair.number(1, 80));
        let (before, between) = (pair.number(0, 9), pair.number(0, 9));
        let x = pair.buffer(rows, before + heads * (cols + between));
        let from = HeadColumns { buffer: x, first: before, stride: cols + between };
        let first = pair.number(0, 5);
        let stride = first + outputs + pair.number(0, 5);
        let out = pair.buffer(rows, heads * stride);
        let to = HeadColumns { buffer: out, first, stride };
        let stored: Vec<_> = (0..heads).map(|_| Stored::new(pair, ty, outputs, cols)).collect();
        let weights: Vec<_> = stored.iter().map(|stored| stored.matrix).collect();
        pair.both(|backend| backend.linear_heads(from, &weights, to, rows));
        let x = inputs(pair, x, rows);
        for (head, stored) in stored.iter().enumerate() {
            let of_head = |x: &Vec<f32>| x[before + head * from.stride..][..cols].to_vec();
            let x: Vec<_> = x.iter().map(of_head).collect();
            agree(pair, stored, &x, (out, head * stride + first), "products of heads");
        }
        // What is no output stays.
        let [cpu, tested] = pair.read(out, rows);
        let rest = |values: Vec<f32>| -> Vec<f32> {
            let kept = |at: &usize| !(first..first + outputs).contains(&(at % stride));
            (0..values.len()).filter(kept).map(|at| values[at]).collect()
        };
        assert_eq!(rest(cpu), rest(tested), "columns between heads");
    };
    on_every_device(6, |pair| check(pair, &BF16));
    in_fast_mode(6, |pair| check(pair, &Q4_0));
}

#[test]
fn one_row_alone_has_the_bits_it_has_among_many() {
    let check = |pair: &mut Pair| {
        for ty in types() {
            let (outputs, most) = (pair.number(1, 70), 257);
            let block = ty.block_len.max(32);
            let cols = block * pair.number(1, 600usize.div_ceil(block));
            let bytes = weights(&mut pair.rng, ty, outputs * cols);
            let spec = MatrixSpec::new(String::new(), ty, [outputs, cols], Arc::new(bytes));
            let values = pair.values(most * cols);
            let tested = &mut *pair.tested;
            let matrix = tested.matrix(spec).unwrap();
            let [x, out] = [cols, outputs].map(|width| tested.buffer(most, width).unwrap());
            let mut product = |values: &[f32]| -> Vec<u32> {
                let rows = values.len() / cols;
                tested.update(x, rows, &mut |x| x.copy_from_slice(values));
                tested.linear(x, &[(matrix, out)], rows);
                tested.fetch(out, rows);
                tested.end().unwrap();
                tested.read(out, rows).iter().map(|value| value.to_bits()).collect()
            };
            let all = product(&values);
            for rows in [1, 2, 7, 8, 9, 64] {
                let start = most - rows;
                let some = product(&values[start * cols..]);
                assert!(some == all[start * outputs..], "{ty}: {rows} rows among {most}");
            }
        }
    };
    on_every_device(1, |pair| {
        if pair.tested.device().name != "reference" {
            check(pair);
        }
    });
    in_fast_mode(1, check);
}

#[test]
fn a_matrix_of_several_parts_agrees() {
    // A binding of the software adapter has 128 MiB.
    let (outputs, cols) = (33_100, 1024);
    on_every_device(1, |pair| {
        if pair.tested.device().name == "reference" {
            return;
        }
        let some = pair.values(cols * 331);
        let values = some.repeat(outputs / 331);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let spec = MatrixSpec::new(String::new(), &F32, [outputs, cols], Arc::new(bytes));
        let matrix = pair.both(|backend| backend.matrix(spec.clone()).unwrap());
        let (x, out) = (pair.buffer(2, cols), pair.buffer(2, outputs));
        pair.both(|backend| backend.linear(x, &[(matrix, out)], 2));
        pair.agree(out, 2, CLOSE, "a matrix of several parts");
    });
}

#[test]
fn inputs_that_are_not_finite_show_in_their_row_only() {
    let check = |pair: &mut Pair, ty: &'static QuantType, value: f32| {
        let (outputs, cols, rows) = (20, 512, [3, 20][pair.number(0, 1)]);
        let stored = Stored::new(pair, ty, outputs, cols);
        let (x, out) = (pair.buffer(rows, cols), pair.buffer(rows, outputs));
        let (row, at) = (pair.number(0, rows - 1), pair.number(0, cols - 1));
        pair.both(|backend| backend.update(x, rows, &mut |x| x[row * cols + at] = value));
        pair.both(|backend| backend.linear(x, &[(stored.matrix, out)], rows));
        for values in pair.read(out, rows) {
            for (at, values) in values.chunks_exact(outputs).enumerate() {
                let finite = values.iter().all(|value| value.is_finite());
                assert_eq!(finite, at != row, "{ty}: {value} in row {row}, row {at}");
            }
        }
    };
    for value in [f32::NAN, f32::INFINITY] {
        on_every_device(2, |pair| check(pair, &F32, value));
        in_fast_mode(2, |pair| check(pair, &Q4_K, value));
    }
}

#[test]
fn weights_that_shall_stay_with_the_host_are_refused() {
    let Some(mut tested) = open_gpu(Mode::Exact) else { return };
    for memory in [MemoryPolicy::Locked, MemoryPolicy::Disk] {
        let spec = MatrixSpec::new("w".to_owned(), &F32, [1, 1], Arc::new(vec![0; 4]));
        let problem = tested.matrix(MatrixSpec { memory, ..spec }).unwrap_err().to_string();
        assert!(problem.contains("--device cpu"), "{problem}");
    }
}
