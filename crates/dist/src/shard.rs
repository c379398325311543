//! The part of a model that a rank holds.
//!
//! Invariant: the parts of all ranks in order make up the whole.

use crate::error::Error;
use std::ops::Range;

/// One rank of a group: its share of rows, columns, heads or experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    rank: usize,
    ranks: usize,
}

/// How a matrix, or a set of experts or heads, is split over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Every rank holds and computes all of it: norms, routers, small matrices.
    #[default]
    Whole,
    /// Each rank holds some rows of the matrix and computes these outputs from all inputs. The
    /// outputs are gathered only where all are needed.
    Outputs,
    /// Each rank holds some columns and computes a share of every output from its own inputs, such
    /// as the [`Split::Outputs`] of another matrix. The shares are summed over ranks.
    Inputs,
    /// As [`Split::Outputs`], in units of a whole attention head: queries, keys and values, with
    /// the KV cache of these heads. Heads that share keys and values stay together.
    Heads,
    /// Each rank holds some experts whole. The outputs of a token's experts are summed over ranks.
    Experts,
}

impl Shard {
    /// The whole, for a rank that computes alone.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// Rank `rank` of `ranks`.
    ///
    /// # Errors
    /// If `rank` is not below `ranks`.
    pub fn new(rank: usize, ranks: usize) -> Result<Self, Error> {
        if rank < ranks { Ok(Self { rank, ranks }) } else { Err(Error::Shard { rank, ranks }) }
    }

    /// Number of the rank, from 0.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(self) -> usize {
        self.ranks
    }

    /// This rank's part of `count` items that stay together in units of `unit` consecutive ones,
    /// such as the rows of a head or the columns of a quant block.
    ///
    /// Parts are contiguous, in the order of ranks, of whole units, and as even as possible: the
    /// first ranks get one unit more where the units do not divide evenly. The last unit is short
    /// where `count` is no multiple of `unit`. With fewer units than ranks the last ranks get an
    /// empty range at the end.
    ///
    /// # Panics
    ///
    /// If `unit` is zero.
    pub fn part(self, count: usize, unit: usize) -> Range<usize> {
        assert!(unit > 0, "units of nothing");
        let units = count.div_ceil(unit);
        let (each, more) = (units / self.ranks, units % self.ranks);
        let start = |rank: usize| (rank * each + rank.min(more)).saturating_mul(unit).min(count);
        start(self.rank)..start(self.rank + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RANKS: Range<usize> = 1..17;

    fn parts(count: usize, unit: usize, ranks: usize) -> Vec<Range<usize>> {
        (0..ranks).map(|rank| Shard::new(rank, ranks).unwrap().part(count, unit)).collect()
    }

    proptest! {
        #[test]
        fn parts_cover_everything_in_order(
            count in 0..5000usize, unit in 1..70usize, ranks in RANKS,
        ) {
            let all: Vec<_> = parts(count, unit, ranks).into_iter().flatten().collect();
            prop_assert!(all.into_iter().eq(0..count));
        }

        #[test]
        fn parts_are_whole_units(count in 0..5000usize, unit in 1..70usize, ranks in RANKS) {
            for part in parts(count, unit, ranks) {
                prop_assert!(part.start % unit == 0 || part.start == count);
                prop_assert!(part.end % unit == 0 || part.end == count);
            }
        }

        #[test]
        fn parts_are_even_and_the_first_get_more(
            units in 0..300usize, unit in 1..70usize, ranks in RANKS,
        ) {
            let lengths: Vec<_> = parts(units * unit, unit, ranks).iter().map(Range::len).collect();
            prop_assert!(lengths.is_sorted_by(|a, b| a >= b), "{lengths:?}");
            prop_assert!(lengths[0] - lengths[ranks - 1] <= unit, "{lengths:?}");
        }
    }

    #[test]
    fn ranks_beyond_the_units_get_nothing() {
        assert_eq!(parts(3, 2, 4), [0..2, 2..3, 3..3, 3..3]);
        assert_eq!(parts(0, 8, 2), [0..0, 0..0]);
        assert_eq!(parts(usize::MAX, usize::MAX, 2), [0..usize::MAX, usize::MAX..usize::MAX]);
        assert_eq!(Shard::WHOLE.part(7, 3), 0..7);
    }

    #[test]
    fn a_rank_is_below_the_number_of_ranks() {
        assert_eq!(Shard::new(2, 2), Err(Error::Shard { rank: 2, ranks: 2 }));
        assert_eq!(Shard::new(0, 0), Err(Error::Shard { rank: 0, ranks: 0 }));
    }
}
