//! Hyper-connections: several residual streams, mixed by weights that each row computes
//! (Zhu et al., 2024), with a mixing matrix that is nearly doubly stochastic (Sinkhorn and Knopp,
//! 1967), as DeepSeek V4 has them.
//!
//! Sums over streams are in ascending order. A mixing of `n` streams is `[pre n | post n | C n*n]`:
//! the input of a sublayer is `sum over s of pre[s] * X[s]`, and its output `y` becomes
//! `X'[d] = post[d] * y + sum over s of C[s][d] * X[s]`.

use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};
use crate::math::{exp, exp_to_one};

/// Most streams that are mixed.
pub const MAX_STREAMS: usize = 16;

/// How streams are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// Streams, at most [`MAX_STREAMS`].
    pub streams: usize,
    /// Times that the columns of the mixing matrix are divided by their sums, at least 1.
    pub iterations: usize,
    /// What is added to weights, and to sums before something is divided by them.
    pub eps: f32,
}

impl Mixing {
    /// Values of a mixing.
    pub fn len(&self) -> usize {
        (2 + self.streams) * self.streams
    }

    /// Whether there are no streams.
    pub fn is_empty(&self) -> bool {
        self.streams == 0
    }

    fn check(&self) {
        assert!((1..=MAX_STREAMS).contains(&self.streams), "{} streams", self.streams);
    }
}

isa_dispatch! {
    /// The mixing of a row, of [`Mixing::len`] values, from as many products `z` and biases `base`.
    /// `scale` has the factors of the products of `pre`, `post` and `C`.
    pub fn mixing(spec: Mixing, z: &[f32], base: &[f32], scale: &[f32], out: &mut [f32]) =
        mixing_body
}

isa_dispatch! {
    /// The weights of the streams, `sigmoid(z * scale + base) + eps`, after the last layer.
    /// `scale` has one value, the others one for each stream.
    pub fn head_mixing(spec: Mixing, z: &[f32], base: &[f32], scale: &[f32], out: &mut [f32]) =
        head_mixing_body
}

isa_dispatch! {
    /// `out = sum over s of pre[s] * x[s]`; `x` is `[streams, out.len()]`.
    pub fn read_streams(x: &[f32], pre: &[f32], out: &mut [f32]) = read_streams_body
}

isa_dispatch! {
    /// Mixes the streams `x`, `[streams, y.len()]`, with the output `y` of a sublayer.
    pub fn write_streams(x: &mut [f32], mixing: &[f32], y: &[f32]) = write_streams_body
}

#[inline(always)]
fn mixing_body<L: Lanes>(spec: Mixing, z: &[f32], base: &[f32], scale: &[f32], out: &mut [f32]) {
    spec.check();
    let n = spec.streams;
    assert!(z.len() == spec.len() && base.len() == z.len(), "a product and a bias for each weight");
    assert!(scale.len() == 3 && out.len() == z.len(), "three factors, and places for weights");
    let scales = [scale[0]; MAX_STREAMS].into_iter().take(n);
    let scales = scales.chain([scale[1]; MAX_STREAMS].into_iter().take(n));
    let scales = scales.chain(std::iter::repeat(scale[2]));
    for (((out, z), base), scale) in out.iter_mut().zip(z).zip(base).zip(scales) {
        *out = z * scale + base;
    }
    let (pre, rest) = out.split_at_mut(n);
    let (post, matrix) = rest.split_at_mut(n);
    sigmoids::<L>(pre);
    sigmoids::<L>(post);
    pre.iter_mut().for_each(|pre| *pre += spec.eps);
    post.iter_mut().for_each(|post| *post *= 2.0);
    for row in matrix.chunks_exact_mut(n) {
        softmax::<L>(row);
        row.iter_mut().for_each(|value| *value += spec.eps);
    }
    match n {
        4 => sinkhorn(spec, 4, matrix),
        n => sinkhorn(spec, n, matrix),
    }
}

/// Divides columns, then rows and columns in turns, by their sums.
#[inline(always)]
fn sinkhorn(spec: Mixing, n: usize, matrix: &mut [f32]) {
    columns(spec, n, matrix);
    for _ in 1..spec.iterations {
        for row in matrix.chunks_exact_mut(n) {
            let sum = row.iter().fold(0.0, |sum, value| sum + value) + spec.eps;
            row.iter_mut().for_each(|value| *value /= sum);
        }
        columns(spec, n, matrix);
    }
}

#[inline(always)]
fn columns(spec: Mixing, n: usize, matrix: &mut [f32]) {
    let mut sums = [0.0; MAX_STREAMS];
    for row in matrix.chunks_exact(n) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums[..n].iter_mut().for_each(|sum| *sum += spec.eps);
    for row in matrix.chunks_exact_mut(n) {
        row.iter_mut().zip(&sums).for_each(|(value, sum)| *value /= sum);
    }
}

