//! Speculation: drafts of the next tokens, which one forward pass verifies together.
//!
//! A drafted token costs a row of the batch and changes nothing else: tokens are sampled from the
//! model's own logits, one after the other, and a row counts only if sampling chose all drafted
//! tokens before it. So the text is that of the model alone, greedy or sampled.

use sched::Planned;

/// Lengths of the runs of tokens that are looked up.
const MAX_RUN: usize = 4;
const MIN_RUN: usize = 2;

/// The drafts of one request.
#[derive(Debug)]
pub(crate) struct RequestDraft {
    /// Maximum number of tokens per step.
    pub max: usize,
    /// Tokens drafted for the next step.
    pub tokens: Vec<u32>,
    /// Tokens verified so far.
    pub drafted: usize,
    /// Tokens accepted so far.
    pub accepted: usize,
    /// Tokens accepted in the last step.
    pub accepted_now: usize,
}

impl RequestDraft {
    pub fn new(max: usize) -> Self {
        Self { max, tokens: Vec::with_capacity(max), drafted: 0, accepted: 0, accepted_now: 0 }
    }

    /// Drafts the tokens that followed the last of `tokens` at their previous occurrence.
    pub fn look_up(&mut self, tokens: &[u32]) {
        self.tokens.clear();
        self.tokens.extend_from_slice(continuation(tokens, self.max));
    }

    /// The tokens that `planned` verifies.
    pub fn planned(&self, planned: &Planned) -> &[u32] {
        &self.tokens[..planned.drafts]
    }

    /// Counts the tokens verified in a step, and those of them accepted.
    pub fn count(&mut self, drafted: usize, accepted: usize) {
        self.drafted += drafted;
        self.accepted += accepted;
        self.accepted_now = accepted;
    }
}

/// Up to `max` tokens that followed the latest earlier occurrence of the longest run at the end.
fn continuation(tokens: &[u32], max: usize) -> &[u32] {
    for len in (MIN_RUN..=MAX_RUN).rev() {
        let Some(start) = tokens.len().checked_sub(len) else { continue };
        let run = &tokens[start..];
        let before = &tokens[..tokens.len() - 1];
        if let Some(at) = before.windows(len).rposition(|window| window == run) {
            let next = at + len;
            return &tokens[next..tokens.len().min(next + max)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &[u32], max: usize, expected: &[u32]) {
        assert_eq!(continuation(tokens, max), expected, "{tokens:?}");
    }

    #[test]
    fn what_followed_last_time_is_drafted() {
        check(&[1, 2, 3, 4, 9, 1, 2], 3, &[3, 4, 9]);
        check(&[1, 2, 3, 4, 9, 1, 2], 1, &[3]);
        check(&[1, 2, 5, 1, 2, 6, 1, 2], 2, &[6, 1]);
        // The longer run decides.
        check(&[7, 1, 2, 5, 1, 2, 6, 7, 1, 2], 1, &[5]);
        // A repetition is likely to continue.
        check(&[4, 4, 4, 4], 2, &[4]);
    }

    #[test]
    fn without_a_repetition_nothing_is_drafted() {
        check(&[], 4, &[]);
        check(&[1], 4, &[]);
        check(&[1, 2, 3], 4, &[]);
        check(&[1, 2, 3, 2], 4, &[]);
    }
}
