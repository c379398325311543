//! Errors of communication between ranks.

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A rank left the group while others needed it.
    #[error(
        "rank {rank} {} while rank {waiting} waited for it",
        if *.panicked { "panicked" } else { "left the group" }
    )]
    Gone {
        /// The rank that left.
        rank: usize,
        /// The rank that needed it.
        waiting: usize,
        /// Whether a panic ended it.
        panicked: bool,
    },
    /// Ranks made different calls, or the same with different lengths.
    #[error("rank {rank} called {found} where rank {own} called {expected}")]
    Mismatch {
        /// The first rank that made another call.
        rank: usize,
        /// The rank that reports it.
        own: usize,
        /// The call of the reporting rank.
        expected: String,
        /// The call of the other rank.
        found: String,
    },
    /// A slice of the wrong length.
    #[error("{call} on rank {rank}: expected {expected} values, found {found}")]
    Length {
        /// The call.
        call: &'static str,
        /// The rank that made it.
        rank: usize,
        /// Values of the slice.
        expected: usize,
        /// Values of the result.
        found: usize,
    },
    /// A rank outside the group, or the caller itself where another rank is required.
    #[error("{call} on rank {rank}: expected another rank of {ranks}, found {found}")]
    NoSuchRank {
        /// The call.
        call: &'static str,
        /// The rank that made it.
        rank: usize,
        /// Ranks of the group.
        ranks: usize,
        /// The rank that was given.
        found: usize,
    },
    /// A shard with a rank outside its group.
    #[error("expected a rank below the number of ranks, found rank {rank} of {ranks}")]
    Shard {
        /// The rank.
        rank: usize,
        /// Ranks of the group.
        ranks: usize,
    },
}
