//! Where drafts come from.

use formats::DraftConfig;

/// Maximum number of drafted tokens per sequence and step.
pub const MAX_DRAFTED: usize = 16;

/// Where the drafted tokens of a step come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Drafter {
    /// The grammar, which leaves little else.
    Forced,
    /// What followed the last two to four tokens, for [`Speculate::Ngram`](crate::Speculate).
    Ngram,
    /// An earlier place of the sequence that continues like its end.
    Suffix,
    /// The answer that the client expects.
    Prediction,
    /// A place of earlier requests.
    Memory,
    /// The model's layers of multi-token prediction.
    Mtp,
    /// A head of EAGLE-3.
    Eagle3,
    /// An assistant of Gemma 4.
    Assistant,
    /// A second, smaller model.
    Model,
}

impl Drafter {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Forced,
        Self::Ngram,
        Self::Suffix,
        Self::Prediction,
        Self::Memory,
        Self::Mtp,
        Self::Eagle3,
        Self::Assistant,
        Self::Model,
    ];

    /// The layers that draft tokens with the states of a model.
    pub(crate) fn of_layers(config: &DraftConfig) -> Self {
        match config {
            DraftConfig::Mtp(_) => Self::Mtp,
            DraftConfig::Eagle3(_) => Self::Eagle3,
            DraftConfig::Assistant(_) => Self::Assistant,
        }
    }

    /// Its name in metrics and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forced => "forced",
            Self::Ngram => "ngram",
            Self::Suffix => "suffix",
            Self::Prediction => "prediction",
            Self::Memory => "memory",
            Self::Mtp => "mtp",
            Self::Eagle3 => "eagle3",
            Self::Assistant => "assistant",
            Self::Model => "model",
        }
    }

    /// Whether it gives each token with a probability.
    pub(crate) fn has_probabilities(self) -> bool {
        matches!(self, Self::Mtp | Self::Eagle3 | Self::Assistant | Self::Model)
    }

    /// Whether all its tokens of a step are drafted at one position: it keeps no rows of its own.
    pub(crate) fn stays(self) -> bool {
        self == Self::Assistant
    }
}
