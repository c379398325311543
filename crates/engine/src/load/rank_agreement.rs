//! What ranks agree on before they load a model: each compares the cards of all and divides the
//! layers, with one result.

use super::error::Error;
use super::rank_card::{RankCard, RankSizes, difference};
use super::rank_exchange::{exchange, reported_by_first};
use models::{Ranks, StageCuts, ranges};
use std::ops::Range;

/// What the cards of all ranks come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankAgreement {
    /// Number of layers of each stage.
    pub stage_layers: Vec<usize>,
    /// Sizes that all ranks take.
    pub sizes: RankSizes,
    /// Names of the arithmetic by layers, where stages differ.
    pub arithmetic: Option<String>,
}

/// Compares the cards of all ranks, of which this rank has `own`, and divides the layers. Every
/// rank must call this.
///
/// # Errors
/// If a rank differs in what all must have alike, the layers cannot be divided, or a rank has
/// ended.
pub(super) fn agree(
    ranks: &Ranks,
    own: RankCard,
    cuts: &StageCuts,
) -> Result<RankAgreement, Error> {
    let Some(world) = ranks.world() else { return compare(&[own], 1, None, cuts) };
    let cards = exchange(&**world, &own)?;
    let slices = ranks.slices();
    reported_by_first(&**world, compare(&cards, slices, ranks.stage_layers(), cuts))
}

/// What the cards of all ranks, in stages of `slices`, come to.
fn compare(
    cards: &[RankCard],
    slices: usize,
    given: Option<&[usize]>,
    cuts: &StageCuts,
) -> Result<RankAgreement, Error> {
    let others = cards.iter().enumerate().skip(1);
    if let Some(problem) = others.clone().find_map(|card| difference(&cards[0], card)) {
        return Err(Error::Ranks(problem));
    }
    for (rank, card) in others {
        let first = rank / slices * slices;
        if card.arithmetic != cards[first].arithmetic {
            return Err(Error::Ranks(format!(
                "rank {rank} ({}) computes {}, rank {first} {}: ranks that share layers need equal \
                 arithmetic, as --bits portable gives",
                card.host, card.arithmetic, cards[first].arithmetic
            )));
        }
    }
    let stages = cards.len() / slices;
    let stage_layers = match given {
        Some(layers) => {
            cuts.check(stages, layers)?;
            check_files(cards, slices, layers)?;
            layers.to_vec()
        }
        None => divide(cards, slices, cuts)?,
    };
    let arithmetic = arithmetic_of(cards, slices, &stage_layers);
    Ok(RankAgreement { stage_layers, sizes: cards[0].sizes, arithmetic })
}

/// Checks that all ranks have the files of their layers.
fn check_files(cards: &[RankCard], slices: usize, layers: &[usize]) -> Result<(), Error> {
    for (rank, (card, layers)) in cards.iter().zip(of_ranks(slices, layers)).enumerate() {
        if let Some(error) = card.lacking.of_stage(&layers) {
            let (host, first, last) = (&card.host, layers.start, layers.end - 1);
            let rank = format!("rank {rank} ({host}), of layers {first} to {last}");
            return Err(Error::Ranks(format!("{rank}: {error}")));
        }
    }
    Ok(())
}

/// The layers of each rank.
fn of_ranks(slices: usize, layers: &[usize]) -> impl Iterator<Item = Range<usize>> {
    ranges(layers).flat_map(move |of_stage| std::iter::repeat_n(of_stage, slices))
}

/// The number of layers of each stage, so that its ranks have the files, and within their memory if
/// the layers fit.
fn divide(cards: &[RankCard], slices: usize, cuts: &StageCuts) -> Result<Vec<usize>, Error> {
    let stages: Vec<_> = cards.chunks(slices).collect();
    let fit = |stage: usize, layers: Range<usize>| {
        let memory = stages[stage].iter().map(|card| Some(card.memory? as usize)).min().flatten();
        memory.is_some_and(|least| cuts.bytes(layers) <= least.saturating_mul(slices))
    };
    let has = |stage: usize, layers: Range<usize>| {
        !stages[stage].iter().any(|card| card.lacking.of_stage(&layers).is_some())
    };
    let both = |stage, layers: Range<usize>| has(stage, layers.clone()) && fit(stage, layers);
    // What does not fit is found out with sizes when it is loaded.
    let found = cuts.divide_where(stages.len(), &both);
    if let Some(layers) = found.or_else(|| cuts.divide_where(stages.len(), &has)) {
        return Ok(layers);
    }
    // Without regard to files, for what is wrong with the layers themselves.
    cuts.divide(stages.len(), None)?;
    let lacks =
        |layers: Range<usize>| cards.iter().any(|card| card.lacking.of_stage(&layers).is_some());
    let lacked: Vec<_> = (0..cuts.count()).filter(|layer| lacks(*layer..layer + 1)).collect();
    Err(Error::Ranks(format!(
        "ranks lack files of layers {lacked:?} so that no division into {} stages leaves each with \
         layers whose files its ranks have: stages follow each other in the order of ranks, and the \
         first also has the embedding and the output head",
        stages.len()
    )))
}

