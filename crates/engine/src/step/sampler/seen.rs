//! Counts of the ids in the window of the penalties.

use super::history::History;

/// Counts by id. Empty between uses.
#[derive(Debug)]
pub(super) struct Seen {
    /// For each id, 0 if it does not occur, else 1 plus the times it was generated.
    counts: Vec<u32>,
    /// Ids that occur.
    ids: Vec<u32>,
}

impl Seen {
    pub fn new(vocab_size: usize) -> Self {
        Self { counts: vec![0; vocab_size], ids: Vec::with_capacity(vocab_size) }
    }

    /// Counts the last `window` tokens, in time linear in its length.
    pub fn count(&mut self, history: History<'_>, window: Option<usize>) {
        let len = history.tokens.len() + history.fresh.len();
        let first = len - window.unwrap_or(len).min(len);
        for (at, &id) in history.tokens.iter().chain(history.fresh).enumerate().skip(first) {
            let count = &mut self.counts[id as usize];
            if *count == 0 {
                self.ids.push(id);
                *count = 1;
            }
            *count += u32::from(at >= history.prompt);
        }
    }

    /// Calls `f(id, times generated)` for each id that occurs, and resets the counts.
    pub fn drain(&mut self, mut f: impl FnMut(u32, u32)) {
        for id in self.ids.drain(..) {
            let count = std::mem::take(&mut self.counts[id as usize]);
            f(id, count - 1);
        }
    }
}
