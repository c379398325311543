//! What is wrong with a file.

use base::Name;

/// Versions of the format: of readable extents, and of sealed ones.
pub(super) const READABLE: u32 = 1;
pub(super) const SEALED: u32 = 2;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is of a later version.
    #[error("version {0}, which is later than {SEALED}")]
    Newer(u32),
    /// The file is sealed under another key than is at hand.
    #[error("sealed under the key {0}")]
    Sealed(Name),
    /// The file is not what its name says.
    #[error("{0}")]
    Corrupt(String),
}

pub(super) fn corrupt(what: impl Into<String>) -> Problem {
    Problem::Corrupt(what.into())
}
