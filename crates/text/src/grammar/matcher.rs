//! Where a sequence stands in its grammar.

use super::GrammarError;
use std::fmt::{Debug, Display, Formatter};

/// Marks the end of messages that would show the parser's insides.
const INSIDES: &str = "\n<";

/// The state of one sequence. It depends on the grammar and the tokens alone.
pub struct Matcher {
    inner: llguidance::Matcher,
    /// The token that stands for the end.
    end: u32,
}

impl Matcher {
    pub(super) fn new(inner: llguidance::Matcher, end: u32) -> Self {
        Self { inner, end }
    }

    /// Calls `allow` with the tokens that may come next as words of 32 bits, the lowest bit first,
    /// and says whether the text may end here. Bits beyond the vocabulary may be set.
    pub fn mask(&mut self, allow: impl FnOnce(&[u32])) -> Result<bool, GrammarError> {
        if self.is_complete() {
            return Ok(true);
        }
        let mut mask = self.inner.compute_mask().map_err(broken)?;
        let may_end = mask.is_allowed(self.end);
        mask.disallow_token(self.end);
        allow(mask.as_slice());
        Ok(may_end)
    }

    /// Takes note of a token, which the grammar must allow here.
    pub fn accept(&mut self, id: u32) -> Result<(), GrammarError> {
        if self.is_complete() || id == self.end {
            return Err(GrammarError::Match(format!("token {id} stands behind the end")));
        }
        self.inner.consume_token(id).map_err(broken)
    }

    /// Forgets the last `tokens` that were accepted.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        self.inner.rollback(tokens).map_err(broken)
    }

    /// Whether the text ends here and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error() && self.inner.stop_reason().is_ok()
    }
}

impl Clone for Matcher {
    /// A state that shares nothing with this one, so that neither waits for the other.
    fn clone(&self) -> Self {
        Self { inner: self.inner.deep_clone(), end: self.end }
    }
}

impl Debug for Matcher {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matcher({:?})", self.inner.stop_reason())
    }
}

/// The part of a message that is for people.
pub(super) fn plain(message: &str) -> String {
    let end = message.find(INSIDES).unwrap_or(message.len());
    message[..end].trim().replace('\n', "; ")
}

fn broken(error: impl Display) -> GrammarError {
    GrammarError::Match(plain(&error.to_string()))
}
