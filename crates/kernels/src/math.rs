//! The exponential function, the logarithm of `1 + x` and the complementary error function over
//! lanes.

use crate::lanes::Lanes;

/// Below this exp is taken as 0 (the result would be a denormal).
const MIN_EXP: f32 = -87.3;
/// Above this exp is taken as exp(MAX_EXP), near the largest float.
const MAX_EXP: f32 = 88.3;

/// e^x with a relative error below 2e-7 for -87.3..88.3; 0 below, NaN for NaN.
///
/// Cody-Waite reduction to |r| <= ln(2)/2 and the Taylor polynomial of degree 7.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    reduced(x, L::splat(0.0).sub(L::splat(0.0).sub(x).max(L::splat(-MAX_EXP))))
}

/// [`exp`] of values that are not above 0, with equal bits and less work.
#[inline(always)]
pub(crate) fn exp_to_one<L: Lanes>(x: L) -> L {
    reduced(x, x)
}

#[inline(always)]
fn reduced<L: Lanes>(x: L, bounded: L) -> L {
    let n = bounded.mul(L::splat(std::f32::consts::LOG2_E)).round();
    // ln(2) in two parts; the first has few bits, so n times it is exact.
    let r = n.mul_add(L::splat(-0.693_359_4), bounded);
    let r = n.mul_add(L::splat(2.121_944_4e-4), r);
    let mut sum = L::splat(1.0 / 5040.0);
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum.mul_add(r, L::splat(coefficient));
    }
    x.zero_if_below(L::splat(MIN_EXP), sum.scale_exp2(n))
}

/// ln(1 + x) with a relative error below 2e-7 for `x` in 0..=1; NaN for NaN.
///
/// `2 atanh(s)` with `s = x / (2 + x)`, at most 1/3, and the Taylor polynomial of degree 15.
#[inline(always)]
pub(crate) fn log1p<L: Lanes>(x: L) -> L {
    let s = x.div(x.add(L::splat(2.0)));
    let square = s.mul(s);
    let mut sum = L::splat(1.0 / 15.0);
    for odd in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        sum = sum.mul_add(square, L::splat(1.0 / odd));
    }
    let twice = s.add(s);
    twice.mul(square).mul_add(sum, twice)
}

/// `ln(1 + e^x)`, which is `x` in f32 above 20 and `e^x` below -20; NaN for NaN.
#[inline(always)]
pub(crate) fn softplus<L: Lanes>(x: L) -> L {
    let zero = L::splat(0.0);
    let below = zero.sub(x.max(zero.sub(x)));
    x.max(zero).add(log1p(exp_to_one(below)))
}

