//! How much of an expected answer came.

use std::collections::HashMap;

/// Tokens that are the same where an answer is at a place of the expected text again.
const ALIKE: usize = 3;

/// Follows an answer through the text that the client expects, and counts the tokens of that text
/// that came. The count depends on both texts alone, not on what was drafted.
#[derive(Debug, Default)]
pub(crate) struct PredictionFollower {
    expected: Vec<u32>,
    /// The first place after each run of tokens.
    places: HashMap<[u32; ALIKE], usize>,
    /// The last tokens of the answer.
    last: [u32; ALIKE],
    seen: usize,
    /// Place of the next token.
    next: usize,
    accepted: usize,
}

impl PredictionFollower {
    pub fn new(expected: Vec<u32>) -> Self {
        let mut places = HashMap::new();
        for (at, run) in expected.windows(ALIKE).enumerate() {
            let run: [u32; ALIKE] = run.try_into().expect("as many tokens");
            places.entry(run).or_insert(at + ALIKE);
        }
        Self { expected, places, ..Self::default() }
    }

    /// Follows a token of the answer.
    pub fn token(&mut self, id: u32) {
        if self.expected.is_empty() {
            return;
        }
        self.last.rotate_left(1);
        self.last[ALIKE - 1] = id;
        self.seen += 1;
        let came = self.expected.get(self.next) == Some(&id);
        self.accepted += usize::from(came);
        // A token that did not come may have another in its place.
        self.next += 1;
        let found = self.places.get(&self.last).filter(|_| !came && self.seen >= ALIKE);
        self.next = found.copied().unwrap_or(self.next);
    }

    /// Tokens of the expected text that came, and others.
    pub fn counts(&self) -> (usize, usize) {
        let accepted = self.accepted.min(self.expected.len());
        (accepted, self.expected.len() - accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(expected: &[u32], answer: &[u32]) -> (usize, usize) {
        let mut follower = PredictionFollower::new(expected.to_vec());
        answer.iter().for_each(|id| follower.token(*id));
        follower.counts()
    }

    #[test]
    fn what_came_of_an_expected_text_is_counted() {
        let expected: Vec<u32> = (10..30).collect();
        assert_eq!(counts(&expected, &expected), (20, 0));
        assert_eq!(counts(&expected, &expected[..5]), (5, 15));
        assert_eq!(counts(&expected, &[]), (0, 20));
        assert_eq!(counts(&[], &expected), (0, 0));
        assert_eq!(counts(&expected, &[1, 2, 3, 4]), (0, 20));
        let replaced = [&expected[..8], &[99], &expected[9..]].concat();
        assert_eq!(counts(&expected, &replaced), (19, 1));
    }

    #[test]
    fn inserted_and_deleted_tokens_cost_a_few() {
        let expected: Vec<u32> = (10..60).collect();
        let inserted = [&expected[..20], &[1, 2, 3, 4, 5], &expected[20..]].concat();
        assert_eq!(counts(&expected, &inserted), (47, 3));
        let deleted = [&expected[..20], &expected[30..]].concat();
        assert_eq!(counts(&expected, &deleted), (37, 13));
    }

    #[test]
    fn a_text_that_repeats_counts_once() {
        let expected = [1, 2, 3, 4];
        let answer = [expected; 5].concat();
        assert_eq!(counts(&expected, &answer), (4, 0));
    }
}
