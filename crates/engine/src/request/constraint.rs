//! Constraints on the next token of a sequence, in token ids.
//!
//! A [`Grammar`] is shared by requests; a [`Constraint`] is the state of one sequence. The engine
//! handles stop ids: they may be chosen exactly where the constraint may end. A constraint may also
//! allow every token and say how the next one is chosen.

use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;

/// Creates the state of each sequence.
pub trait Grammar: Debug + Send + Sync {
    /// The state before the first token.
    fn start(&self) -> Box<dyn Constraint>;

    /// Whether its constraints ever exclude a token. The masks of a grammar that excludes none are
    /// always [`Allowed::All`] and are not computed on the mask thread.
    fn excludes(&self) -> bool {
        true
    }

    /// A description from which its maker can make it again, for traces; `None` if there is none.
    fn source(&self) -> Option<Value> {
        None
    }
}

/// The tokens that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All tokens, and the end.
    All,
    /// The tokens of the set that the constraint has filled.
    Listed {
        /// Whether the sequence may end here.
        may_end: bool,
    },
}

/// State of one sequence: the tokens that may come next.
///
/// Masks are computed on a separate thread during the forward pass and depend on the state alone.
///
/// # Errors
///
/// An error of any method ends the sequence; no method is called afterwards.
pub trait Constraint: Debug + Send {
    /// Adds all ids that may come next to the empty set `allowed`, unless every token may.
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String>;
    /// Whether the next token is the most likely one of those allowed, whatever the sampling
    /// options say, as in a request with temperature 0.
    fn greedy(&self) -> bool {
        false
    }
    /// Records the next token, which the last mask allowed.
    fn accept(&mut self, id: u32) -> Result<(), String>;
    /// Undoes the last `tokens` accepted tokens, at most [`MAX_DRAFTED`](crate::MAX_DRAFTED).
    fn rollback(&mut self, tokens: usize) -> Result<(), String>;
    /// Whether no token may follow, so that the sequence ends here as if by a stop id.
    fn is_complete(&self) -> bool;
    /// Adds to `draft` the tokens that come next if the constraint leaves little else: the rest of
    /// what is begun. They are drafted, so a wrong one costs time and no more.
    fn forced(&mut self, draft: &mut Vec<u32>) {
        let _ = draft;
    }
    /// Number of the first of `ids` that may come next, one after the other, or a few more: a
    /// draft is cut there.
    fn allowed_prefix(&mut self, ids: &[u32]) -> usize {
        ids.len()
    }
}

/// A shared grammar in a request. Two are equal if they share the same grammar.
#[derive(Clone, Debug)]
pub struct GrammarRef(Arc<dyn Grammar>);

impl GrammarRef {
    /// Wraps `grammar`.
    pub fn new(grammar: impl Grammar + 'static) -> Self {
        Self(Arc::new(grammar))
    }

    /// The state before the first token.
    pub fn start(&self) -> Box<dyn Constraint> {
        self.0.start()
    }

    /// Whether its constraints ever exclude a token.
    pub fn excludes(&self) -> bool {
        self.0.excludes()
    }

    /// A description from which its maker can make it again; `None` if there is none.
    pub fn source(&self) -> Option<Value> {
        self.0.source()
    }
}

impl PartialEq for GrammarRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A set of token ids below the size of a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSet {
    words: Vec<u32>,
    size: usize,
}

/// Ids per word.
const BITS: usize = u32::BITS as usize;

impl TokenSet {
    /// The empty set of ids below `size`.
    pub fn new(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(BITS)], size }
    }

    /// Number of ids that the set can hold.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Whether the set holds `id`.
    pub fn contains(&self, id: u32) -> bool {
        let word = self.words.get(id as usize / BITS).copied().unwrap_or(0);
        word >> (id as usize % BITS) & 1 == 1
    }

    /// Adds `id` if it is below the size.
    pub fn insert(&mut self, id: u32) {
        if (id as usize) < self.size {
            self.words[id as usize / BITS] |= 1 << (id as usize % BITS);
        }
    }

    /// Removes `id`.
    pub fn remove(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut(id as usize / BITS) {
            *word &= !(1 << (id as usize % BITS));
        }
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds ids from a bit mask of 32 ids per word, lowest bit first. Bits beyond the size are
    /// ignored.
    pub fn insert_words(&mut self, words: &[u32]) {
        for (to, from) in self.words.iter_mut().zip(words) {
            *to |= from;
        }
        let spare = self.words.len() * BITS - self.size;
        if let Some(last) = self.words.last_mut() {
            *last &= u32::MAX >> spare;
        }
    }

    /// Sets the logits `[vocab_size]` of all other ids to minus infinity.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        for (logits, &word) in logits.chunks_mut(BITS).zip(&self.words) {
            if word == 0 {
                logits.fill(f32::NEG_INFINITY);
            } else if word != u32::MAX {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_nothing_beyond_its_size() {
        let mut set = TokenSet::new(70);
        assert!(set.is_empty());
        set.insert(69);
        set.insert(70);
        set.insert_words(&[1, 0, u32::MAX, u32::MAX]);
        let held: Vec<u32> = (0..200).filter(|id| set.contains(*id)).collect();
        assert_eq!(held, [0, 64, 65, 66, 67, 68, 69]);
        set.remove(0);
        set.remove(1000);
        assert!(!set.contains(0) && !set.is_empty());
        set.clear();
        assert_eq!(set, TokenSet::new(70));
    }

    #[test]
    fn logits_of_others_are_gone() {
        let mut set = TokenSet::new(100);
        set.insert_words(&[0, u32::MAX, 0b101, 0]);
        let mut logits: Vec<f32> = (0..100).map(|id| id as f32).collect();
        set.apply(&mut logits);
        for (id, logit) in (0..).zip(logits) {
            let wanted = if set.contains(id) { id as f32 } else { f32::NEG_INFINITY };
            assert_eq!(logit, wanted, "{id}");
        }
    }
}
