//! Operations on single rows: normalisation, gates, sums, conversion to BF16.

use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};
use crate::math::{erfc, exp};
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

isa_dispatch! {
    /// RMSNorm of one row: `out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]`
    /// (Zhang and Sennrich, 2019). All slices have the same length.
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_body
}

isa_dispatch! {
    /// `out[i] = x[i] - mean(x)`: what LayerNorm does before RMSNorm (Ba et al., 2016).
    pub fn center(x: &[f32], out: &mut [f32]) = center_body
}

isa_dispatch! {
    /// Applies a gate of one row to ones: `x[i] = f(x[i], 1)`.
    pub fn activate(kind: Gate, x: &mut [f32]) = activate_body
}

/// How the gate of an MLP is applied to what passes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// `silu(gate) * up` (Shazeer, 2020).
    Silu,
    /// `gate * sigmoid(alpha * gate) * (up + 1)` with `gate` at most `limit` and `up` within
    /// `-limit..=limit` (gpt-oss).
    Clamped {
        /// Slope of the sigmoid.
        alpha: f32,
        /// Where values are cut off.
        limit: f32,
    },
    /// `silu(gate) * up` with `gate` at most `limit` and `up` within `-limit..=limit`
    /// (DeepSeek V4).
    SiluClamped {
        /// Where values are cut off.
        limit: f32,
    },
    /// `silu(gate) * up` with `silu(gate)` at most `limit` and `up` within `-limit..=limit`
    /// (Step 3.5).
    SiluThenClamped {
        /// Where values are cut off.
        limit: f32,
    },
    /// `sigmoid(gate) * up`.
    Sigmoid,
    /// `gelu(gate) * up` with the approximation by a hyperbolic tangent (Hendrycks and Gimpel,
    /// 2016).
    GeluTanh,
    /// `gate * up`.
    Product,
    /// `max(gate, 0)^2 * up` (So et al., 2021).
    ReluSquared,
    /// `gelu(gate) * up` by its definition (Hendrycks and Gimpel, 2016).
    Gelu,
}

isa_dispatch! {
    /// Applies the gates of one row: `gate[i] = f(gate[i], up[i])`.
    pub fn apply_gate(kind: Gate, gate: &mut [f32], up: &[f32]) = apply_gate_body
}

isa_dispatch! {
    /// `x[i] = x[i] * sigmoid(gate)`.
    pub fn scale_by_sigmoid(x: &mut [f32], gate: f32) = scale_by_sigmoid_body
}

isa_dispatch! {
    /// `x[i] = x[i] * factor`.
    pub fn scale(x: &mut [f32], factor: f32) = scale_body
}

isa_dispatch! {
    /// `x[i] = cap * tanh(x[i] / cap)`.
    pub fn soft_cap(x: &mut [f32], cap: f32) = soft_cap_body
}

isa_dispatch! {
    /// `x[i] += y[i] * factor`.
    pub fn add_scaled(x: &mut [f32], y: &[f32], factor: f32) = add_scaled_body
}

isa_dispatch! {
    /// `x[i] += y[i]`.
    pub fn add(x: &mut [f32], y: &[f32]) = add_body
}

isa_dispatch! {
    /// The upper 16 bits of each value, rounded to nearest even; NaN stays NaN.
    pub fn to_bf16(x: &[f32], out: &mut [u16]) = to_bf16_body
}

#[inline(always)]
fn rms_norm_body<L: Lanes>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "rows of one length");
    let mut squares = L::splat(0.0);
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        let v = L::load(chunk);
        squares = v.mul_add(v, squares);
    }
    let v = load_partial::<L>(rest, 0.0);
    squares = v.mul_add(v, squares);
    let scale = 1.0 / (squares.sum() / x.len() as f32 + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[inline(always)]
fn center_body<L: Lanes>(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "rows of one length");
    let mut sums = L::splat(0.0);
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        sums = sums.add(L::load(chunk));
    }
    let mean = sums.add(load_partial::<L>(rest, 0.0)).sum() / x.len() as f32;
    for (out, x) in out.iter_mut().zip(x) {
        *out = x - mean;
    }
}

#[inline(always)]
fn activate_body<L: Lanes>(kind: Gate, x: &mut [f32]) {
    let ones = [1.0; LANES];
    for x in x.chunks_mut(LANES) {
        apply_gate_body::<L>(kind, x, &ones[..x.len()]);
    }
}

