//! What ends an agent's work early: answers, tokens and time.

use api::{AnswerOptions, SamplingOptions};
use std::time::Instant;

/// Whether the moment `end`, if there is one, has come.
pub fn has_come(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// The limits of a run, and what is used of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkLimits {
    /// Answers that are left; unset for any number.
    pub answers: Option<usize>,
    /// Sampled tokens that are left; unset for any number.
    pub tokens: Option<usize>,
    /// When the work ends; unset for never.
    pub end: Option<Instant>,
}

impl WorkLimits {
    /// Whether another answer is allowed.
    pub(crate) fn allow_answer(&self) -> bool {
        self.answers != Some(0) && self.tokens != Some(0) && self.is_in_time()
    }

    /// Whether another answer is allowed, which is counted then.
    pub(crate) fn count_answer(&mut self) -> bool {
        let allowed = self.allow_answer();
        if let Some(answers) = self.answers.as_mut().filter(|_| allowed) {
            *answers -= 1;
        }
        allowed
    }

    /// Whether there is time left.
    pub(crate) fn is_in_time(&self) -> bool {
        !has_come(self.end)
    }

    /// Counts sampled tokens.
    pub(crate) fn count(&mut self, tokens: usize) {
        if let Some(left) = &mut self.tokens {
            *left = left.saturating_sub(tokens);
        }
    }

    /// The options of an answer within the limits.
    pub(crate) fn over(&self, options: AnswerOptions) -> AnswerOptions {
        let least = [self.tokens, options.sampling.max_tokens].into_iter().flatten().min();
        let sampling = SamplingOptions { max_tokens: least, ..options.sampling };
        AnswerOptions { sampling, ..options }
    }
}
