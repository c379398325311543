//! The state of a sequence in its grammar.

use super::error::GrammarError;
use std::fmt::{Debug, Display, Formatter};

/// Begins the part of a message that shows the state of the parser.
const PARSER_STATE: &str = "\n<";

/// The state of one sequence. The state depends on the grammar and the tokens alone.
pub struct Matcher {
    pub(super) inner: llguidance::Matcher,
    /// The token that stands for the end.
    pub(super) end: u32,
}

impl Matcher {
    /// Calls `allow` with the mask of allowed tokens, in words of 32 bits, lowest bit first.
    /// Returns whether the text may end here. Bits beyond the vocabulary may be set.
    ///
    /// # Errors
    /// If the match has failed.
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

    /// Takes the next token.
    ///
    /// # Errors
    /// If the grammar does not allow the token here.
    pub fn accept(&mut self, id: u32) -> Result<(), GrammarError> {
        if self.is_complete() || id == self.end {
            return Err(GrammarError::Match(format!("token {id} comes after the end")));
        }
        self.inner.consume_token(id).map_err(broken)
    }

    /// Takes back the last `tokens` accepted tokens.
    ///
    /// # Errors
    /// If fewer tokens were accepted.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        self.inner.rollback(tokens).map_err(broken)?;
        // llguidance keeps the last mask by the number of a row and the state of the lexer, which
        // another text may have too.
        self.inner.invalidate_bias_cache();
        Ok(())
    }

    /// Adds the tokens that the grammar leaves no choice about to `tokens`. The masks of a
    /// tokenizer that cuts text as it was encoded allow these alone.
    pub fn forced(&mut self, tokens: &mut Vec<u32>) {
        if !self.is_complete() {
            tokens.extend(self.inner.compute_ff_tokens());
        }
    }

    /// Number of the first of `ids` whose text the grammar allows.
    ///
    /// # Errors
    /// If the match has failed.
    pub fn allowed_prefix(&mut self, ids: &[u32]) -> Result<usize, GrammarError> {
        let ids = &ids[..ids.iter().position(|id| *id == self.end).unwrap_or(ids.len())];
        if self.is_complete() {
            return Ok(0);
        }
        self.inner.validate_tokens(ids).map_err(broken)
    }

    /// Whether the text ends here and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error() && self.inner.stop_reason().is_ok()
    }
}

impl Clone for Matcher {
    /// Returns a state that shares nothing with this one, so that neither waits for the other.
    fn clone(&self) -> Self {
        Self { inner: self.inner.deep_clone(), end: self.end }
    }
}

impl Debug for Matcher {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matcher({:?})", self.inner.stop_reason())
    }
}

/// Returns a message without the state of the parser.
pub(super) fn plain(message: &str) -> String {
    let end = message.find(PARSER_STATE).unwrap_or(message.len());
    message[..end].trim().replace('\n', "; ")
}

fn broken(error: impl Display) -> GrammarError {
    GrammarError::Match(plain(&error.to_string()))
}
