//! The engine's choice of the number of drafts, for measurements without requests.

use crate::step::draft::{OfferedDraft, best_number};
use crate::step::step_cost::StepCost;
use std::time::Duration;

/// Chooses how many drafts of each sequence a step verifies, as the engine does for requests, where
/// the acceptance is known.
#[derive(Debug)]
pub struct DraftLengths {
    cost: StepCost,
    sequences: usize,
    /// Drafts of all sequences, which become less likely.
    offered: Vec<OfferedDraft>,
}

impl DraftLengths {
    /// The choice for `sequences` sequences. The draft at each place comes out with the probability
    /// that `acceptance` has for it, if those before it did.
    pub fn new(sequences: usize, acceptance: &[f32]) -> Self {
        let mut chance = 1.0;
        let chances = acceptance.iter().map(|each| {
            chance *= each;
            chance
        });
        let each = |chance| (0..sequences).map(move |sequence| OfferedDraft { chance, sequence });
        let offered = chances.flat_map(each).collect();
        Self { cost: StepCost::new(), sequences, offered }
    }

    /// Records the time of a step of `rows` rows.
    pub fn observe(&mut self, rows: usize, took: Duration) {
        self.cost.observe(rows, took);
    }

    /// Sets `lengths` to the number of drafts of each sequence.
    pub fn choose(&self, lengths: &mut Vec<usize>) {
        lengths.clear();
        lengths.resize(self.sequences, 0);
        self.offered[..self.best()].iter().for_each(|draft| lengths[draft.sequence] += 1);
    }

    /// Tokens a second that the choice promises.
    pub fn promised(&self) -> f64 {
        let best = self.best();
        let drafted = self.offered[..best].iter().map(|draft| f64::from(draft.chance));
        (self.sequences as f64 + drafted.sum::<f64>()) / self.cost.seconds(self.sequences + best)
    }

    fn best(&self) -> usize {
        let plain = (self.sequences, self.sequences as f64);
        best_number(&self.offered, plain, |rows| self.cost.seconds(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_and_what_it_promises_follow_from_times() {
        let mut choice = DraftLengths::new(2, &[0.8, 0.5]);
        let mut lengths = Vec::new();
        for (rows, time) in [(2, 10), (3, 10), (4, 11), (5, 20), (6, 21)] {
            choice.observe(rows, Duration::from_millis(time));
        }
        choice.choose(&mut lengths);
        assert_eq!(lengths, [1, 1]);
        let promised = choice.promised();
        assert!((300.0..360.0).contains(&promised), "{promised}");
        DraftLengths::new(1, &[]).choose(&mut lengths);
        assert_eq!(lengths, [0]);
    }
}
