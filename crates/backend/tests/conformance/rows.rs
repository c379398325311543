//! Operations on rows by themselves.

use crate::on_every_device;
use crate::products::weights;
use backend::{Gate, Growth, HeadColumns, LongRows, Magnitude, MapOp, MatrixSpec, Pairs, RmsNorm};
use kernels::quant::{BF16, F32, Q4_0};
use std::sync::Arc;

/// Largest difference where values are multiplied and added a few times.
const CLOSE: f32 = 1e-5;

#[test]
fn norms_sums_and_gates_agree() {
    on_every_device(6, |pair| {
        let (rows, units, len) = (pair.number(1, 40), pair.number(1, 5), pair.number(1, 300));
        let width = units * len;
        let (x, y) = (pair.buffer(rows, width), pair.buffer(rows, width));
        let (weight, bias) = (pair.vector(len), pair.vector(width));
        let column = pair.buffer(rows, 1);
        let norm = RmsNorm { weight, unit: len, eps: 1e-6 };
        pair.both(|backend| backend.rms_norm(x, norm, y, rows));
        pair.agree(y, rows, CLOSE, "rms_norm");
        let each = RmsNorm { weight: bias, ..norm };
        pair.both(|backend| backend.rms_norm(x, each, y, rows));
        pair.agree(y, rows, CLOSE, "rms_norm with weights of each unit");
        let wider = pair.buffer(rows, width + 3);
        pair.both(|backend| backend.rms_norm(x, norm, wider, rows));
        pair.agree(wider, rows, CLOSE, "rms_norm into wider rows");
        pair.both(|backend| backend.map(MapOp::Add(y), x, rows));
        pair.agree(x, rows, CLOSE, "add");
        pair.both(|backend| backend.map(MapOp::AddBias(bias), x, rows));
        pair.agree(x, rows, CLOSE, "add_bias");
        pair.both(|backend| backend.map(MapOp::ScaleBySigmoid(column), x, rows));
        pair.agree(x, rows, CLOSE, "scale_by_sigmoid");
        let gates = pair.buffer(rows, units);
        for op in [MapOp::ScaleBySigmoid(gates), MapOp::ScaleBySoftplus(gates)] {
            pair.both(|backend| backend.map(op, x, rows));
            pair.agree(x, rows, CLOSE, op.name());
        }
        let lines = pair.vector(2 * units);
        for at in [column, y] {
            pair.both(|backend| backend.map(MapOp::ScaleByLines(at, lines), x, rows));
            pair.agree(x, rows, CLOSE, "scale_by_lines");
        }
        let many = pair.buffer(rows, width);
        pair.both(|backend| backend.map(MapOp::ScaleBySoftplus(many), x, rows));
        pair.agree(x, rows, CLOSE, "scale_by_softplus of each value");
        pair.both(|backend| backend.map(MapOp::Activate(Gate::GeluTanh), x, rows));
        pair.agree(x, rows, CLOSE, "activate");
        pair.both(|backend| backend.center(x, y, rows));
        pair.agree(y, rows, CLOSE, "center");
        pair.both(|backend| backend.map(MapOp::Scale(3.7), x, rows));
        pair.agree(x, rows, CLOSE, "scale");
        pair.both(|backend| backend.map(MapOp::SoftCap(1.3), x, rows));
        pair.agree(x, rows, CLOSE, "soft_cap");
        let clamped = Gate::Clamped { alpha: 1.7, limit: 0.9 };
        let silu_clamped = Gate::SiluClamped { limit: 0.5 };
        let then_clamped = Gate::SiluThenClamped { limit: 0.5 };
        let plain = [Gate::Silu, Gate::Sigmoid, Gate::Product, Gate::ReluSquared];
        let gelu = [Gate::GeluTanh, Gate::Gelu];
        for kind in plain.into_iter().chain(gelu).chain([clamped, silu_clamped, then_clamped]) {
            pair.fill(x, rows, width);
            pair.both(|backend| backend.map(MapOp::Gate(kind, y), x, rows));
            pair.agree(x, rows, CLOSE, "apply_gate");
        }
    });
}