/// `erfc(x)` with a relative error below 6e-6 for `x` in 0..=9; 0 from there on, NaN for NaN. `x`
/// is not below 0.
///
/// `t * exp(p(t) - x^2)` with `t = 1 / (1 + x / 2)`; the polynomial interpolates the exponent in
/// Chebyshev points of `x` in 0..=10 to 1e-8.
#[inline(always)]
pub(crate) fn erfc<L: Lanes>(x: L) -> L {
    const COEFFICIENTS: [f32; 10] = [
        1.037_531_1,
        -2.957_652_6,
        4.492_053,
        -3.794_910_7,
        1.821_787_4,
        -0.777_620_1,
        0.244_087_12,
        0.351_318_45,
        1.001_997_6,
        -1.265_585_4,
    ];
    let t = L::splat(1.0).div(x.mul_add(L::splat(0.5), L::splat(1.0)));
    let mut sum = L::splat(-0.153_006_14);
    for coefficient in COEFFICIENTS {
        sum = sum.mul_add(t, L::splat(coefficient));
    }
    t.mul(exp(L::splat(0.0).sub(x).mul_add(x, sum)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Isa;

    fn softplus_body<L: Lanes>(x: &[f32; 16], out: &mut [f32; 16]) {
        softplus(L::load(x)).store(out);
    }

    fn log1p_body<L: Lanes>(x: &[f32; 16], out: &mut [f32; 16]) {
        log1p(L::load(x)).store(out);
    }

    crate::lanes::isa_dispatch! {
        fn softpluses(x: &[f32; 16], out: &mut [f32; 16]) = softplus_body
    }

    crate::lanes::isa_dispatch! {
        fn log1ps(x: &[f32; 16], out: &mut [f32; 16]) = log1p_body
    }

    /// Compares `f` with `exact` at sixteen values, on every instruction set.
    fn check(
        f: fn(Isa, &[f32; 16], &mut [f32; 16]),
        exact: fn(f64) -> f64,
        x: &[f32; 16],
        tolerance: f64,
    ) {
        let mut want = [0.0; 16];
        f(Isa::SCALAR, x, &mut want);
        for (x, got) in x.iter().zip(want) {
            let exact = exact(f64::from(*x));
            assert!((f64::from(got) - exact).abs() <= tolerance * exact, "f({x}) = {got}");
        }
        for isa in Isa::available() {
            let mut got = [0.0; 16];
            f(isa, x, &mut got);
            assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{isa:?}");
        }
    }

    #[test]
    fn log1p_is_accurate_and_equal_on_every_isa() {
        for start in 0..64 {
            let at = |i: usize| (start * 16 + i) as f32 / 1023.0;
            check(log1ps, f64::ln_1p, &std::array::from_fn(at), 2e-7);
            check(log1ps, f64::ln_1p, &std::array::from_fn(|i| at(i) * 1e-6), 2e-7);
        }
    }

    #[test]
    fn softplus_is_accurate_and_equal_on_every_isa() {
        let exact = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        for start in -86..100 {
            let x = std::array::from_fn(|i| start as f32 + i as f32 / 16.0);
            check(softpluses, exact, &x, 4e-7);
        }
    }

    fn erfcs_body<L: Lanes>(x: &[f32; 16], out: &mut [f32; 16]) {
        erfc(L::load(x)).store(out);
    }

    crate::lanes::isa_dispatch! {
        fn erfcs(x: &[f32; 16], out: &mut [f32; 16]) = erfcs_body
    }

    /// By its series or its continued fraction.
    pub(crate) fn exact_erfc(x: f64) -> f64 {
        let factor = 2.0 / std::f64::consts::PI.sqrt();
        if x < 3.0 {
            let mut term = x;
            let mut sum = x;
            for n in 1..100 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return 1.0 - factor * sum;
        }
        let fraction = (1..200).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
        (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn erfc_is_accurate_and_equal_on_every_isa() {
        for start in 0..144 {
            let x = std::array::from_fn(|i| (start * 16 + i) as f32 / 256.0);
            check(erfcs, exact_erfc, &x, 6e-6);
        }
        let mut x = [20.0; 16];
        x[1..3].copy_from_slice(&[1e30, f32::NAN]);
        for isa in Isa::available() {
            let mut got = [1.0; 16];
            erfcs(isa, &x, &mut got);
            assert!(got[..2] == [0.0, 0.0] && got[2].is_nan(), "{isa:?}: {got:?}");
        }
    }

    #[test]
    fn softplus_of_the_extremes() {
        let mut x = [0.0; 16];
        x[..5].copy_from_slice(&[f32::NEG_INFINITY, -1e30, 1e30, f32::INFINITY, f32::NAN]);
        for isa in Isa::available() {
            let mut got = [0.0; 16];
            softpluses(isa, &x, &mut got);
            assert_eq!(got[..4], [0.0, 0.0, 1e30, f32::INFINITY], "{isa:?}");
            assert!(got[4].is_nan(), "{isa:?}");
        }
    }

    fn exps_body<L: Lanes>(x: &[f32; 16], out: &mut [f32; 16]) {
        exp(L::load(x)).store(out);
        let mut again = [0.0; 16];
        exp_to_one(L::load(x)).store(&mut again);
        for ((x, want), got) in x.iter().zip(out).zip(again) {
            assert!(*x > 0.0 || x.is_nan() || got.to_bits() == want.to_bits(), "exp({x})");
        }
    }

    crate::lanes::isa_dispatch! {
        fn exps(x: &[f32; 16], out: &mut [f32; 16]) = exps_body
    }

    #[test]
    fn exp_is_accurate_and_equal_on_every_isa() {
        for start in -88..88 {
            let x = std::array::from_fn(|i| start as f32 + i as f32 / 16.0);
            let mut want = [0.0; 16];
            exps(Isa::SCALAR, &x, &mut want);
            for (x, got) in x.iter().zip(want).filter(|(x, _)| **x > MIN_EXP) {
                let exact = f64::from(*x).exp();
                assert!(((f64::from(got) - exact) / exact).abs() < 2e-7, "exp({x}) = {got}");
            }
            for isa in Isa::available() {
                let mut got = [0.0; 16];
                exps(isa, &x, &mut got);
                assert_eq!(got, want, "{isa:?}");
            }
        }
    }

    #[test]
    fn exp_of_the_extremes() {
        let mut x = [0.0; 16];
        x[..4].copy_from_slice(&[f32::NEG_INFINITY, -1e30, 1e30, f32::NAN]);
        for isa in Isa::available() {
            let mut got = [0.0; 16];
            exps(isa, &x, &mut got);
            assert_eq!(got[..2], [0.0, 0.0], "{isa:?}");
            assert!(got[2].is_finite() && got[2] > 1e38, "{isa:?} {}", got[2]);
            assert!(got[3].is_nan(), "{isa:?}");
            assert_eq!(got[4], 1.0);
        }
    }
}
