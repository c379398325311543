//! Which experts a row is sent to, and with what weights.
//!
//! Reference: the routers of transformers (`Qwen3MoeTopKRouter`, `MixtralTopKRouter`,
//! `DeepseekV2TopkRouter`, `DeepseekV3TopkRouter`, `DeepseekV4TopKRouter`, `GptOssTopKRouter`). Of
//! equal scores the expert with the lower number comes first. All of it is f32, one value after the
//! other, so that a row's choice depends on nothing but its logits.

use crate::lanes::scalar::Scalar;
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, softplus};

/// How logits become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// A softmax over all experts.
    Softmax,
    /// A softmax over the chosen experts.
    SoftmaxOfChosen,
    /// The sigmoid of each logit.
    Sigmoid,
    /// The square root of `ln(1 + e^logit)`.
    SqrtSoftplus,
}

/// What a group of experts is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRank {
    /// The best score of the group.
    Best,
    /// The sum of its two best.
    BestTwo,
}

/// Experts are chosen from the best groups only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Groups, of consecutive experts and equal size.
    pub count: usize,
    /// Groups that experts are chosen from.
    pub chosen: usize,
    /// What decides which.
    pub rank: GroupRank,
}

/// The rule of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts chosen for each row.
    pub chosen: usize,
    /// How logits become scores.
    pub scores: Scores,
    /// Whether the weights of the chosen are divided by their sum.
    pub normalise: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Groups to choose from, if not all experts.
    pub groups: Option<Groups>,
}

/// An expert chosen for a row, and its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpertChoice {
    /// Number of the expert.
    pub expert: u32,
    /// Weight of its outputs.
    pub weight: f32,
}

/// Multiplies the weight of each chosen expert by its factor.
pub fn scale_weights(chosen: &mut [ExpertChoice], scales: &[f32]) {
    for choice in chosen {
        choice.weight *= scales[choice.expert as usize];
    }
}

impl Routing {
    /// Whether `experts` experts can be chosen from so.
    pub fn fits(&self, experts: usize) -> bool {
        let enough = |of: usize| (1..=of).contains(&self.chosen);
        let grouped = |groups: Groups| {
            let size = experts / groups.count.max(1);
            let whole = size > 0 && experts.is_multiple_of(groups.count);
            whole && (1..=groups.count).contains(&groups.chosen) && enough(groups.chosen * size)
        };
        enough(experts) && self.groups.is_none_or(grouped)
    }

    /// Values of working memory for a choice among `experts` experts.
    pub fn scratch(&self, experts: usize) -> usize {
        2 * experts + self.groups.map_or(0, |groups| groups.count)
    }

    /// Chooses for a row with these logits, best first, into `chosen.len()` = [`Routing::chosen`]
    /// places. `bias`, if not empty, is added to the scores for the choice only. `scratch` is
    /// working memory, as much as [`Routing::scratch`] says.
    ///
    /// # Panics
    /// Unless the rule [fits](Routing::fits) the experts, there is a bias for each or none, and the
    /// working memory has its size.
    pub fn choose(
        &self,
        logits: &[f32],
        bias: &[f32],
        scratch: &mut [f32],
        chosen: &mut [ExpertChoice],
    ) {
        assert!(self.fits(logits.len()) && chosen.len() == self.chosen, "a rule that fits");
        assert!(bias.is_empty() || bias.len() == logits.len(), "a bias for each expert");
        assert!(scratch.len() == self.scratch(logits.len()), "working memory of its size");
        let (scores, rest) = scratch.split_at_mut(logits.len());
        let (ranks, worths) = rest.split_at_mut(logits.len());
        scores.copy_from_slice(logits);
        match self.scores {
            Scores::Softmax => softmax(scores),
            rule => rule.score_each(scores),
        }
        ranks.copy_from_slice(scores);
        ranks.iter_mut().zip(bias).for_each(|(rank, bias)| *rank += bias);
        ranks.iter_mut().for_each(|rank| *rank = rank.max(MIN_RANK));
        if let Some(groups) = self.groups {
            leave_groups(ranks, worths, groups);
        }
        for choice in chosen.iter_mut() {
            let best = best(ranks);
            *choice = ExpertChoice { expert: best as u32, weight: scores[best] };
            ranks[best] = TAKEN;
        }
        if self.scores == Scores::SoftmaxOfChosen {
            let weights = &mut scores[..self.chosen];
            weights.iter_mut().zip(chosen.iter()).for_each(|(to, choice)| *to = choice.weight);
            softmax(weights);
            chosen.iter_mut().zip(weights).for_each(|(choice, weight)| choice.weight = *weight);
        }
        self.weigh(chosen);
    }

