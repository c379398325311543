//! The probability of differences as large as those found, or larger, if there were none.

use base::Rng;
use base::math;

/// Most differences of which all signs are tried.
const ALL_SIGNS: usize = 14;
/// Signs that are drawn for more.
const DRAWS: u64 = 10_000;

/// McNemar's test of two models whose items pass or fail, exact and two-sided: `first` and `second`
/// are the numbers of items that the first alone and the second alone pass (Fagerland et al., The
/// McNemar test for binary matched-pairs data, 2013).
pub fn mcnemar(first: usize, second: usize) -> f64 {
    let (items, least) = (first + second, first.min(second));
    // Terms of the binomial distribution of a half, as logarithms: the first is 0.5 to the power of
    // the items.
    let mut term = -(items as f64) * std::f64::consts::LN_2;
    let mut tail = math::exp(term);
    for count in 0..least {
        term += math::ln((items - count) as f64) - math::ln((count + 1) as f64);
        tail += math::exp(term);
    }
    (2.0 * tail).min(1.0)
}

/// The two-sided test of differences whose signs are as likely to be the other ones: the share of
/// all signs, or of ten thousand drawn ones with those found, whose sum is at least as far from 0
/// (Phipson and Smyth, Permutation P-values should never be zero, 2010). Differences of 0 do not
/// count; without others the value is 1.
pub fn sign_flip(differences: &[f64], seed: u64) -> f64 {
    let sizes: Vec<f64> = differences.iter().filter(|it| **it != 0.0).map(|it| it.abs()).collect();
    let found = differences.iter().sum::<f64>().abs();
    // Equal sums in another order may differ in their last bits.
    let least = found - 1e-9 * sizes.iter().sum::<f64>();
    let is_as_far = |signs: &mut dyn FnMut(usize) -> bool| {
        let signed = |(at, size): (usize, &f64)| if signs(at) { *size } else { -size };
        sizes.iter().enumerate().map(signed).sum::<f64>().abs() >= least
    };
    if sizes.len() <= ALL_SIGNS {
        let all = 1_u32 << sizes.len();
        let far = (0..all).filter(|signs| is_as_far(&mut |at| signs >> at & 1 == 1)).count();
        return far as f64 / f64::from(all);
    }
    let mut rng = Rng::new(seed);
    let far = (0..DRAWS).filter(|_| is_as_far(&mut |_| rng.next_u64() & 1 == 1)).count();
    (far + 1) as f64 / (DRAWS + 1) as f64
}

/// The p-values of several tests after Holm's correction (A simple sequentially rejective multiple
/// test procedure, 1979), in the order of `values`.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let (mut corrected, mut least) = (vec![0.0; values.len()], 0.0_f64);
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max(values[at] * (values.len() - rank) as f64).min(1.0);
        corrected[at] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::super::near::is_near;
    use super::*;

    #[test]
    fn mcnemar_and_permutation_agree_with_tables() {
        // Twice the tail of the binomial distribution: 1 + 8 of 256, 1 + 10 + 45 of 1024.
        is_near(mcnemar(1, 7), 18.0 / 256.0);
        is_near(mcnemar(8, 2), 112.0 / 1024.0);
        is_near(mcnemar(0, 5), 0.0625);
        is_near(mcnemar(4, 4), 1.0);
        is_near(mcnemar(0, 0), 1.0);
        // Of signs alone the permutation is McNemar's test.
        for (first, second) in [(1, 7), (8, 2), (0, 5), (3, 3)] {
            let signs = [vec![1.0; first], vec![-1.0; second]].concat();
            is_near(sign_flip(&signs, 0), mcnemar(first, second));
        }
        // Darwin's maize, in eighths of an inch: 863 of 32,768 signs are as far on one side
        // (Fisher, The Design of Experiments, 1935, section 21).
        let maize = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48];
        let maize = maize.map(f64::from);
        let found = sign_flip(&maize, 1);
        assert!((found - 2.0 * 863.0 / 32768.0).abs() < 0.006, "{found}");
    }

    #[test]
    fn a_thousand_items_have_no_lost_digits() {
        // Both tails of 2,000 throws at 950: near those of a normal distribution with the
        // correction for steps.
        let found = mcnemar(950, 1050);
        assert!((found - 0.026_8).abs() < 2e-4, "{found}");
        assert!(mcnemar(0, 5000) < 1e-300);
    }

    #[test]
    fn no_difference_is_certain() {
        is_near(sign_flip(&[], 1), 1.0);
        is_near(sign_flip(&[0.0; 40], 1), 1.0);
        is_near(sign_flip(&[0.5], 1), 1.0);
        let many: Vec<f64> = (0..200).map(|at| 0.1 + f64::from(at % 3)).collect();
        is_near(sign_flip(&many, 1), 1.0 / 10_001.0);
        is_near(sign_flip(&many, 1), sign_flip(&many, 1));
    }

    #[test]
    fn corrected_values_are_holms() {
        // R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm").
        let found = holm(&[0.01, 0.02, 0.03, 0.04, 0.05]);
        found
            .iter()
            .zip([0.05, 0.08, 0.09, 0.09, 0.09])
            .for_each(|(it, other)| is_near(*it, other));
        let found = holm(&[0.9, 0.001, 0.5]);
        found.iter().zip([1.0, 0.003, 1.0]).for_each(|(it, other)| is_near(*it, other));
        assert!(holm(&[]).is_empty());
    }
}
