//! Residual streams of hyper-connections.

use crate::cpu::core::CpuCore;
use crate::handles::{Buffer, HyperSpec, StreamFactors};
use kernels::Isa;
use kernels::elementwise;
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

/// The factors of streams that are not mixed: weights of what is read, and of what is written,
/// which are `magnitude` times those of a head, and the identity.
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

/// Least magnitude of the product of a key and a query whose root is taken.
const MIN_PRODUCT: f32 = 1e-6;

pub(in crate::cpu) fn gate(
    core: &mut CpuCore,
    [keys, queries, values]: [Buffer; 3],
    out: Buffer,
    rows: usize,
) {
    core.each_row("gate_streams", (out, rows), |core, row, out| {
        let values = core.row(values, row);
        let hidden = values.len();
        let streams = core.row(keys, row).chunks_exact(hidden);
        let streams = streams.zip(core.row(queries, row).chunks_exact(hidden));
        for ((k, q), out) in streams.zip(out.chunks_exact_mut(hidden)) {
            let product = dot(k, q) / (hidden as f32).sqrt();
            let root = product.abs().max(MIN_PRODUCT).sqrt().copysign(product);
            out.copy_from_slice(values);
            elementwise::scale_by_sigmoid(core.isa, out, root);
        }
    });
}

/// Partial sums of a dot product, so that they can be computed side by side.
const SUMS: usize = 16;

/// The dot product, in an order that depends on the length alone.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    let mut sums = [0.0; SUMS];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