#[test]
fn copies_of_rows_and_columns_agree() {
    on_every_device(6, |pair| {
        let (rows, heads, width) = (pair.number(1, 30), pair.number(1, 6), pair.number(1, 70));
        let (before, between) = (pair.number(0, 9), pair.number(0, 9));
        let stride = width + between;
        let x = pair.buffer(rows, before + heads * stride);
        let out = pair.buffer(rows, heads * width);
        let from = HeadColumns { buffer: x, first: before, stride };
        let to = HeadColumns { buffer: out, first: 0, stride: width };
        pair.both(|backend| backend.copy_heads(from, width, to, rows));
        pair.agree(out, rows, 0.0, "copy_heads");
        let picked: Vec<u32> = (0..rows).map(|_| pair.number(0, rows - 1) as u32).collect();
        let gathered = pair.buffer(rows, before + heads * stride);
        pair.both(|backend| backend.gather(x, &picked, gathered));
        pair.agree(gathered, rows, 0.0, "gather");
    });
}

#[test]
fn rows_of_embedding_tables_agree() {
    on_every_device(3, |pair| {
        for ty in [&F32, &BF16, &Q4_0] {
            let (tokens, width) = (pair.number(1, 50), 32 * pair.number(1, 9));
            let bytes = weights(&mut pair.rng, ty, tokens * width);
            let spec = MatrixSpec::new(ty.name.to_owned(), ty, [tokens, width], Arc::new(bytes));
            let table = pair.both(|backend| backend.table(spec.clone()).unwrap());
            let rows = pair.number(1, 30);
            let ids: Vec<u32> = (0..rows).map(|_| pair.number(0, tokens - 1) as u32).collect();
            let out = pair.buffer(rows, width);
            pair.both(|backend| backend.embed(table, &ids, out));
            pair.agree(out, rows, 0.0, "embed");
        }
    });
}

#[test]
fn the_first_row_that_is_not_finite_is_found() {
    on_every_device(6, |pair| {
        let (rows, width) = (pair.number(3, 30), pair.number(1, 300));
        let x = pair.buffer(rows, width);
        assert_eq!(pair.both(|backend| backend.first_not_finite(x, rows)), None);
        let (first, column) = (pair.number(1, rows - 2), pair.number(0, width - 1));
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][pair.number(0, 2)];
        pair.both(|backend| {
            backend.update(x, rows, &mut |x| {
                x[first * width + column] = bad;
                x[rows * width - 1] = f32::NAN;
            });
        });
        assert_eq!(pair.both(|backend| backend.first_not_finite(x, rows)), Some(first));
        assert_eq!(pair.both(|backend| backend.first_not_finite(x, first)), None);
    });
}

#[test]
fn rotations_agree() {
    on_every_device(6, |pair| {
        let (rows, heads, count) = (pair.number(1, 30), pair.number(1, 6), pair.number(1, 40));
        let stride = 2 * count + pair.number(0, 12);
        let first = pair.number(0, 7);
        let frequencies: Vec<f32> = (0..count).map(|at| 0.9f32.powi(at as i32)).collect();
        let positions: Vec<u32> = (0..rows).map(|_| pair.number(0, 5000) as u32).collect();
        for pairs in [Pairs::Halves, Pairs::Interleaved] {
            let growth = Some(Growth { beta: 0.1, every: 64, offset: 1 });
            let magnitude = Magnitude { factor: 1.25, growth };
            let rope = pair
                .both(|backend| backend.rope(frequencies.clone(), magnitude, pairs, rows).unwrap());
            let x = pair.buffer(rows, first + heads * stride);
            let columns = HeadColumns { buffer: x, first, stride };
            let other: Vec<f32> = frequencies.iter().map(|frequency| 0.5 * frequency).collect();
            let long_rope =
                pair.both(|backend| backend.rope(other.clone(), 1.5.into(), pairs, rows).unwrap());
            let some = rows / 3..rows / 2;
            let long = LongRows { rope: Some(long_rope), rows: std::slice::from_ref(&some) };
            pair.both(|backend| backend.rope_angles(rope, &positions, long));
            pair.both(|backend| backend.rotate(columns, rope, rows));
            pair.agree(x, rows, CLOSE, "rotate");
            pair.both(|backend| backend.rotate_back(columns, rope, rows));
            pair.agree(x, rows, CLOSE, "rotate_back");
        }
    });
}
