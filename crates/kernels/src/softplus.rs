//! `ln(1 + e^x)` over lanes.

use crate::lanes::Lanes;
use crate::math::exp_to_one;

/// `ln(1 + e^x)` with a relative error below 5e-7 for x of at least -87; 0 below -87.3, NaN for
/// NaN.
///
/// `max(x, 0) + ln(1 + y)` with `y = e^-|x|`; the logarithm is `2 artanh(y / (2 + y))`, whose
/// argument is at most 1/3, as its Taylor series.
#[inline(always)]
pub(crate) fn softplus<L: Lanes>(x: L) -> L {
    let zero = L::splat(0.0);
    let minus = zero.sub(x);
    let y = exp_to_one(zero.sub(x.max(minus)));
    let s = y.div(y.add(L::splat(2.0)));
    let square = s.mul(s);
    let mut sum = L::splat(2.0 / 15.0);
    for denominator in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        sum = sum.mul_add(square, L::splat(2.0 / denominator));
    }
    // The last multiply-add is apart, as its terms differ most.
    let tail = sum.mul(square);
    s.mul_add(tail, s.add(s)).add(x.max(zero))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    fn values_body<L: Lanes>(x: &[f32; 16], out: &mut [f32; 16]) {
        softplus(L::load(x)).store(out);
    }

    crate::lanes::isa_dispatch! {
        fn values(x: &[f32; 16], out: &mut [f32; 16]) = values_body
    }

    fn on_every_isa(x: &[f32; 16]) -> [f32; 16] {
        let mut want = [0.0; 16];
        values(Isa::SCALAR, x, &mut want);
        for isa in Isa::available() {
            let mut got = [0.0; 16];
            values(isa, x, &mut got);
            assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{isa:?} {x:?}");
        }
        want
    }

    #[test]
    fn softplus_is_accurate_from_the_smallest_to_the_largest() {
        for step in -87 * 64..100 * 64 {
            let x = std::array::from_fn(|i| (step as f32 + i as f32 / 16.0) / 64.0);
            for (x, got) in x.into_iter().zip(on_every_isa(&x)) {
                let exact = f64::from(x).max(0.0) + (-f64::from(x).abs()).exp().ln_1p();
                let error = (f64::from(got) - exact).abs() / exact;
                assert!(error < 5e-7, "softplus({x}) = {got}, {exact}: {error}");
            }
        }
    }

    #[test]
    fn softplus_of_the_extremes() {
        let mut x = [0.0; 16];
        x[..6].copy_from_slice(&[f32::NEG_INFINITY, -1e30, 1e30, f32::INFINITY, f32::NAN, -88.0]);
        let got = on_every_isa(&x);
        assert_eq!(got[..4], [0.0, 0.0, 1e30, f32::INFINITY]);
        assert!(got[4].is_nan());
        assert_eq!(got[5], 0.0);
        assert!((got[6] - std::f32::consts::LN_2).abs() < 1e-7);
    }
}
