//! How many drafted tokens a step verifies.
//!
//! A step of `rows` rows takes a time `T(rows)` and gives a token for each sequence, and one more
//! for each draft that comes out together with those before it. The best number of drafts is the
//! one with the most tokens for the time. It is often 0: where rows are costly, and where many
//! sequences are computed together.

/// A drafted token: the probability that it comes out with all before it, and its sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OfferedDraft {
    pub chance: f32,
    /// The number of the sequence.
    pub sequence: usize,
}

/// The best number of drafts of `offered`, which become less likely, in a step that computes `rows`
/// rows and gives `tokens` tokens without them; `cost` is the time of a step by its rows.
pub(crate) fn best_number(
    offered: &[OfferedDraft],
    (rows, tokens): (usize, f64),
    cost: impl Fn(usize) -> f64,
) -> usize {
    let (mut best, mut most, mut tokens) = (0, tokens / cost(rows), tokens);
    for (at, draft) in offered.iter().enumerate() {
        tokens += f64::from(draft.chance);
        let rate = tokens / cost(rows + at + 1);
        if rate > most {
            (best, most) = (at + 1, rate);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    /// Tokens for the time, of the first drafts of each sequence.
    fn rate(chances: &[Vec<f32>], lengths: &[usize], costs: &[f64]) -> f64 {
        let taken = chances.iter().zip(lengths).flat_map(|(chances, &len)| &chances[..len]);
        let (mut rows, mut tokens) = (chances.len(), chances.len() as f64);
        for chance in taken {
            rows += 1;
            tokens += f64::from(*chance);
        }
        tokens / costs[rows]
    }

    /// The best rate of all lengths.
    fn best(chances: &[Vec<f32>], lengths: &mut Vec<usize>, costs: &[f64]) -> f64 {
        let Some(next) = chances.get(lengths.len()) else { return rate(chances, lengths, costs) };
        let mut most = 0.0_f64;
        for len in 0..=next.len() {
            lengths.push(len);
            most = most.max(best(chances, lengths, costs));
            lengths.pop();
        }
        most
    }

    #[test]
    fn the_choice_is_the_best_of_all_lengths() {
        let mut rng = Rng::new(1);
        let mut numbers = [0; 13];
        for _ in 0..300 {
            let sequences = 1 + rng.below(3) as usize;
            let mut unit = || rng.below(1000) as f32 / 1000.0;
            let chances: Vec<Vec<f32>> = (0..sequences)
                .map(|_| {
                    let mut chance = 1.0;
                    (0..(5.0 * unit()) as usize)
                        .map(|_| (chance *= unit().sqrt(), chance).1)
                        .collect()
                })
                .collect();
            // Steps, not a line: some rows more are free.
            let mut cost = 1.0;
            let costs: Vec<f64> = (0..32)
                .map(|_| {
                    cost += if unit() < 0.4 { 0.0 } else { f64::from(unit()) * 0.6 };
                    cost
                })
                .collect();
            let mut offered: Vec<OfferedDraft> = (chances.iter().enumerate())
                .flat_map(|(sequence, chances)| {
                    chances.iter().map(move |&chance| OfferedDraft { chance, sequence })
                })
                .collect();
            offered.sort_by(|a, b| b.chance.total_cmp(&a.chance));
            let number = best_number(&offered, (sequences, sequences as f64), |rows| costs[rows]);
            numbers[number] += 1;
            let mut lengths = vec![0; sequences];
            offered[..number].iter().for_each(|draft| lengths[draft.sequence] += 1);
            let (found, wanted) =
                (rate(&chances, &lengths, &costs), best(&chances, &mut Vec::new(), &costs));
            assert!((found - wanted).abs() < 1e-6 * wanted, "{chances:?} {costs:?}: {lengths:?}");
        }
        assert!(numbers[..5].iter().all(|count| *count > 5), "{numbers:?}");
    }

    #[test]
    fn of_many_sequences_none_is_drafted_for() {
        let offered: Vec<OfferedDraft> =
            (0..16).map(|sequence| OfferedDraft { chance: 0.8, sequence }).collect();
        let cost = |rows: usize| 1.0 + 0.3 * rows as f64;
        assert_eq!(best_number(&offered[..1], (1, 1.0), cost), 1);
        assert_eq!(best_number(&offered, (16, 16.0), cost), 0);
    }
}