    /// Makes choices of `experts`, which something else than the logits chose, with the weights
    /// that [`choose`](Self::choose) gives to the same experts. An expert may be there twice.
    ///
    /// # Panics
    /// Unless there is a place for each expert and a logit for each number.
    pub fn choose_from(&self, logits: &[f32], experts: &[u32], chosen: &mut [ExpertChoice]) {
        assert!(experts.len() == chosen.len(), "a place for each expert");
        for (choice, &expert) in chosen.iter_mut().zip(experts) {
            *choice = ExpertChoice { expert, weight: logits[expert as usize] };
        }
        let (max, sum) = match self.scores {
            Scores::Softmax => exponentials(|| logits.iter().copied()),
            _ => exponentials(|| chosen.iter().map(|choice| choice.weight)),
        };
        for choice in chosen.iter_mut() {
            let weight = std::slice::from_mut(&mut choice.weight);
            match self.scores {
                Scores::Softmax | Scores::SoftmaxOfChosen => {
                    shift_exp(weight, max);
                    weight[0] /= sum;
                }
                scores => scores.score_each(weight),
            }
        }
        self.weigh(chosen);
    }

    /// Makes weights of the scores of the chosen.
    fn weigh(&self, chosen: &mut [ExpertChoice]) {
        // What keeps the reference from dividing by zero, and changes nothing else.
        let sum = chosen.iter().map(|choice| choice.weight).sum::<f32>() + 1e-20;
        let sum = if self.normalise { sum } else { 1.0 };
        chosen.iter_mut().for_each(|choice| choice.weight = choice.weight / sum * self.scale);
    }
}

impl Scores {
    /// Makes scores of logits where a score depends on its own logit only; leaves others.
    fn score_each(self, logits: &mut [f32]) {
        match self {
            Self::Sigmoid => each_sixteen(logits, |x| {
                let one = Scalar::splat(1.0);
                one.div(one.add(exp(Scalar::splat(0.0).sub(x))))
            }),
            Self::SqrtSoftplus => {
                each_sixteen(logits, softplus);
                logits.iter_mut().for_each(|score| *score = score.sqrt());
            }
            Self::Softmax | Self::SoftmaxOfChosen => {}
        }
    }
}

/// The lowest rank, that of NaN too.
const MIN_RANK: f32 = f32::MIN / 2.0;
/// The rank of experts in groups left out.
const LEFT_OUT: f32 = f32::MIN;
/// The rank of what was chosen.
const TAKEN: f32 = f32::NEG_INFINITY;

/// The first of the largest.
fn best(ranks: &[f32]) -> usize {
    (1..ranks.len()).fold(0, |best, at| if ranks[at] > ranks[best] { at } else { best })
}

/// Leaves the experts of all but the best groups out; `worths` has space for a value per group.
fn leave_groups(ranks: &mut [f32], worths: &mut [f32], groups: Groups) {
    let size = ranks.len() / groups.count;
    for (worth, group) in worths.iter_mut().zip(ranks.chunks_exact(size)) {
        let first = best(group);
        let others = group.iter().enumerate().filter(|(at, _)| *at != first).map(|(_, rank)| *rank);
        let second = match groups.rank {
            GroupRank::BestTwo => others.reduce(f32::max),
            GroupRank::Best => None,
        };
        *worth = (group[first] + second.unwrap_or(0.0)).max(2.0 * MIN_RANK);
    }
    for _ in 0..groups.chosen {
        let next = best(worths);
        worths[next] = TAKEN;
    }
    for (group, worth) in ranks.chunks_exact_mut(size).zip(worths) {
        if *worth != TAKEN {
            group.fill(LEFT_OUT);
        }
    }
}