#[inline(always)]
fn softmax<L: Lanes>(row: &mut [f32]) {
    let max = row[1..].iter().fold(row[0], |max, &value| if value > max { value } else { max });
    let mut values = [0.0; LANES];
    exp_to_one(load_partial::<L>(row, max).sub(L::splat(max))).store(&mut values);
    let sum = values[..row.len()].iter().fold(0.0, |sum, value| sum + value);
    row.iter_mut().zip(values).for_each(|(row, value)| *row = value / sum);
}

/// The sigmoids of up to sixteen values.
#[inline(always)]
fn sigmoids<L: Lanes>(values: &mut [f32]) {
    let (mut all, one) = ([0.0; LANES], L::splat(1.0));
    let x = load_partial::<L>(values, 0.0);
    one.div(one.add(exp(L::splat(0.0).sub(x)))).store(&mut all);
    values.copy_from_slice(&all[..values.len()]);
}

#[inline(always)]
fn head_mixing_body<L: Lanes>(
    spec: Mixing,
    z: &[f32],
    base: &[f32],
    scale: &[f32],
    out: &mut [f32],
) {
    spec.check();
    let n = spec.streams;
    assert!(z.len() == n && base.len() == n && out.len() == n, "a value for each stream");
    assert!(scale.len() == 1, "one factor");
    for ((out, z), base) in out.iter_mut().zip(z).zip(base) {
        *out = z * scale[0] + base;
    }
    sigmoids::<L>(out);
    out.iter_mut().for_each(|weight| *weight += spec.eps);
}

#[inline(always)]
fn read_streams_body<L: Lanes>(x: &[f32], pre: &[f32], out: &mut [f32]) {
    let hidden = out.len();
    assert!(!pre.is_empty() && x.len() == pre.len() * hidden, "a stream for each weight");
    for start in (0..hidden).step_by(LANES) {
        let end = (start + LANES).min(hidden);
        let mut sum = load::<L>(x, start..end).mul(L::splat(pre[0]));
        for (s, pre) in pre.iter().enumerate().skip(1) {
            let stream = load::<L>(x, s * hidden + start..s * hidden + end);
            sum = stream.mul_add(L::splat(*pre), sum);
        }
        store(sum, &mut out[start..end]);
    }
}

#[inline(always)]
fn write_streams_body<L: Lanes>(x: &mut [f32], mixing: &[f32], y: &[f32]) {
    let n = if y.is_empty() { 1 } else { x.len() / y.len() };
    assert!((1..=MAX_STREAMS).contains(&n) && x.len() == n * y.len(), "{n} streams");
    assert!(mixing.len() == (2 + n) * n, "the mixing of {n} streams");
    let (post, matrix) = mixing[n..].split_at(n);
    match n {
        4 => mix::<L, 4>(4, x, (post, matrix), y),
        n => mix::<L, MAX_STREAMS>(n, x, (post, matrix), y),
    }
}

/// [`write_streams`] for `n` streams, at most `N`.
#[inline(always)]
fn mix<L: Lanes, const N: usize>(
    n: usize,
    x: &mut [f32],
    (post, matrix): (&[f32], &[f32]),
    y: &[f32],
) {
    let hidden = y.len();
    for start in (0..hidden).step_by(LANES) {
        let end = (start + LANES).min(hidden);
        let output = load::<L>(y, start..end);
        let mut streams = [output; N];
        for (s, stream) in streams[..n].iter_mut().enumerate() {
            *stream = load(x, s * hidden + start..s * hidden + end);
        }
        for d in 0..n {
            let mut sum = output.mul(L::splat(post[d]));
            for (s, stream) in streams[..n].iter().enumerate() {
                sum = stream.mul_add(L::splat(matrix[s * n + d]), sum);
            }
            store(sum, &mut x[d * hidden + start..d * hidden + end]);
        }
    }
}

#[inline(always)]
fn load<L: Lanes>(from: &[f32], at: std::ops::Range<usize>) -> L {
    let from = &from[at];
    match from.first_chunk() {
        Some(whole) => L::load(whole),
        None => load_partial(from, 0.0),
    }
}

