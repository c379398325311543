//! Residual streams of hyper-connections.

use crate::cpu::core::CpuCore;
use crate::handles::{Buffer, HyperSpec};
use kernels::hyper::{self, Mixing};

pub(in crate::cpu) fn spread(core: &mut CpuCore, x: Buffer, out: Buffer, rows: usize) {
    core.each_row("spread_streams", (out, rows), |core, row, out| {
        let x = core.row(x, row);
        out.chunks_exact_mut(x.len()).for_each(|stream| stream.copy_from_slice(x));
    });
}

pub(in crate::cpu) fn factors(
    core: &mut CpuCore,
    z: Buffer,
    spec: &HyperSpec,
    out: Buffer,
    rows: usize,
) {
    let HyperSpec { streams, iterations, eps, base, scale, head } = *spec;
    let mixing = Mixing { streams, iterations, eps };
    core.each_row("stream_factors", (out, rows), |core, row, out| {
        let (base, scale) = (&core.vectors[base.0], &core.vectors[scale.0]);
        let factors = if head { hyper::head_mixing } else { hyper::mixing };
        factors(core.isa, mixing, core.row(z, row), base, scale, out);
    });
}

pub(in crate::cpu) fn read(
    core: &mut CpuCore,
    x: Buffer,
    factors: Buffer,
    out: Buffer,
    rows: usize,
) {
    core.each_row("read_streams", (out, rows), |core, row, out| {
        let x = core.row(x, row);
        let read = &core.row(factors, row)[..x.len() / out.len()];
        hyper::read_streams(core.isa, x, read, out);
    });
}

pub(in crate::cpu) fn write(
    core: &mut CpuCore,
    x: Buffer,
    factors: Buffer,
    y: Buffer,
    rows: usize,
) {
    core.each_row("write_streams", (x, rows), |core, row, x| {
        hyper::write_streams(core.isa, x, core.row(factors, row), core.row(y, row));
    });
}
