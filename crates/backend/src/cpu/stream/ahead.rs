//! Experts that are read before their layer chooses them.
//!
//! Guesses for decoded rows come from the router of the next layer, which is given the inputs of
//! the current one. They are given up when the layer is reached, and nothing is guessed for a while
//! where fewer than half of the guesses were used.

use super::state::{Place, WeightStream};
use base::Urgency;

impl WeightStream {
    /// Whether guesses are of use: some experts are not in memory, and the last guesses were used.
    pub fn foresees(&self) -> bool {
        let experts: usize = self.mixtures.iter().map(|all| all.len()).sum();
        self.stats.slots < experts && self.foresight.from <= self.step
    }

    /// Starts to read an expert that is likely to be chosen, if it is missing and would take the
    /// slot of one that was used less.
    pub fn foresee(&mut self, expert: usize) {
        let mut heat = self.entries[expert].heat;
        heat.add(1, self.step);
        if self.entries[expert].place == Place::OnDisk
            && let Some(slot) = self.slot_below(expert, heat)
        {
            self.keep_ahead(expert, slot);
        }
    }

    /// Starts to read the experts of the layer after that of `expert`, as far as slots are free.
    pub fn read_ahead(&mut self, expert: usize) {
        let Some(next) = self.mixtures.get(self.mixture_of(expert) + 1).cloned() else { return };
        for expert in next {
            if self.entries[expert].place == Place::OnDisk {
                let Some(slot) = self.slot_for(expert) else { return };
                self.keep_ahead(expert, slot);
            }
        }
    }

    fn keep_ahead(&mut self, expert: usize, slot: usize) {
        self.read(expert, slot, Urgency::Ahead);
        self.slots[slot].kept = true;
        self.ahead.push(slot);
        self.stats.ahead += 1;
        self.foresight.note(self.step, 1, 0);
    }

    /// Which of the layers has an expert.
    pub(super) fn mixture_of(&self, expert: usize) -> usize {
        self.mixtures.partition_point(|all| all.end <= expert)
    }
}
