//! Errors of communication between ranks.

use std::path::PathBuf;

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
    /// An MPI library that cannot be used.
    #[error("{}: {problem}", path.display())]
    Library {
        /// Its path, or its name where the loader looks.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// No MPI library was found.
    #[error("expected an MPI library, found none of {tried}{last}: name one with {variable}")]
    NoLibrary {
        /// The paths that were tried.
        tried: String,
        /// The variable that names a library.
        variable: &'static str,
        /// Why the last of them was not loaded, in parentheses.
        last: String,
    },
    /// A library that found other ranks than the launcher has started.
    #[error(
        "{}: expected the {expected} ranks of the launcher, found {found}: name the launcher's \
         own library with {variable}", path.display()
    )]
    Launcher {
        /// The path of the library.
        path: PathBuf,
        /// Ranks that the launcher says it has started.
        expected: usize,
        /// Ranks that the library knows.
        found: usize,
        /// The variable that names a library.
        variable: &'static str,
    },
    /// A call of the MPI library failed.
    #[error("{call} on rank {rank}: {text}")]
    Mpi {
        /// The rank that called.
        rank: usize,
        /// The call.
        call: &'static str,
        /// What the library says.
        text: String,
    },
    /// A rank of the world from which nothing is heard any more.
    #[error("rank {rank} has been silent for {:.1} s", *.millis as f64 / 1000.0)]
    Silent {
        /// The rank.
        rank: usize,
        /// Milliseconds for which it had been silent when it was given up.
        millis: u64,
    },
    /// Bytes from a rank that are no piece of a message.
    #[error("rank {from} sent rank {rank} what is no message")]
    NoMessage {
        /// The rank that sent them.
        from: usize,
        /// The rank that received them.
        rank: usize,
    },
    /// A message of bytes that is longer than any.
    #[error("rank {from} sent rank {rank} {found} bytes: expected at most {most}")]
    Bytes {
        /// The rank that sent them.
        from: usize,
        /// The rank that receives them.
        rank: usize,
        /// Bytes of the message.
        found: usize,
        /// Most bytes of a message.
        most: usize,
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
