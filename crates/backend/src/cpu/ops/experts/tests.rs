use super::*;
use crate::cpu::Cpu;
use crate::handles::{Gate, HeadColumns, MatrixSpec, Mode, Routing, Scores};
use crate::seam::{Operations, Weights};
use base::Rng;
use kernels::Isa;
use kernels::quant::F32;
use std::sync::Arc;

const HIDDEN: usize = 40;
const WIDTH: usize = 70;
const EXPERTS: usize = 5;
const ROUTING: Routing = Routing {
    chosen: 2,
    scores: Scores::SoftmaxOfChosen,
    normalise: false,
    scale: 1.0,
    groups: None,
};

fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.normal()).collect()
}

/// The inputs of columns, rotated by `by`.
fn order(cols: usize, by: usize) -> Arc<[u32]> {
    (0..cols).map(|col| ((col + by) % cols) as u32).collect()
}

/// A matrix of f32, its columns stored in the order of inputs rotated by `by`.
fn matrix(cpu: &mut Cpu, values: &[f32], cols: usize, by: usize) -> Matrix {
    let order = (by > 0).then(|| order(cols, by));
    let stored = values.chunks_exact(cols).flat_map(|row| {
        let at = |col: usize| order.as_ref().map_or(col, |order| order[col] as usize);
        (0..cols).map(move |col| row[at(col)]).collect::<Vec<_>>()
    });
    let bytes: Vec<u8> = stored.flat_map(f32::to_le_bytes).collect();
    let rows = values.len() / cols;
    let spec = MatrixSpec::new(String::new(), &F32, [rows, cols], Arc::new(bytes));
    let spec = MatrixSpec { order, ..spec };
    cpu.matrix(spec).unwrap()
}

/// What experts give for `rows` rows, computed `chunk` at a time.
fn mixed(threads: usize, rows: usize, chunk: usize, turned: [usize; 3]) -> Vec<f32> {
    let mut cpu = Cpu::with_isa(threads, Mode::Exact, Isa::available()[0]).unwrap();
    let mut all = |seed: u64, outputs: usize, cols: usize, by: usize| -> Vec<Matrix> {
        let values = |expert| random(outputs * cols, seed + expert as u64);
        (0..EXPERTS)
            .map(|expert| matrix(&mut cpu, &values(expert), cols, by * (expert % 2)))
            .collect()
    };
    let gate = all(100, WIDTH, HIDDEN, turned[0]);
    let up = all(200, WIDTH, HIDDEN, turned[1]);
    let down = all(300, HIDDEN, WIDTH, turned[2]);
    let (first, count, kind) = (0, EXPERTS, Gate::Silu);
    let (biases, correction, table, routing) = (None, None, None, ROUTING);
    let spec = ExpertsSpec {
        gate,
        up,
        down,
        biases,
        kind,
        weighs_inputs: false,
        routing,
        correction,
        scales: None,
        table,
        rows,
        first,
        count,
    };
    let experts = cpu.experts(spec).unwrap();
    let [x, out] = [HIDDEN; 2].map(|width| cpu.buffer(chunk, width).unwrap());
    let logits = cpu.buffer(chunk, EXPERTS).unwrap();
    let (inputs, scores) = (random(rows * HIDDEN, 1), random(rows * EXPERTS, 2));
    let mut all = Vec::new();
    for start in (0..rows).step_by(chunk) {
        let count = chunk.min(rows - start);
        cpu.update(x, count, &mut |values| {
            values.copy_from_slice(&inputs[start * HIDDEN..][..count * HIDDEN])
        });
        let scores = &scores[start * EXPERTS..][..count * EXPERTS];
        cpu.update(logits, count, &mut |values| values.copy_from_slice(scores));
        cpu.mix_experts(x, logits, experts, out, &vec![0; count]);
        all.extend_from_slice(cpu.read(out, count));
    }
    all
}

/// One row by the definition, in f64.
fn naive(row: usize) -> Vec<f64> {
    let x = &random((row + 1) * HIDDEN, 1)[row * HIDDEN..];
    let logits = &random((row + 1) * EXPERTS, 2)[row * EXPERTS..];
    let mut best: Vec<usize> = (0..EXPERTS).collect();
    best.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let weight = |expert: usize| f64::from(logits[expert]).exp();
    let total = weight(best[0]) + weight(best[1]);
    let product = |w: &[f32], x: &[f64]| -> Vec<f64> {
        let dot = |w: &[f32]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
        w.chunks_exact(x.len()).map(dot).collect()
    };
    let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let mut out = vec![0.0; HIDDEN];
    for expert in &best[..2] {
        let of = |seed: u64, len: usize| random(len, seed + *expert as u64);
        let gate = product(&of(100, WIDTH * HIDDEN), &x);
        let up = product(&of(200, WIDTH * HIDDEN), &x);
        let gated: Vec<f64> =
            gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        for (out, y) in out.iter_mut().zip(product(&of(300, HIDDEN * WIDTH), &gated)) {
            *out += y * weight(*expert) / total;
        }
    }
    out
}

