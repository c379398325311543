//! Probabilities of tokens by their logits, at temperature 1.

use base::math;

/// Logits that are less than the largest by more than this have no part in a probability.
const REACH: f32 = 12.0;

/// About the probability of `token`.
pub(crate) fn probability(logits: &[f32], token: u32) -> f32 {
    let most = largest(logits);
    (part(logits[token as usize], most) / sum(logits, most)) as f32
}

/// The most likely word, the first of equals, and about its probability.
pub(crate) fn most_likely(logits: &[f32]) -> (usize, f32) {
    let most = largest(logits);
    let word = logits.iter().position(|logit| *logit == most).unwrap_or(0);
    (word, (1.0 / sum(logits, most)) as f32)
}

fn largest(logits: &[f32]) -> f32 {
    logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The part of a logit in the sum, where the largest is `most`.
fn part(logit: f32, most: f32) -> f64 {
    math::exp(f64::from(logit - most))
}

fn sum(logits: &[f32], most: f32) -> f64 {
    logits.iter().filter(|logit| **logit >= most - REACH).map(|logit| part(*logit, most)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up() {
        let logits = [0.0, 2.0_f32.ln(), f32::NEG_INFINITY, 2.0_f32.ln(), -40.0];
        for (token, wanted) in [0.2, 0.4, 0.0, 0.4, 0.0].into_iter().enumerate() {
            let found = probability(&logits, token as u32);
            assert!((found - wanted).abs() < 1e-6, "{token}: {found}");
        }
    }

    #[test]
    fn the_most_likely_word_has_its_probability() {
        let two = 2.0_f32.ln();
        let (word, probability) = most_likely(&[0.0, two, f32::NEG_INFINITY, two]);
        assert_eq!(word, 1);
        assert!((probability - 0.4).abs() < 1e-6);
        assert_eq!(most_likely(&[f32::NAN, 1.0]).0, 1);
    }
}
