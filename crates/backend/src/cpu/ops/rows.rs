//! Operations on each row by itself: norms, elementwise operations, copies, rounding.

use crate::cpu::core::CpuCore;
use crate::handles::{Buffer, HeadColumns, MatrixSpec, RmsNorm};
use crate::map_op::MapOp;
use kernels::kv::Rounding;
use kernels::{Isa, delta, elementwise, kv};

/// Rows of an embedding table, as many as fit in each row of `out`.
pub(in crate::cpu) fn embed(core: &mut CpuCore, table: &MatrixSpec, tokens: &[u32], out: Buffer) {
    let MatrixSpec { ty, cols, bytes, .. } = table;
    let row_bytes = ty.bytes_for(*cols).expect("checked in `table`");
    let dequantize = ty.dequantize.expect("checked in `table`");
    let each = core.width(out) / cols;
    core.each_row("embed", (out, tokens.len() / each), |_, row, out| {
        let tokens = &tokens[row * each..][..each];
        for (token, out) in tokens.iter().zip(out.chunks_exact_mut(*cols)) {
            let start = *token as usize * row_bytes;
            dequantize(&bytes.read(start..start + row_bytes), out);
        }
    });
}

pub(in crate::cpu) fn rms_norm(
    core: &mut CpuCore,
    x: Buffer,
    norm: RmsNorm,
    out: Buffer,
    rows: usize,
) {
    core.each_row("rms_norm", (out, rows), |core, row, out| {
        let weights = core.vectors[norm.weight.0].chunks_exact(norm.unit).cycle();
        let units = core.row(x, row).chunks_exact(norm.unit).zip(weights);
        for ((x, weight), out) in units.zip(out.chunks_exact_mut(norm.unit)) {
            elementwise::rms_norm(core.isa, x, weight, norm.eps, out);
        }
    });
}

pub(in crate::cpu) fn center(core: &mut CpuCore, x: Buffer, out: Buffer, rows: usize) {
    core.each_row("center", (out, rows), |core, row, out| {
        elementwise::center(core.isa, core.row(x, row), out);
    });
}

pub(in crate::cpu) fn map(core: &mut CpuCore, op: MapOp, x: Buffer, rows: usize) {
    core.each_row(op.name(), (x, rows), |core, row, x| match op {
        MapOp::Activate(gate) => elementwise::activate(core.isa, gate, x),
        MapOp::Gate(gate, y) => elementwise::apply_gate(core.isa, gate, x, core.row(y, row)),
        MapOp::Add(y) => elementwise::add(core.isa, x, core.row(y, row)),
        MapOp::AddBias(bias) => elementwise::add(core.isa, x, &core.vectors[bias.0]),
        MapOp::Scale(factor) => elementwise::scale(core.isa, x, factor),
        MapOp::ScaleBySigmoid(gate) => {
            let gates = core.row(gate, row);
            for (x, gate) in x.chunks_exact_mut(x.len() / gates.len()).zip(gates) {
                elementwise::scale_by_sigmoid(core.isa, x, *gate);
            }
        }
        MapOp::ScaleBySoftplus(gate) => scale_by_softplus(core.isa, x, core.row(gate, row)),
        MapOp::ScaleByLines(y, lines) => {
            let (at, lines) = (core.row(y, row)[0], &core.vectors[lines.0]);
            let (slopes, bases) = lines.split_at(lines.len() / 2);
            let parts = x.chunks_exact_mut(x.len() / slopes.len());
            for ((x, slope), base) in parts.zip(slopes).zip(bases) {
                elementwise::scale(core.isa, x, slope * at + base);
            }
        }
        MapOp::SoftCap(cap) => elementwise::soft_cap(core.isa, x, cap),
    });
}

/// Multiplies as many parts of a row as there are gates.
fn scale_by_softplus(isa: Isa, x: &mut [f32], gates: &[f32]) {
    const ONCE: usize = 64;
    let len = x.len() / gates.len();
    for (x, gates) in x.chunks_mut(ONCE * len).zip(gates.chunks(ONCE)) {
        // Steps of a recurrence without a bias and without limits are the same function.
        let mut factors = [0.0; ONCE];
        let factors = &mut factors[..gates.len()];
        delta::step_times(isa, gates, &[0.0; ONCE][..gates.len()], [0.0, f32::INFINITY], factors);
        for (x, factor) in x.chunks_exact_mut(len).zip(factors) {
            elementwise::scale(isa, x, *factor);
        }
    }
}

pub(in crate::cpu) fn copy_heads(
    core: &mut CpuCore,
    x: HeadColumns,
    width: usize,
    to: HeadColumns,
    rows: usize,
) {
    core.each_row("copy_heads", (to.buffer, rows), |core, row, out| {
        let heads = out[to.first..].chunks_mut(to.stride);
        for (out, x) in heads.zip(core.row(x.buffer, row)[x.first..].chunks(x.stride)) {
            out[..width].copy_from_slice(&x[..width]);
        }
    });
}

pub(in crate::cpu) fn gather(core: &mut CpuCore, x: Buffer, rows: &[u32], out: Buffer) {
    core.each_row("gather", (out, rows.len()), |core, row, out| {
        out.copy_from_slice(core.row(x, rows[row] as usize));
    });
}

pub(in crate::cpu) fn round(
    core: &mut CpuCore,
    x: HeadColumns,
    width: usize,
    rounding: Rounding,
    rows: usize,
) {
    if rounding == Rounding::None {
        return;
    }
    core.each_row("round", (x.buffer, rows), |core, _, values| {
        for head in values[x.first..].chunks_mut(x.stride) {
            kv::round(core.isa, rounding, &mut head[..width]);
        }
    });
}