#[inline(always)]
fn store<L: Lanes>(values: L, to: &mut [f32]) {
    if let Some(whole) = to.first_chunk_mut() {
        values.store(whole);
    } else {
        let mut all = [0.0; LANES];
        values.store(&mut all);
        to.copy_from_slice(&all[..to.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use base::Rng;

    const SPEC: Mixing = Mixing { streams: 4, iterations: 20, eps: 1e-6 };

    fn mixed(isa: Isa, spec: Mixing, z: &[f32], base: &[f32], scale: &[f32]) -> Vec<f32> {
        let mut out = vec![f32::NAN; spec.len()];
        mixing(isa, spec, z, base, scale, &mut out);
        out
    }

    fn close(got: &[f32], want: &[f64], tolerance: f64) {
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() < tolerance, "{got} is not {want}");
        }
    }

    /// The example of the specification.
    #[test]
    fn mixings_have_the_values_of_the_specification() {
        let z: Vec<f32> = (0..24).map(|k| 0.1 * (k as f32 - 12.0)).collect();
        let base: Vec<f32> = (0..24).map(|k| 0.05 * ((7 * k % 5) as f32 - 2.0)).collect();
        let want = [
            [0.2141660, 0.2497409, 0.2890515, 0.2788858],
            [0.8267648, 0.7787215, 0.8511150, 0.9251403],
            [0.2457284, 0.2618242, 0.2306221, 0.2618242],
            [0.2779200, 0.2306222, 0.2608347, 0.2306221],
            [0.2457284, 0.2618242, 0.2306221, 0.2618242],
            [0.2306222, 0.2457284, 0.2779200, 0.2457284],
        ];
        for isa in Isa::available() {
            close(&mixed(isa, SPEC, &z, &base, &[1.0, 0.5, 2.0]), want.as_flattened(), 2e-7);
        }
    }

    /// The definition in f64.
    fn naive(spec: Mixing, z: &[f32], base: &[f32], scale: &[f32]) -> Vec<f64> {
        let (n, eps) = (spec.streams, f64::from(spec.eps));
        let at = |k: usize| {
            let scale = scale[if k < n {
                0
            } else if k < 2 * n {
                1
            } else {
                2
            }];
            f64::from(z[k]) * f64::from(scale) + f64::from(base[k])
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut out: Vec<f64> = (0..n).map(|k| sigmoid(at(k)) + eps).collect();
        out.extend((n..2 * n).map(|k| 2.0 * sigmoid(at(k))));
        let mut c = vec![vec![0.0; n]; n];
        for (a, row) in c.iter_mut().enumerate() {
            let all: f64 = (0..n).map(|b| at(2 * n + a * n + b).exp()).sum();
            for (b, value) in row.iter_mut().enumerate() {
                *value = at(2 * n + a * n + b).exp() / all + eps;
            }
        }
        for pass in 0..2 * spec.iterations - 1 {
            let before = c.clone();
            for a in 0..n {
                for b in 0..n {
                    let sum: f64 = match pass % 2 {
                        0 => (0..n).map(|a| before[a][b]).sum(),
                        _ => before[a].iter().sum(),
                    };
                    c[a][b] /= sum + eps;
                }
            }
        }
        out.extend(c.into_iter().flatten());
        out
    }

    #[test]
    fn mixings_follow_their_definition_on_every_isa() {
        for (streams, iterations) in [(1, 1), (2, 3), (3, 20), (4, 1), (4, 20), (7, 5), (16, 2)] {
            let spec = Mixing { streams, iterations, ..SPEC };
            let mut rng = Rng::new(streams as u64);
            let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f32>>();
            let (z, base, scale) = (random(spec.len()), random(spec.len()), [0.7, -1.3, 1.9]);
            let want = mixed(Isa::SCALAR, spec, &z, &base, &scale);
            close(&want, &naive(spec, &z, &base, &scale), 3e-6);
            let mut head = vec![f32::NAN; streams];
            head_mixing(Isa::SCALAR, spec, &z[..streams], &base[..streams], &scale[..1], &mut head);
            assert_eq!(head, want[..streams]);
            for isa in Isa::available() {
                assert_eq!(mixed(isa, spec, &z, &base, &scale), want, "{isa:?}");
                let mut again = vec![f32::NAN; streams];
                let z = &z[..streams];
                head_mixing(isa, spec, z, &base[..streams], &scale[..1], &mut again);
                assert_eq!(again, head, "{isa:?}");
            }
        }
    }

    #[test]
    fn streams_are_read_and_written_as_defined_on_every_isa() {
        for (n, hidden) in [(1, 5), (2, 16), (4, 64), (4, 83), (6, 33), (16, 18)] {
            let mut rng = Rng::new((n * hidden) as u64);
            let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f32>>();
            let (x, y, mixing) = (random(n * hidden), random(hidden), random((2 + n) * n));
            let wide = |s: usize, i: usize| f64::from(x[s * hidden + i]);
            let weight = |at: usize| f64::from(mixing[at]);
            let read: Vec<f64> =
                (0..hidden).map(|i| (0..n).map(|s| weight(s) * wide(s, i)).sum()).collect();
            let written: Vec<f64> = (0..n * hidden)
                .map(|at| {
                    let (d, i) = (at / hidden, at % hidden);
                    let streams = (0..n).map(|s| weight(2 * n + s * n + d) * wide(s, i));
                    weight(n + d) * f64::from(y[i]) + streams.sum::<f64>()
                })
                .collect();
            let run = |isa| {
                let (mut input, mut streams) = (vec![f32::NAN; hidden], x.clone());
                read_streams(isa, &x, &mixing[..n], &mut input);
                write_streams(isa, &mut streams, &mixing, &y);
                (input, streams)
            };
            let (input, streams) = run(Isa::SCALAR);
            close(&input, &read, 1e-5);
            close(&streams, &written, 1e-5);
            for isa in Isa::available() {
                assert_eq!(run(isa), (input.clone(), streams.clone()), "{isa:?}");
            }
        }
    }
}