#[inline(always)]
fn apply_gate_body<L: Lanes>(kind: Gate, gate: &mut [f32], up: &[f32]) {
    match kind {
        Gate::Silu => each_pair::<L>(Silu, gate, up),
        Gate::Clamped { alpha, limit } => each_pair::<L>(Clamped { alpha, limit }, gate, up),
        Gate::SiluClamped { limit } => each_pair::<L>(SiluClamped { limit }, gate, up),
        Gate::SiluThenClamped { limit } => each_pair::<L>(SiluThenClamped { limit }, gate, up),
        Gate::Sigmoid => each_pair::<L>(SigmoidGate, gate, up),
        Gate::GeluTanh => each_pair::<L>(GeluTanh, gate, up),
        Gate::Product => each_pair::<L>(Product, gate, up),
        Gate::ReluSquared => each_pair::<L>(ReluSquared, gate, up),
        Gate::Gelu => each_pair::<L>(Gelu, gate, up),
    }
}

/// What becomes of two lanes. Not a closure, which is not compiled for the instruction set.
pub(crate) trait Pairwise: Copy {
    /// `#[inline(always)]`.
    fn of<L: Lanes>(self, gate: L, up: L) -> L;
}

#[derive(Clone, Copy)]
struct Silu;

impl Pairwise for Silu {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        gate.mul_sigmoid(gate).mul(up)
    }
}

#[derive(Clone, Copy)]
struct Clamped {
    alpha: f32,
    limit: f32,
}

impl Pairwise for Clamped {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        let limit = L::splat(self.limit);
        let gate = lower(gate, limit);
        let up = lower(up.max(L::splat(-self.limit)), limit);
        gate.mul_sigmoid(gate.mul(L::splat(self.alpha))).mul(up.add(L::splat(1.0)))
    }
}

#[derive(Clone, Copy)]
struct SiluClamped {
    limit: f32,
}

impl Pairwise for SiluClamped {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        let limit = L::splat(self.limit);
        Silu.of(lower(gate, limit), lower(up.max(L::splat(-self.limit)), limit))
    }
}

#[derive(Clone, Copy)]
struct SiluThenClamped {
    limit: f32,
}

impl Pairwise for SiluThenClamped {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        let limit = L::splat(self.limit);
        lower(gate.mul_sigmoid(gate), limit).mul(lower(up.max(L::splat(-self.limit)), limit))
    }
}

#[derive(Clone, Copy)]
struct SigmoidGate;

impl Pairwise for SigmoidGate {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        L::splat(1.0).mul_sigmoid(gate).mul(up)
    }
}

#[derive(Clone, Copy)]
struct GeluTanh;

impl Pairwise for GeluTanh {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        // (1 + tanh(y)) / 2 is the sigmoid of 2 y, where y = sqrt(2 / pi) * (x + 0.044715 * x^3).
        const LINEAR: f32 = 2.0 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
        const CUBIC: f32 = 0.044_715 * LINEAR;
        let square = gate.mul(gate);
        let slope = square.mul_add(L::splat(CUBIC), L::splat(LINEAR));
        gate.mul_sigmoid(gate.mul(slope)).mul(up)
    }
}

#[derive(Clone, Copy)]
struct Product;

impl Pairwise for Product {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        gate.mul(up)
    }
}

#[derive(Clone, Copy)]
struct ReluSquared;

impl Pairwise for ReluSquared {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        let positive = gate.max(L::splat(0.0));
        positive.mul(positive).mul(up)
    }
}

#[derive(Clone, Copy)]
struct Gelu;

impl Pairwise for Gelu {
    #[inline(always)]
    fn of<L: Lanes>(self, gate: L, up: L) -> L {
        // x * (1 + erf(x / sqrt(2))) / 2 is max(x, 0) less the value for the distance of x from 0.
        // That is 0 in f32 from 14 on.
        let zero = L::splat(0.0);
        let distance = lower(gate.max(zero.sub(gate)), L::splat(14.0));
        let beyond = erfc(distance.mul(L::splat(FRAC_1_SQRT_2)));
        let less = distance.mul(L::splat(0.5)).mul(beyond);
        gate.max(zero).sub(less).mul(up)
    }
}

/// The lower of two, or `x` if that is NaN.
#[inline(always)]
pub(crate) fn lower<L: Lanes>(x: L, limit: L) -> L {
    let zero = L::splat(0.0);
    zero.sub(zero.sub(x).max(zero.sub(limit)))
}

pub(crate) trait Sigmoid: Lanes {
    /// `self * sigmoid(x)`.
    #[inline(always)]
    fn mul_sigmoid(self, x: Self) -> Self {
        self.div(Self::splat(1.0).add(exp(Self::splat(0.0).sub(x))))
    }
}

impl<L: Lanes> Sigmoid for L {}