#[test]
fn rows_get_what_their_experts_give() {
    let got = mixed(2, 20, 20, [0; 3]);
    for (row, got) in got.chunks_exact(HIDDEN).enumerate() {
        for (got, want) in got.iter().zip(naive(row)) {
            assert!((f64::from(*got) - want).abs() < 1e-3, "row {row}: {got} is not {want}");
        }
    }
}

#[test]
fn neither_chunks_nor_threads_change_bits() {
    let want = mixed(1, 37, 37, [0; 3]);
    for (threads, chunk) in [(1, 1), (2, 5), (3, 37)] {
        assert_eq!(mixed(threads, 37, chunk, [0; 3]), want, "{threads} {chunk}");
    }
}

#[test]
fn an_order_of_columns_changes_nothing_but_the_order_of_sums() {
    let want = mixed(1, 9, 9, [0; 3]);
    for turned in [[3, 3, 0], [3, 5, 0], [0, 7, 11], [1, 1, 1]] {
        for (got, want) in mixed(2, 9, 9, turned).iter().zip(&want) {
            assert!((got - want).abs() < 1e-3, "{turned:?}: {got} is not {want}");
        }
    }
}

#[test]
fn heads_take_the_inputs_of_their_columns() {
    let mut cpu = Cpu::with_isa(2, Mode::Exact, Isa::available()[0]).unwrap();
    let (inputs, outputs, rows) = (6, 5, 3);
    let values = random(2 * outputs * inputs, 5);
    let weights = [(0, 0), (1, 2)].map(|(head, by)| {
        matrix(&mut cpu, &values[head * outputs * inputs..][..outputs * inputs], inputs, by)
    });
    let (x, out) = (cpu.buffer(rows, 20).unwrap(), cpu.buffer(rows, 16).unwrap());
    let given = random(rows * 20, 6);
    cpu.update(x, rows, &mut |values| values.copy_from_slice(&given));
    let from = HeadColumns { buffer: x, first: 3, stride: 10 };
    let to = HeadColumns { buffer: out, first: 2, stride: 8 };
    cpu.linear_heads(from, &weights, to, rows);
    let got = cpu.read(out, rows);
    for row in 0..rows {
        for (head, values) in values.chunks_exact(outputs * inputs).enumerate() {
            for (output, w) in values.chunks_exact(inputs).enumerate() {
                let x = &given[row * 20 + 3 + head * 10..];
                let want: f32 = w.iter().zip(x).map(|(w, x)| w * x).sum();
                let got = got[row * 16 + 2 + head * 8 + output];
                assert!((got - want).abs() < 1e-5, "{row} {head} {output}: {got} is not {want}");
            }
        }
    }
}

#[test]
fn products_of_several_forms_leave_nothing_to_each_other() {
    use kernels::quant::{BF16, Q8_0};
    let mut cpu = Cpu::with_isa(1, Mode::Fast, Isa::available().pop().unwrap()).unwrap();
    let mut product = |ty: &'static kernels::quant::QuantType, cols: usize| {
        let mut bytes = vec![0; ty.bytes_for(16 * cols).unwrap()];
        (ty.quantize.unwrap())(&vec![1.0; 16 * cols], None, &mut bytes);
        let spec = MatrixSpec::new(String::new(), ty, [16, cols], Arc::new(bytes));
        let weights = cpu.matrix(spec).unwrap();
        let (x, out) = (cpu.buffer(3, cols).unwrap(), cpu.buffer(3, 16).unwrap());
        cpu.update(x, 3, &mut |values| values.fill(1.0));
        cpu.linear(x, &[(weights, out)], 3);
        let sums = cpu.read(out, 3);
        assert!(
            sums.iter().all(|sum| (sum / cols as f32 - 1.0).abs() < 0.01),
            "{ty} {cols}: {sums:?}"
        );
    };
    product(&Q8_0, 64);
    product(&BF16, 48);
    product(&F32, 33);
    product(&BF16, 7);
    product(&Q8_0, 32);
}
