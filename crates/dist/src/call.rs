//! Calls of ranks, which all ranks of a group make alike.

use crate::error::Error;
use std::fmt;

/// Most values of a piece of a message or of a collective: 64 KiB.
pub(crate) const PIECE: usize = 1 << 14;
/// Pieces under way to a rank, after which a sender waits: 4 MiB.
pub(crate) const WINDOW: usize = 64;

/// Whether messages of so many values can all be sent to one rank before it receives the first.
pub fn are_posted(messages: impl Iterator<Item = usize>) -> bool {
    messages.map(|values| values.max(1).div_ceil(PIECE)).sum::<usize>() <= WINDOW
}

/// Checks that the rank `found`, to which `rank` of `ranks` directs a call, is one of the group,
/// and another one unless it may be the own.
///
/// # Errors
/// If it is not.
pub(crate) fn check_rank(
    call: &'static str,
    (rank, ranks): (usize, usize),
    found: usize,
    may_be_own: bool,
) -> Result<(), Error> {
    if found < ranks && (may_be_own || found != rank) {
        return Ok(());
    }
    Err(Error::NoSuchRank { call, rank, ranks, found })
}

/// The ranks of one colour, where `of` gives colour and key of each of so many ranks: in the order
/// of keys and, where these are equal, of ranks.
pub(crate) fn ranks_of_colour(
    ranks: usize,
    colour: u32,
    of: impl Fn(usize) -> [u32; 2],
) -> Vec<usize> {
    let mut members: Vec<usize> = (0..ranks).filter(|rank| of(*rank)[0] == colour).collect();
    members.sort_by_key(|rank| of(*rank)[1]);
    members
}

/// The part of a call on which all ranks must agree. Lengths are values of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankCall {
    AllReduceSum {
        length: usize,
    },
    AllGather {
        length: usize,
    },
    Broadcast {
        length: usize,
        root: usize,
    },
    Barrier,
    /// A message from one rank to another.
    Send {
        length: usize,
    },
}

impl fmt::Display for RankCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduceSum { length } => write!(f, "all_reduce_sum of {length} values"),
            Self::AllGather { length } => write!(f, "all_gather of {length} values"),
            Self::Broadcast { length, root } => {
                write!(f, "broadcast of {length} values from rank {root}")
            }
            Self::Barrier => f.write_str("barrier"),
            Self::Send { length } => write!(f, "send of {length} values"),
        }
    }
}

impl RankCall {
    /// Checks that the call `found` of `rank` is this one, which rank `own` made.
    ///
    /// # Errors
    /// If it is another.
    pub fn check(self, own: usize, found: Self, rank: usize) -> Result<(), Error> {
        if self == found {
            return Ok(());
        }
        let (expected, found) = (self.to_string(), found.to_string());
        Err(Error::Mismatch { rank, own, expected, found })
    }
}