/// `a[i] = op(a[i], b[i])`.
#[inline(always)]
pub(crate) fn each_pair<L: Lanes>(op: impl Pairwise, a: &mut [f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "rows of one length");
    let (whole, rest) = a.as_chunks_mut::<LANES>();
    let (others, other_rest) = b.as_chunks::<LANES>();
    for (a, b) in whole.iter_mut().zip(others) {
        op.of(L::load(a), L::load(b)).store(a);
    }
    let mut last = [0.0; LANES];
    op.of(load_partial::<L>(rest, 0.0), load_partial(other_rest, 0.0)).store(&mut last);
    rest.copy_from_slice(&last[..rest.len()]);
}

#[inline(always)]
fn scale_by_sigmoid_body<L: Lanes>(x: &mut [f32], gate: f32) {
    let mut factor = [0.0; LANES];
    L::splat(1.0).mul_sigmoid(L::splat(gate)).store(&mut factor);
    for x in x {
        *x *= factor[0];
    }
}

#[inline(always)]
fn scale_body<L: Lanes>(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

#[inline(always)]
fn soft_cap_body<L: Lanes>(x: &mut [f32], cap: f32) {
    let (whole, rest) = x.as_chunks_mut::<LANES>();
    for x in whole {
        capped(L::load(x), cap).store(x);
    }
    let mut last = [0.0; LANES];
    capped(load_partial::<L>(rest, 0.0), cap).store(&mut last);
    rest.copy_from_slice(&last[..rest.len()]);
}

/// `cap * tanh(x / cap)`, which is `2 * cap * sigmoid(2 * x / cap) - cap`.
#[inline(always)]
fn capped<L: Lanes>(x: L, cap: f32) -> L {
    let twice = L::splat(2.0 * cap);
    twice.mul_sigmoid(x.mul(L::splat(2.0 / cap))).sub(L::splat(cap))
}

#[inline(always)]
fn add_scaled_body<L: Lanes>(x: &mut [f32], y: &[f32], factor: f32) {
    assert_eq!(x.len(), y.len(), "rows of one length");
    for (x, y) in x.iter_mut().zip(y) {
        *x += *y * factor;
    }
}

#[inline(always)]
fn add_body<L: Lanes>(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "rows of one length");
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[inline(always)]
fn to_bf16_body<L: Lanes>(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len(), "rows of one length");
    for (out, x) in out.iter_mut().zip(x) {
        *out = bf16_bits(*x);
    }
}

