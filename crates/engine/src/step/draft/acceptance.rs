//! How often drafted tokens come out, by drafter and by what a draft rests on.
//!
//! A draft rests on evidence: for text that is followed, the number of tokens before it that were
//! the same. The second token of a draft is only compared where the first came out, so it rests on
//! one token more. Counts decay. Those of a sequence outweigh those of all sequences after a few
//! drafts.

use crate::observe::drafter::Drafter;

/// Evidence from which a level begins.
const LEVELS: [usize; 7] = [0, 1, 3, 5, 9, 17, 33];
/// Shares that are assumed before any draft, by level.
const ASSUMED: [f32; LEVELS.len()] = [0.3, 0.5, 0.5, 0.6, 0.75, 0.85, 0.9];
/// Share of forced text that is assumed: the model may cut it into other tokens.
const ASSUMED_FORCED: f32 = 0.95;
/// Share of the first tokens that are computed that is assumed to come out.
const ASSUMED_SHARE: f32 = 0.7;
/// Drafts that what is assumed counts for, and that all sequences count for in each.
const ASSUMED_WEIGHT: f32 = 4.0;
/// Factor on the counts with each draft that follows: of a sequence, and of all.
const KEEP: f32 = 0.97;
const KEEP_ALL: f32 = 0.997;

/// Drafted tokens that were compared, of one drafter and level.
#[derive(Clone, Copy, Debug, Default)]
struct DraftCount {
    right: f32,
    all: f32,
}

impl DraftCount {
    fn add(&mut self, is_right: bool, keep: f32) {
        self.right = keep * self.right + f32::from(u8::from(is_right));
        self.all = keep * self.all + 1.0;
    }

    /// The share that was right, where `assumed` counts as [`ASSUMED_WEIGHT`] drafts.
    fn share(self, assumed: f32) -> f32 {
        (self.right + ASSUMED_WEIGHT * assumed) / (self.all + ASSUMED_WEIGHT)
    }
}

type DraftCounts = [[DraftCount; LEVELS.len()]; Drafter::ALL.len()];

/// The acceptance in one sequence, or in all.
#[derive(Clone, Debug)]
pub(crate) struct Acceptance {
    counts: DraftCounts,
    /// The share of the first tokens that were computed and came out.
    pub share: f32,
    /// Whether the first token of the last step's computed drafts came out, in any sequence.
    pub came: bool,
}

impl Default for Acceptance {
    fn default() -> Self {
        Self { counts: DraftCounts::default(), share: ASSUMED_SHARE, came: false }
    }
}

impl Acceptance {
    /// The probability that a token of `drafter` with this `evidence` comes out, in the sequence of
    /// these counts; `all` are those of all sequences.
    pub fn chance(&self, all: &Self, drafter: Drafter, evidence: usize) -> f32 {
        let (kind, level) = (drafter as usize, level(evidence));
        let assumed = match drafter {
            Drafter::Forced => ASSUMED_FORCED,
            _ => ASSUMED[level],
        };
        self.counts[kind][level].share(all.counts[kind][level].share(assumed))
    }

    /// Counts a token of a sequence, in its counts and in those of `all`.
    pub fn add(&mut self, all: &mut Self, drafter: Drafter, evidence: usize, is_right: bool) {
        let (kind, level) = (drafter as usize, level(evidence));
        self.counts[kind][level].add(is_right, KEEP);
        all.counts[kind][level].add(is_right, KEEP_ALL);
    }
}

/// Probability of a token, by the layer that drafts it, from which each level begins.
const PROBABILITIES: [f32; LEVELS.len()] = [0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.95];

/// The evidence of a token that is drafted with this probability.
pub(super) fn evidence_of(probability: f32) -> usize {
    LEVELS[PROBABILITIES.iter().rposition(|&least| least <= probability).unwrap_or(0)]
}

fn level(evidence: usize) -> usize {
    LEVELS.iter().rposition(|&least| least <= evidence).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_soon_outweighs_the_others() {
        let (mut all, mut one, other) =
            (Acceptance::default(), Acceptance::default(), Acceptance::default());
        let chance = |of: &Acceptance, all: &Acceptance| of.chance(all, Drafter::Suffix, 5);
        assert_eq!(chance(&one, &all), ASSUMED[3]);
        for _ in 0..12 {
            one.add(&mut all, Drafter::Suffix, 5, true);
        }
        assert!(chance(&one, &all) > 0.9 && chance(&other, &all) > 0.8);
        for _ in 0..12 {
            one.add(&mut all, Drafter::Suffix, 5, false);
        }
        assert!(chance(&one, &all) < 0.5 && chance(&one, &all) < chance(&other, &all));
        assert_eq!(one.chance(&all, Drafter::Suffix, 60), ASSUMED[6]);
        assert_eq!(one.chance(&all, Drafter::Forced, 1), ASSUMED_FORCED);
    }

    #[test]
    fn likely_tokens_of_layers_have_levels_of_long_matches() {
        let levels = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0].map(evidence_of);
        assert_eq!(levels.map(level), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(evidence_of(f32::NAN), 0);
    }
}
