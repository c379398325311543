//! The chance that one of several answers passes.

/// The probability that at least one of `k` answers passes, estimated without bias from `passed` of
/// `answers` answers (Chen et al., Evaluating Large Language Models Trained on Code, 2021): one
/// less the share of the choices of `k` answers that have none that passed. `None` if there are
/// fewer than `k` answers, or `k` is 0.
///
/// # Panics
/// If more passed than there are.
pub fn pass_at_k(answers: usize, passed: usize, k: usize) -> Option<f64> {
    assert!(passed <= answers, "{passed} of {answers} answers");
    if k == 0 || k > answers {
        return None;
    }
    let failed = answers - passed;
    if failed < k {
        return Some(1.0);
    }
    // C(failed, k) / C(answers, k) as the published program has it.
    let none: f64 = (failed + 1..=answers).map(|count| 1.0 - k as f64 / count as f64).product();
    Some(1.0 - none)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of choices of `k` among `n`.
    fn choose(n: usize, k: usize) -> f64 {
        if n < k { 0.0 } else { (0..k).map(|at| (n - at) as f64 / (at + 1) as f64).product() }
    }

    #[test]
    fn chances_are_those_of_counted_choices() {
        for answers in 1..12 {
            for passed in 0..=answers {
                for k in 1..=answers {
                    let none = choose(answers - passed, k) / choose(answers, k);
                    let found = pass_at_k(answers, passed, k).unwrap();
                    assert!((found - (1.0 - none)).abs() < 1e-12, "{answers} {passed} {k}");
                }
            }
        }
    }

    #[test]
    fn one_of_one_answer_is_the_share_and_more_than_there_are_is_unknown() {
        assert!((pass_at_k(200, 50, 1).unwrap() - 0.25).abs() < 1e-12);
        assert_eq!(pass_at_k(3, 3, 4), None);
        assert_eq!(pass_at_k(3, 1, 0), None);
        assert_eq!(pass_at_k(0, 0, 1), None);
    }
}
