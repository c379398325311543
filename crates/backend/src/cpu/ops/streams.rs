//! Residual streams of hyper-connections.

use crate::cpu::core::CpuCore;
use crate::handles::{Buffer, HyperSpec, StreamFactors};
use kernels::Isa;
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
    let HyperSpec { streams, iterations, eps, base, scale, kind } = *spec;
    let mixing = Mixing { streams, iterations, eps };
    core.each_row("stream_factors", (out, rows), |core, row, out| {
        let (base, scale, z) = (&core.vectors[base.0], &core.vectors[scale.0], core.row(z, row));
        match kind {
            StreamFactors::All => hyper::mixing(core.isa, mixing, z, base, scale, out),
            StreamFactors::Head => hyper::head_mixing(core.isa, mixing, z, base, scale, out),
            StreamFactors::Apart { magnitude } => {
                apart(core.isa, mixing, magnitude, (z, base, scale), out);
            }
        }
    });
}

/// The factors of streams that stay apart: weights of what is read, and of what is written, which
/// are `magnitude` times those of a head, and the identity.
fn apart(
    isa: Isa,
    mixing: Mixing,
    magnitude: f32,
    (z, base, scale): (&[f32], &[f32], &[f32]),
    out: &mut [f32],
) {
    let n = mixing.streams;
    let (read, rest) = out.split_at_mut(n);
    let (written, kept) = rest.split_at_mut(n);
    hyper::head_mixing(isa, mixing, &z[..n], &base[..n], &scale[..1], read);
    let bare = Mixing { eps: 0.0, ..mixing };
    hyper::head_mixing(isa, bare, &z[n..2 * n], &base[n..2 * n], &scale[1..2], written);
    written.iter_mut().for_each(|factor| *factor = magnitude * *factor + mixing.eps);
    for (at, kept) in kept[..n * n].iter_mut().enumerate() {
        *kept = if at.is_multiple_of(n + 1) { 1.0 } else { 0.0 };
    }
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