/// The arithmetic of each run of layers, where stages differ.
fn arithmetic_of(cards: &[RankCard], slices: usize, layers: &[usize]) -> Option<String> {
    let of_stages = || cards.chunks(slices).map(|stage| stage[0].arithmetic.as_str());
    if of_stages().all(|name| name == cards[0].arithmetic) {
        return None;
    }
    let of_stages = of_stages().zip(ranges(layers));
    let names = of_stages
        .map(|(name, layers)| format!("layers {}-{}: {name}", layers.start, layers.end - 1));
    Some(names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dist::Local;
    use formats::ModelConfig;
    use std::sync::Arc;

    fn cuts(layers: usize) -> StageCuts {
        let config = ModelConfig::tiny("llama", layers).unwrap();
        let names: Vec<_> = (0..layers).map(|layer| format!("blk.{layer}.ffn_up.weight")).collect();
        StageCuts::new(&config, names.iter().map(|name| (name.as_str(), 1 << 20)))
    }

    fn card(host: &str, arithmetic: &str, memory: Option<u64>) -> RankCard {
        let shared = vec![("block".to_owned(), "32".to_owned())];
        let (host, arithmetic) = (host.into(), arithmetic.into());
        RankCard { host, shared, arithmetic, memory, ..RankCard::default() }
    }

    /// What each rank of a row of stages learns.
    fn told(cards: &[RankCard], layers: usize) -> Vec<Result<RankAgreement, String>> {
        let ranks = Local::group(cards.len()).into_iter().zip(cards.to_vec());
        let threads = ranks.map(|(rank, card)| {
            std::thread::spawn(move || {
                let ranks = Ranks::grid(Arc::new(rank), 1, ("", &[])).unwrap();
                agree(&ranks, card, &cuts(layers)).map_err(|error| error.to_string())
            })
        });
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn all_ranks_are_told_the_same() {
        let all = told(&[card("a", "x", None), card("b", "x", None)], 5);
        let sizes = RankSizes::default();
        let expected = RankAgreement { stage_layers: vec![2, 3], sizes, arithmetic: None };
        assert_eq!(all, [Ok(expected.clone()), Ok(expected)]);
        assert_eq!(told(&[card("a", "x", None)], 5)[0].as_ref().unwrap().stage_layers, [5]);
    }

    #[test]
    fn a_rank_that_differs_is_named_to_the_first_and_refused_on_all() {
        let mut other = card("node7", "x", None);
        other.shared[0].1 = "64".to_owned();
        let all = told(&[card("a", "x", None), card("b", "x", None), other.clone()], 5);
        let problems: Vec<_> = all.into_iter().map(Result::unwrap_err).collect();
        assert_eq!(problems[0], "rank 2 (node7) has block 64, rank 0 32");
        assert!(problems[1] == problems[2] && problems[1].contains("rank 0"), "{problems:?}");
        other.shared[0].0 = "blocks".to_owned();
        let found = compare(&[card("a", "x", None), other], 1, None, &cuts(2));
        assert!(found.unwrap_err().to_string().contains("another version"));
    }

    #[test]
    fn stages_may_compute_unlike_each_other_and_slices_may_not() {
        let cards = [card("a", "x", None), card("b", "y", None)];
        let found = compare(&cards, 1, None, &cuts(4)).unwrap();
        assert_eq!(found.arithmetic.unwrap(), "layers 0-1: x, layers 2-3: y");
        let found = compare(&cards, 2, None, &cuts(4)).unwrap_err().to_string();
        assert!(found.contains("rank 1 (b) computes y, rank 0 x"), "{found}");
    }

    #[test]
    fn layers_are_divided_by_memory_where_they_fit() {
        let mib = |mib: u64| Some(mib << 20);
        let with = |a, b| [card("a", "x", a), card("b", "x", b)];
        let layers = |cards: &[RankCard]| compare(cards, 1, None, &cuts(6)).unwrap().stage_layers;
        assert_eq!(layers(&with(mib(2), mib(9))), [2, 4]);
        assert_eq!(layers(&with(mib(2), None)), [3, 3]);
        assert_eq!(layers(&with(mib(1), mib(1))), [3, 3]);
        let given = compare(&with(None, None), 1, Some(&[1, 5]), &cuts(6)).unwrap();
        assert_eq!(given.stage_layers, [1, 5]);
        assert!(compare(&with(None, None), 1, Some(&[1, 4]), &cuts(6)).is_err());
    }
}
