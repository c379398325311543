//! What goes wrong between ranks.

/// Why a call did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A rank left the group while others needed it.
    #[error("rank {rank} {} while rank {waiting} waited for it", if *.panicked { "panicked" } else { "left the group" })]
    Gone {
        /// The rank that is no more.
        rank: usize,
        /// The rank that needed it.
        waiting: usize,
        /// Whether it ended by a panic.
        panicked: bool,
    },
    /// Ranks made different calls, or the same with different lengths.
    #[error("rank {rank} called {found} where rank {own} called {expected}")]
    Mismatch {
        /// The first rank that did something else.
        rank: usize,
        /// The rank that tells it.
        own: usize,
        /// What that one called.
        expected: String,
        /// What the other called.
        found: String,
    },
    /// A slice of the wrong length.
    #[error("{call} on rank {rank}: expected {expected} values, found {found}")]
    Length {
        /// The call.
        call: &'static str,
        /// Who made it.
        rank: usize,
        /// Values that it was called with room for.
        expected: usize,
        /// Values that there are.
        found: usize,
    },
    /// A rank that the group does not have, or the caller itself where another is meant.
    #[error("{call} on rank {rank}: expected another rank of {ranks}, found {found}")]
    NoSuchRank {
        /// The call.
        call: &'static str,
        /// Who made it.
        rank: usize,
        /// Ranks of the group.
        ranks: usize,
        /// What was asked for.
        found: usize,
    },
    /// A shard of a group that cannot be.
    #[error("expected a rank below the number of ranks, found rank {rank} of {ranks}")]
    Shard {
        /// The rank.
        rank: usize,
        /// Ranks of the group.
        ranks: usize,
    },
}
