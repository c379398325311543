//! What ranks agree on before they load a model: rank 0 compares the cards of all, divides the
//! layers, and tells the others.

use super::error::Error;
use super::rank_card::{RankCard, RankSizes, difference};
use models::{Ranks, StageCuts, ranges};
use serde::{Deserialize, Serialize};

/// What rank 0 says of the cards of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankAgreement {
    /// Why the ranks cannot share the model.
    problem: Option<String>,
    /// Number of layers of each stage.
    pub stage_layers: Vec<usize>,
    /// Sizes that all ranks take.
    pub sizes: RankSizes,
    /// Names of the arithmetic by layers, where stages differ.
    pub arithmetic: Option<String>,
}

/// Compares the cards of all ranks, of which this rank has `own`. Every rank must call this.
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
    let mut bytes = Vec::new();
    let failed = |error| Error::from(models::Error::from(error));
    if world.rank() > 0 {
        world.send_bytes(0, &own.to_bytes()).map_err(failed)?;
        world.receive_bytes(0, &mut bytes).map_err(failed)?;
        let agreement: RankAgreement = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Ranks(format!("rank 0 has another version: {error}")))?;
        return match agreement.problem {
            Some(_) => Err(Error::RanksDiffer),
            None => Ok(agreement),
        };
    }
    let mut cards = vec![own];
    for rank in 1..world.ranks() {
        world.receive_bytes(rank, &mut bytes).map_err(failed)?;
        cards.push(RankCard::from_bytes(rank, &bytes)?);
    }
    let slices = ranks.slice()?.ranks();
    let found = compare(&cards, slices, ranks.stage_layers(), cuts);
    let agreement = match &found {
        Ok(agreement) => agreement.clone(),
        Err(error) => RankAgreement { problem: Some(error.to_string()), ..Default::default() },
    };
    let bytes = serde_json::to_vec(&agreement).expect("an agreement is JSON");
    (1..world.ranks()).try_for_each(|rank| world.send_bytes(rank, &bytes)).map_err(failed)?;
    found
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
            layers.to_vec()
        }
        None => divide(cards, slices, cuts)?,
    };
    let arithmetic = arithmetic_of(cards, slices, &stage_layers);
    Ok(RankAgreement { problem: None, stage_layers, sizes: cards[0].sizes, arithmetic })
}

/// The number of layers of each stage, within the memory of its ranks if they fit.
fn divide(cards: &[RankCard], slices: usize, cuts: &StageCuts) -> Result<Vec<usize>, Error> {
    let stages = cards.len() / slices;
    let of_stage = |cards: &[RankCard]| {
        let memory = cards.iter().map(|card| Some(card.memory? as usize));
        memory.min().flatten().map(|least| least.saturating_mul(slices))
    };
    let memory: Option<Vec<_>> = cards.chunks(slices).map(of_stage).collect();
    let within = memory.and_then(|memory| cuts.divide(stages, Some(&memory)).ok());
    // What does not fit is found out with sizes when it is loaded.
    Ok(within.map_or_else(|| cuts.divide(stages, None), Ok)?)
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
        let expected = RankAgreement { stage_layers: vec![2, 3], ..RankAgreement::default() };
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
