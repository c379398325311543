//! A record of the logits of an answer, which the engine writes and whoever submitted the request
//! reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the tokens of an answer were chosen from: a hash of all logits so far for each choice.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AnswerRecord(Arc<Mutex<RecordedChoices>>);

/// The choices of an answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedChoices {
    /// Hash of all logits so far, after each choice, that of a stop id included.
    pub logits: Vec<u64>,
    /// Which choices were greedy whatever the sampling options said, counted from 0.
    pub greedy: Vec<usize>,
}

impl AnswerRecord {
    /// The first `choices` of an answer, or all that there are if these are fewer. The engine may
    /// be ahead of the events that were read.
    pub fn first(&self, choices: usize) -> RecordedChoices {
        let all = self.lock();
        let logits = all.logits.iter().take(choices).copied().collect();
        let greedy = all.greedy.iter().copied().filter(|&at| at < choices).collect();
        RecordedChoices { logits, greedy }
    }

    /// Adds a choice: the hash of all logits so far, and whether it was greedy whatever the options
    /// said.
    pub(crate) fn add(&self, logits: u64, greedy: bool) {
        let mut all = self.lock();
        if greedy {
            let choice = all.logits.len();
            all.greedy.push(choice);
        }
        all.logits.push(logits);
    }

    fn lock(&self) -> MutexGuard<'_, RecordedChoices> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records are equal if they are the same.
impl PartialEq for AnswerRecord {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_up_to_a_choice() {
        let record = AnswerRecord::default();
        for (logits, greedy) in [(3, false), (5, true), (7, true)] {
            record.add(logits, greedy);
        }
        let first = RecordedChoices { logits: vec![3, 5], greedy: vec![1] };
        assert_eq!(record.first(2), first);
        assert_eq!(record.first(9).logits.len(), 3);
        assert_ne!(record, AnswerRecord::default());
        assert_eq!(record, record.clone());
    }
}
