//! How a request has its next tokens drafted.

use crate::observe::drafter::MAX_DRAFTED;
use std::str::FromStr;

/// How the next tokens of a request are drafted. Whatever is drafted, the text is the same; tokens
/// that a grammar leaves no choice about are always drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Speculate {
    /// Not at all.
    Off,
    /// With the drafters that there are, up to this many tokens, as many as make it faster.
    Auto(usize),
    /// From texts that continue alike, up to this many tokens, as many as make it faster.
    Suffix(usize),
    /// Up to this many tokens that followed the last tokens at their previous occurrence, always
    /// (prompt lookup: Saxena, 2023).
    Ngram(usize),
    /// With the model's layers of multi-token prediction, up to this many tokens, as many as make
    /// it faster.
    Mtp(usize),
    /// With the second model that is loaded for it, up to this many tokens, as many as make it
    /// faster.
    Model(usize),
}

impl Speculate {
    /// Maximum number of tokens per step, forced ones aside.
    pub fn max(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Auto(max)
            | Self::Suffix(max)
            | Self::Ngram(max)
            | Self::Mtp(max)
            | Self::Model(max) => max,
        }
    }

    /// The same with at most `max` tokens per step.
    #[must_use]
    pub fn at_most(self, max: usize) -> Self {
        match self {
            _ if max == 0 => Self::Off,
            Self::Off => Self::Off,
            Self::Auto(own) => Self::Auto(own.min(max)),
            Self::Suffix(own) => Self::Suffix(own.min(max)),
            Self::Ngram(own) => Self::Ngram(own.min(max)),
            Self::Mtp(own) => Self::Mtp(own.min(max)),
            Self::Model(own) => Self::Model(own.min(max)),
        }
    }

    /// Whether tokens are drafted from texts that continue alike.
    pub(crate) fn follows(self) -> bool {
        matches!(self, Self::Auto(_) | Self::Suffix(_))
    }

    /// Whether tokens are drafted by layers of multi-token prediction, or by a head, where one of
    /// these is loaded.
    pub(crate) fn uses_layers(self) -> bool {
        matches!(self, Self::Auto(_) | Self::Mtp(_) | Self::Model(_))
    }

    /// Whether tokens are drafted by a second model where one is loaded.
    pub(crate) fn uses_model(self) -> bool {
        matches!(self, Self::Auto(_) | Self::Model(_))
    }
}

impl Default for Speculate {
    fn default() -> Self {
        Self::Auto(MAX_DRAFTED)
    }
}

impl FromStr for Speculate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected off, auto[:N], suffix[:N], mtp[:N], model[:N] or ngram:N with N from 1 \
                 to {MAX_DRAFTED}, found {text:?}"
            )
        };
        let max = |max: &str| match max.parse() {
            Ok(max @ 1..=MAX_DRAFTED) => Ok(max),
            _ => Err(wrong()),
        };
        match text.split_once(':') {
            None if text == "off" => Ok(Self::Off),
            None if text == "auto" => Ok(Self::default()),
            None if text == "suffix" => Ok(Self::Suffix(MAX_DRAFTED)),
            None if text == "mtp" => Ok(Self::Mtp(MAX_DRAFTED)),
            None if text == "model" => Ok(Self::Model(MAX_DRAFTED)),
            Some(("auto", most)) => max(most).map(Self::Auto),
            Some(("suffix", most)) => max(most).map(Self::Suffix),
            Some(("ngram", most)) => max(most).map(Self::Ngram),
            Some(("mtp", most)) => max(most).map(Self::Mtp),
            Some(("model", most)) => max(most).map(Self::Model),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Speculate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto(MAX_DRAFTED) => f.write_str("auto"),
            Self::Auto(max) => write!(f, "auto:{max}"),
            Self::Suffix(MAX_DRAFTED) => f.write_str("suffix"),
            Self::Suffix(max) => write!(f, "suffix:{max}"),
            Self::Ngram(max) => write!(f, "ngram:{max}"),
            Self::Mtp(MAX_DRAFTED) => f.write_str("mtp"),
            Self::Mtp(max) => write!(f, "mtp:{max}"),
            Self::Model(MAX_DRAFTED) => f.write_str("model"),
            Self::Model(max) => write!(f, "model:{max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_is_read_as_it_is_written() {
        let texts = ["off", "auto", "auto:4", "suffix", "suffix:3", "ngram:1", "mtp", "mtp:2"];
        for text in texts.into_iter().chain(["model", "model:3"]) {
            assert_eq!(text.parse::<Speculate>().unwrap().to_string(), text);
        }
        let wrong = ["", "on", "ngram", "ngram:", "ngram:0", "ngram:17", "ngram:-1", "suffix:0"];
        for text in wrong.into_iter().chain(["auto:0", "off:1", "suffix:", "mtp:17", "model:0"]) {
            assert!(text.parse::<Speculate>().is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_only_lower() {
        let bounded = |text: &str, max| text.parse::<Speculate>().unwrap().at_most(max).to_string();
        assert_eq!(bounded("auto", 16), "auto");
        assert_eq!(bounded("auto", 3), "auto:3");
        assert_eq!(bounded("suffix:2", 3), "suffix:2");
        assert_eq!(bounded("ngram:8", 3), "ngram:3");
        assert_eq!(bounded("ngram:8", 0), "off");
        assert_eq!(bounded("off", 9), "off");
    }
}
