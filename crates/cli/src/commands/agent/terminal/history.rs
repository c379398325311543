//! The messages that were written before, which the editor goes back to.
//!
//! Invariant: a draft that was left for an older message comes back after the newest one.

use std::collections::VecDeque;

/// Most messages.
const MAX_ENTRIES: usize = 1000;
/// Most bytes of a message that is kept.
const MAX_BYTES: usize = 16 << 10;

/// Messages, oldest first, and the place in them.
#[derive(Debug, Default)]
pub(super) struct History {
    entries: VecDeque<String>,
    /// The message that is shown; `None` for the draft.
    at: Option<usize>,
    draft: String,
}

impl History {
    /// The newest of `entries`, which are in the order of their time.
    pub fn new(entries: Vec<String>) -> Self {
        let mut history = Self::default();
        for entry in entries {
            history.add(&entry);
        }
        history
    }

    /// Adds a message, unless it is the last one, and leaves the history.
    pub fn add(&mut self, entry: &str) {
        self.at = None;
        self.draft.clear();
        let is_last = self.entries.back().is_some_and(|last| last == entry);
        if entry.len() > MAX_BYTES || entry.trim().is_empty() || is_last {
            return;
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry.to_owned());
    }

    /// The message before; `text` is what the editor has.
    pub fn older(&mut self, text: String) -> Option<String> {
        let at = self.at.unwrap_or(self.entries.len()).checked_sub(1)?;
        if self.at.replace(at).is_none() {
            self.draft = text;
        }
        self.entries.get(at).cloned()
    }

    /// The message after; the draft after the newest one.
    pub fn newer(&mut self) -> Option<String> {
        let at = self.at? + 1;
        let entry = self.entries.get(at).cloned();
        self.at = entry.is_some().then_some(at);
        Some(entry.unwrap_or_else(|| std::mem::take(&mut self.draft)))
    }

    /// Leaves the history: what the editor has is a draft.
    pub fn leave(&mut self) {
        self.at = None;
        self.draft.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draft_comes_back_after_the_newest_message() {
        let mut history = History::new(vec!["a".into(), "b".into(), "b".into()]);
        assert_eq!(history.newer(), None);
        assert_eq!(history.older("draft".into()).as_deref(), Some("b"));
        assert_eq!(history.older("b".into()).as_deref(), Some("a"));
        assert_eq!(history.older("a".into()), None);
        assert_eq!(history.newer().as_deref(), Some("b"));
        assert_eq!(history.newer().as_deref(), Some("draft"));
        assert_eq!(history.newer(), None);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::new((0..2000).map(|it| it.to_string()).collect());
        history.add(&"x".repeat(MAX_BYTES + 1));
        assert_eq!(history.entries.len(), MAX_ENTRIES);
        assert_eq!(history.older(String::new()).as_deref(), Some("1999"));
    }
}
