//! How requests end.

use std::time::Duration;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This stop id was chosen.
    StopId(u32),
    /// `max_tokens` were generated, or the context is full.
    Length,
    /// The constraint allows no further token.
    Complete,
    /// An error, described by the text.
    Failed(String),
    /// The request took longer than this limit.
    TimedOut(Duration),
    /// The caller dropped the generation. Stop strings are unknown to the engine: the answers that
    /// they end count as cancelled.
    Cancelled,
}

impl Outcome {
    /// Labels in metrics and traces; [`label`](Self::label) chooses one of them.
    pub const LABELS: [&'static str; 5] = ["stop", "length", "cancelled", "failed", "timeout"];

    /// Label in metrics and traces.
    pub fn label(&self) -> &'static str {
        Self::LABELS[self.index()]
    }

    /// Index of the label among [`LABELS`](Self::LABELS).
    pub(crate) fn index(&self) -> usize {
        match self {
            Self::StopId(_) | Self::Complete => 0,
            Self::Length => 1,
            Self::Cancelled => 2,
            Self::Failed(_) => 3,
            Self::TimedOut(_) => 4,
        }
    }
}
