//! The probability of a token.

use base::math;

/// Logits that are less than the largest by more than this have no part in a probability.
const REACH: f32 = 12.0;

/// About the probability of `token` by its `logits`, at temperature 1.
pub(crate) fn probability(logits: &[f32], token: u32) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let near = logits.iter().filter(|logit| **logit >= most - REACH);
    let part = |logit: f32| math::exp(f64::from(logit - most));
    let sum: f64 = near.map(|logit| part(*logit)).sum();
    (part(logits[token as usize]) / sum) as f32
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
}