fn softmax(values: &mut [f32]) {
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    shift_exp(values, max);
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

/// The largest of the values, and the sum of `exp(value - largest)`, as in [`softmax`].
fn exponentials<I: Iterator<Item = f32>>(values: impl Fn() -> I) -> (f32, f32) {
    let max = values().fold(f32::NEG_INFINITY, f32::max);
    let sum = values().map(|mut value| {
        shift_exp(std::slice::from_mut(&mut value), max);
        value
    });
    (max, sum.sum())
}

/// `exp(value - max)` of each value.
fn shift_exp(values: &mut [f32], max: f32) {
    each_sixteen(values, |x| exp(x.sub(Scalar::splat(max))));
}

fn each_sixteen(values: &mut [f32], f: impl Fn(Scalar) -> Scalar) {
    for chunk in values.chunks_mut(LANES) {
        let mut all = [0.0; LANES];
        all[..chunk.len()].copy_from_slice(chunk);
        f(Scalar::load(&all)).store(&mut all);
        chunk.copy_from_slice(&all[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Routing =
        Routing { chosen: 2, scores: Scores::Softmax, normalise: false, scale: 1.0, groups: None };

    fn choose(rule: Routing, logits: &[f32], bias: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let mut chosen = vec![ExpertChoice::default(); rule.chosen];
        // Whatever was there before.
        let mut scratch = vec![f32::NAN; rule.scratch(logits.len())];
        rule.choose(logits, bias, &mut scratch, &mut chosen);
        chosen.iter().map(|choice| (choice.expert, choice.weight)).unzip()
    }

    fn check(rule: Routing, logits: &[f32], bias: &[f32], want: &[(u32, f64)]) {
        let (experts, weights) = choose(rule, logits, bias);
        assert_eq!(experts, want.iter().map(|(expert, _)| *expert).collect::<Vec<_>>());
        for (got, (_, want)) in weights.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{got} is not {want}");
        }
    }

    #[test]
    fn a_softmax_comes_before_the_choice_or_after_it() {
        let logits = [0.0, 2.0, 1.0, -1.0];
        let all: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        let share = |x: f64| x.exp() / all;
        check(PLAIN, &logits, &[], &[(1, share(2.0)), (2, share(1.0))]);
        let two = 2f64.exp() + 1f64.exp();
        let normalised = [(1, 2f64.exp() / two), (2, 1f64.exp() / two)];
        check(Routing { normalise: true, ..PLAIN }, &logits, &[], &normalised);
        check(Routing { scores: Scores::SoftmaxOfChosen, ..PLAIN }, &logits, &[], &normalised);
    }

    #[test]
    fn a_bias_counts_in_the_choice_only() {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let rule = Routing { scores: Scores::Sigmoid, scale: 2.5, ..PLAIN };
        let want = [(3, 2.5 * sigmoid(-1.0)), (1, 2.5 * sigmoid(2.0))];
        check(rule, &[0.0, 2.0, 1.0, -1.0], &[0.0, 0.0, -0.5, 9.0], &want);
    }

    #[test]
    fn square_roots_of_softplus_are_chosen_with_a_bias_and_weighed_without_it() {
        let score = |x: f64| x.exp().ln_1p().sqrt();
        let rule = Routing { scores: Scores::SqrtSoftplus, normalise: true, scale: 1.5, ..PLAIN };
        let share = |x: f64, other: f64| 1.5 * score(x) / (score(x) + score(other));
        let logits = [0.0, 2.0, 1.0, -30.0];
        check(rule, &logits, &[], &[(1, share(2.0, 1.0)), (2, share(1.0, 2.0))]);
        let want = [(3, share(-30.0, 2.0)), (1, share(2.0, -30.0))];
        check(rule, &logits, &[0.0, 0.0, -0.5, 9.0], &want);
        let plain = Routing { normalise: false, ..rule };
        check(plain, &[25.0, -1.0], &[], &[(0, 1.5 * 5.0), (1, 1.5 * score(-1.0))]);
    }

    #[test]
    fn experts_of_a_table_weigh_as_if_they_were_chosen() {
        let logits: Vec<f32> = (0..37).map(|i| ((i * 29) % 37) as f32 / 7.0 - 3.0).collect();
        let all = [Scores::Softmax, Scores::SoftmaxOfChosen, Scores::Sigmoid, Scores::SqrtSoftplus];
        for (scores, normalise) in all.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let rule = Routing { scores, normalise, chosen: 20, scale: 2.5, ..PLAIN };
            let (experts, want) = choose(rule, &logits, &[]);
            let mut chosen = vec![ExpertChoice::default(); 20];
            rule.choose_from(&logits, &experts, &mut chosen);
            assert_eq!(chosen.iter().map(|c| c.expert).collect::<Vec<_>>(), experts);
            assert_eq!(chosen.iter().map(|c| c.weight).collect::<Vec<_>>(), want, "{scores:?}");
        }
        let rule = Routing { scores: Scores::SqrtSoftplus, normalise: true, ..PLAIN };
        let mut twice = [ExpertChoice::default(); 2];
        rule.choose_from(&logits, &[5, 5], &mut twice);
        assert_eq!(twice, [ExpertChoice { expert: 5, weight: 0.5 }; 2]);
    }

    #[test]
    fn groups_are_ranked_by_their_best_or_their_best_two() {
        let logits = [3.0, -9.0, 2.0, 1.9, 1.0, 0.9];
        let groups = |rank| Some(Groups { count: 3, chosen: 1, rank });
        let rule = Routing { scores: Scores::Sigmoid, ..PLAIN };
        let best = choose(Routing { groups: groups(GroupRank::Best), ..rule }, &logits, &[]);
        assert_eq!(best.0, [0, 1]);
        let two = choose(Routing { groups: groups(GroupRank::BestTwo), ..rule }, &logits, &[]);
        assert_eq!(two.0, [2, 3]);
    }

    #[test]
    fn of_equals_the_lower_number_comes_first_and_nothing_is_chosen_twice() {
        assert_eq!(choose(PLAIN, &[1.0, 1.0, 1.0], &[]).0, [0, 1]);
        let all = Routing { chosen: 4, scores: Scores::SoftmaxOfChosen, ..PLAIN };
        let (experts, _) = choose(all, &[f32::NAN, f32::NEG_INFINITY, f32::MIN, 0.0], &[]);
        let mut sorted = experts.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3], "{experts:?}");
    }

    #[test]
    fn a_rule_that_cannot_be_followed_does_not_fit() {
        assert!(PLAIN.fits(2) && !PLAIN.fits(1));
        let groups = |count, chosen| Some(Groups { count, chosen, rank: GroupRank::Best });
        let fits = |groups| Routing { groups, ..PLAIN }.fits(6);
        assert!(fits(groups(3, 1)) && fits(groups(6, 2)));
        assert!(!fits(groups(6, 1)) && !fits(groups(4, 2)) && !fits(groups(0, 0)));
    }
}