/// One value of [`to_bf16`].
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    let quiet_nan = bits | 0x0040_0000;
    ((if x.is_nan() { quiet_nan } else { rounded }) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::math::tests::exact_erfc;
    use proptest::prelude::*;

    fn row() -> impl Strategy<Value = Vec<(f32, f32)>> {
        prop::collection::vec((-20.0f32..20.0, -3.0f32..3.0), 1..70)
    }

    /// Compares a gate with its definition, and all instruction sets with each other.
    fn check_gate(
        kind: Gate,
        row: &[(f32, f32)],
        definition: impl Fn(f64, f64) -> f64,
    ) -> Result<(), TestCaseError> {
        let (gate, up): (Vec<f32>, Vec<f32>) = row.iter().copied().unzip();
        let mut scalar = gate.clone();
        apply_gate(Isa::SCALAR, kind, &mut scalar, &up);
        for ((gate, up), got) in row.iter().zip(&scalar) {
            let want = definition(f64::from(*gate), f64::from(*up));
            let off = (f64::from(*got) - want).abs();
            prop_assert!(off <= 1e-5 * want.abs().max(1e-3), "{kind:?}: {got} is not {want}");
        }
        for isa in Isa::available() {
            let mut got = gate.clone();
            apply_gate(isa, kind, &mut got, &up);
            prop_assert_eq!(&got, &scalar, "{:?} {:?}", isa, kind);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn rms_norm_follows_its_definition(row in row()) {
            let (x, w): (Vec<f32>, Vec<f32>) = row.into_iter().unzip();
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
            let mut scalar = vec![0.0; x.len()];
            rms_norm(Isa::SCALAR, &x, &w, 1e-5, &mut scalar);
            for i in 0..x.len() {
                let want = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(w[i]);
                prop_assert!((f64::from(scalar[i]) - want).abs() <= 1e-5 * want.abs().max(1.0));
            }
            for isa in Isa::available() {
                let mut got = vec![0.0; x.len()];
                rms_norm(isa, &x, &w, 1e-5, &mut got);
                prop_assert_eq!(&got, &scalar);
            }
        }

        #[test]
        fn gates_follow_their_definition(row in row(), limit in 0.5f32..9.0) {
            let silu = |gate: f64, alpha: f64| gate / (1.0 + (-alpha * gate).exp());
            let most = f64::from(limit);
            check_gate(Gate::Silu, &row, |gate, up| silu(gate, 1.0) * up)?;
            check_gate(Gate::Clamped { alpha: 1.702, limit }, &row, |gate, up| {
                silu(gate.min(most), f64::from(1.702f32)) * (up.clamp(-most, most) + 1.0)
            })?;
            check_gate(Gate::SiluClamped { limit }, &row, |gate, up| {
                silu(gate.min(most), 1.0) * up.clamp(-most, most)
            })?;
            check_gate(Gate::SiluThenClamped { limit }, &row, |gate, up| {
                silu(gate, 1.0).min(most) * up.clamp(-most, most)
            })?;
            check_gate(Gate::Sigmoid, &row, |gate, up| up / (1.0 + (-gate).exp()))?;
            check_gate(Gate::Product, &row, |gate, up| gate * up)?;
            check_gate(Gate::ReluSquared, &row, |gate, up| gate.max(0.0).powi(2) * up)?;
            check_gate(Gate::GeluTanh, &row, |x, up| {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh()) * up
            })?;
            check_gate(Gate::Gelu, &row, |x, up| {
                let below = 0.5 * exact_erfc(x.abs() / std::f64::consts::SQRT_2);
                x * if x > 0.0 { 1.0 - below } else { below } * up
            })?;
        }

        #[test]
        fn rows_are_centred_and_activated(row in row()) {
            let x: Vec<f32> = row.into_iter().map(|(x, y)| x + 9.0 * y).collect();
            let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
            let mut scalar = vec![0.0; x.len()];
            center(Isa::SCALAR, &x, &mut scalar);
            for (x, got) in x.iter().zip(&scalar) {
                prop_assert!((f64::from(*got) - (f64::from(*x) - mean)).abs() <= 1e-4);
            }
            let mut gated = x.clone();
            apply_gate(Isa::SCALAR, Gate::GeluTanh, &mut gated, &vec![1.0; x.len()]);
            for isa in Isa::available() {
                let (mut got, mut activated) = (vec![0.0; x.len()], x.clone());
                center(isa, &x, &mut got);
                prop_assert_eq!(&got, &scalar);
                activate(isa, Gate::GeluTanh, &mut activated);
                prop_assert_eq!(&activated, &gated);
            }
        }

        #[test]
        fn values_are_capped_and_scaled(row in row(), cap in 0.5f32..50.0) {
            let x: Vec<f32> = row.into_iter().map(|(x, y)| 9.0 * x * y).collect();
            let mut scalar = x.clone();
            soft_cap(Isa::SCALAR, &mut scalar, cap);
            for (x, got) in x.iter().zip(&scalar) {
                let want = f64::from(cap) * (f64::from(*x) / f64::from(cap)).tanh();
                prop_assert!((f64::from(*got) - want).abs() <= 3e-7 * f64::from(cap));
            }
            for isa in Isa::available() {
                let (mut got, mut scaled) = (x.clone(), x.clone());
                soft_cap(isa, &mut got, cap);
                prop_assert_eq!(&got, &scalar);
                scale(isa, &mut scaled, cap);
                prop_assert!(scaled.iter().zip(&x).all(|(got, x)| *got == x * cap));
            }
        }

        #[test]
        fn bf16_rounds_as_the_half_crate_does(bits in prop::collection::vec(any::<u32>(), 1..40)) {
            let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            for isa in Isa::available() {
                let mut got = vec![0; x.len()];
                to_bf16(isa, &x, &mut got);
                for (x, got) in x.iter().zip(got) {
                    prop_assert_eq!(got, half::bf16::from_f32(*x).to_bits());
                }
            }
        }
    }

    #[test]
    fn gates_of_nan_are_nan() {
        let clamped = Gate::SiluClamped { limit: 2.0 };
        let then_clamped = Gate::SiluThenClamped { limit: 2.0 };
        let kinds = [Gate::Silu, clamped, then_clamped, Gate::Sigmoid, Gate::GeluTanh, Gate::Gelu];
        for (isa, kind) in
            Isa::available().into_iter().flat_map(|isa| kinds.map(|kind| (isa, kind)))
        {
            let mut gate = [f32::NAN, 1.0];
            apply_gate(isa, kind, &mut gate, &[1.0, f32::NAN]);
            assert!(gate.iter().all(|value| value.is_nan()), "{isa:?} {kind:?}");
        }
    }

    #[test]
    fn add_adds() {
        for isa in Isa::available() {
            let mut x = vec![1.0; 19];
            add(isa, &mut x, &[0.5; 19]);
            assert_eq!(x, vec![1.5; 19]);
        }
    }
}
