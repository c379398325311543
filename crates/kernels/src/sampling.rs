//! Passes over a row of logits for the choice of a token: maxima, and weights of a softmax.
//!
//! A row falls into runs of [`RUN`] logits, a run into [`COLUMNS`] columns: column `c` has its
//! logits `c`, `c + COLUMNS`, and so on, which is what one lane sees.

use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};
use crate::math::exp_to_one;

/// Logits in a run; the last one may have fewer.
pub const RUN: usize = 1024;
/// Columns of a run.
pub const COLUMNS: usize = LANES;

/// How a logit becomes a weight: `exp((logit - best) * scale)`, 0 below e^-87.
#[derive(Clone, Copy, Debug)]
pub struct Weighing {
    /// The largest logit, whose weight is 1.
    pub best: f32,
    /// One divided by the temperature.
    pub scale: f32,
    /// Logits below this weigh nothing.
    pub least: f32,
}

isa_dispatch! {
    /// The largest logit of each column of each run, minus infinity where a column is empty; and
    /// whether all logits are finite.
    pub fn survey(logits: &[f32], maxima: &mut [[f32; COLUMNS]], finite: &mut bool) = survey_body
}

isa_dispatch! {
    /// The sum of the weights of up to a run of logits: those of a column in ascending order, then
    /// the columns by halves.
    pub fn mass(logits: &[f32], weighing: Weighing, sum: &mut f32) = mass_body
}

isa_dispatch! {
    /// The weight of each logit.
    pub fn weights(logits: &[f32], weighing: Weighing, out: &mut [f32]) = weights_body
}

#[inline(always)]
fn survey_body<L: Lanes>(logits: &[f32], maxima: &mut [[f32; COLUMNS]], finite: &mut bool) {
    assert_eq!(maxima.len(), logits.len().div_ceil(RUN), "as many as runs");
    // v - v is NaN where v is not finite, and a sum never gets rid of that.
    let mut spoilt = L::splat(0.0);
    for (run, maxima) in logits.chunks(RUN).zip(maxima) {
        let (whole, rest) = run.as_chunks::<LANES>();
        let mut largest = load_partial::<L>(rest, f32::NEG_INFINITY);
        let v = load_partial::<L>(rest, 0.0);
        spoilt = spoilt.add(v.sub(v));
        for chunk in whole {
            let v = L::load(chunk);
            largest = largest.max(v);
            spoilt = spoilt.add(v.sub(v));
        }
        largest.store(maxima);
    }
    *finite = spoilt.sum() == 0.0;
}

#[inline(always)]
fn mass_body<L: Lanes>(logits: &[f32], weighing: Weighing, sum: &mut f32) {
    let (whole, rest) = logits.as_chunks::<LANES>();
    let mut mass = L::splat(0.0);
    for chunk in whole {
        mass = mass.add(weight(L::load(chunk), weighing));
    }
    *sum = mass.add(weight(load_partial(rest, f32::NEG_INFINITY), weighing)).sum();
}

#[inline(always)]
fn weights_body<L: Lanes>(logits: &[f32], weighing: Weighing, out: &mut [f32]) {
    assert_eq!(out.len(), logits.len(), "rows of one length");
    let (whole, rest) = logits.as_chunks::<LANES>();
    let (whole_out, rest_out) = out.as_chunks_mut::<LANES>();
    for (chunk, out) in whole.iter().zip(whole_out) {
        weight(L::load(chunk), weighing).store(out);
    }
    let mut last = [0.0; LANES];
    weight::<L>(load_partial(rest, f32::NEG_INFINITY), weighing).store(&mut last);
    rest_out.copy_from_slice(&last[..rest.len()]);
}

#[inline(always)]
fn weight<L: Lanes>(logit: L, by: Weighing) -> L {
    let exponent = logit.sub(L::splat(by.best)).mul(L::splat(by.scale));
    logit.zero_if_below(L::splat(by.least), exp_to_one(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use proptest::prelude::*;

    /// Rows of up to some runs, with ties and banned ids.
    fn row() -> impl Strategy<Value = Vec<f32>> {
        let logit = prop_oneof![
            6 => -30.0f32..20.0,
            1 => Just(f32::NEG_INFINITY),
            1 => Just(2.5f32),
            1 => Just(-0.0f32),
        ];
        prop::collection::vec(logit, 1..2300)
    }

    proptest! {
        #[test]
        fn maxima_are_those_of_the_columns_on_every_isa(row in row()) {
            for isa in Isa::available() {
                let mut maxima = vec![[0.0; COLUMNS]; row.len().div_ceil(RUN)];
                survey(isa, &row, &mut maxima, &mut false);
                for (run, maxima) in row.chunks(RUN).zip(maxima) {
                    for (column, got) in maxima.into_iter().enumerate() {
                        let logits = run.iter().skip(column).step_by(COLUMNS);
                        prop_assert_eq!(got, logits.copied().fold(f32::NEG_INFINITY, f32::max));
                    }
                }
            }
        }

        #[test]
        fn mass_and_weights_follow_their_definition(row in row(), scale in 0.1f32..3.0) {
            let best = row.iter().copied().fold(-40.0, f32::max);
            let by = Weighing { best, scale, least: -3.0 };
            let (mut want, mut sum) = (vec![0.0; row.len()], 0.0);
            weights(Isa::SCALAR, &row, by, &mut want);
            mass(Isa::SCALAR, &row, by, &mut sum);
            for (logit, got) in row.iter().zip(&want) {
                let exact = (f64::from(logit - best) * f64::from(scale)).exp();
                let exact = if *logit < by.least { 0.0 } else { exact };
                prop_assert!((f64::from(*got) - exact).abs() <= 2e-5 * exact + 1e-37);
            }
            let exact: f64 = want.iter().map(|w| f64::from(*w)).sum();
            prop_assert!((f64::from(sum) - exact).abs() <= 1e-5 * exact);
            for isa in Isa::available() {
                let (mut all, mut one) = (vec![1.0; row.len()], 1.0);
                weights(isa, &row, by, &mut all);
                mass(isa, &row, by, &mut one);
                prop_assert_eq!((&all, one), (&want, sum));
            }
        }

        #[test]
        fn one_that_is_not_finite_is_seen(
            mut row in prop::collection::vec(-1e38f32..1e38, 1..1100), at: prop::sample::Index,
            odd in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        ) {
            let mut maxima = vec![[0.0; COLUMNS]; row.len().div_ceil(RUN)];
            for isa in Isa::available() {
                let mut finite = false;
                survey(isa, &row, &mut maxima, &mut finite);
                prop_assert!(finite);
            }
            let at = at.index(row.len());
            row[at] = odd;
            for isa in Isa::available() {
                let mut finite = true;
                survey(isa, &row, &mut maxima, &mut finite);
                prop_assert!(!finite, "{:?}", isa);
            }
        }
    }
}
