//! The error of work that is ended from outside.

/// The work was ended from outside, such as by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;
