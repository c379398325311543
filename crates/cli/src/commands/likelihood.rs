//! Windows over the tokens of a text, and probabilities from logits.

use anyhow::{Result, bail};
use base::math;
use std::ops::Range;

/// Default context, where the model's is not shorter.
pub(super) const CONTEXT: usize = 2048;
/// Positions whose logits are computed at once.
pub(super) const ROWS: usize = 64;

/// Checks that a vocabulary of `vocab` tokens has all of `ids`.
pub(super) fn check_ids(vocab: usize, ids: &[u32]) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => bail!("the tokenizer gives token id {id}, but the model has {vocab} tokens"),
        None => Ok(()),
    }
}

/// Checks that a window of `context` tokens has one to score: the first never is.
pub(super) fn check_window(context: usize) -> Result<()> {
    if context < 2 {
        bail!("--ctx: expected windows of at least 2 tokens, found {context}");
    }
    Ok(())
}

/// The windows over `len` tokens, each with its first token to be scored.
pub(super) fn windows(len: usize, context: usize, stride: usize) -> Vec<(Range<usize>, usize)> {
    let (mut windows, mut done) = (Vec::new(), 0);
    for start in (0..len).step_by(stride) {
        let end = (start + context).min(len);
        let first = done.max(start + 1);
        if first < end {
            windows.push((start..end, first - start));
        }
        done = end;
        if end == len {
            break;
        }
    }
    windows
}

/// The logarithm of the sum that softmax divides by, in double precision.
pub(super) fn log_total(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| math::exp(f64::from(logit) - largest)).sum();
    largest + math::ln(sum)
}

/// `-log p(target)`.
pub(super) fn nll(logits: &[f32], target: u32) -> f64 {
    log_total(logits) - f64::from(logits[target as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(len: usize, context: usize, stride: usize, expected: &[(Range<usize>, usize)]) {
        assert_eq!(windows(len, context, stride), expected);
    }

    #[test]
    fn each_token_is_scored_once_in_the_first_window_that_can() {
        check(10, 4, 4, &[(0..4, 1), (4..8, 1), (8..10, 1)]);
        check(9, 4, 4, &[(0..4, 1), (4..8, 1)]);
        check(8, 4, 2, &[(0..4, 1), (2..6, 2), (4..8, 2)]);
        check(3, 4, 4, &[(0..3, 1)]);
        check(1, 4, 4, &[]);
        check(0, 4, 4, &[]);
        check(4, 1, 1, &[]);
    }

    #[test]
    fn equal_logits_cost_the_logarithm_of_their_number() {
        assert!((nll(&[3.0; 8], 2) - 8f64.ln()).abs() < 1e-12);
        assert!(nll(&[f32::NAN, 0.0], 1).is_nan());
    }
}
