//! How a request has its next tokens drafted.

use std::str::FromStr;

/// Maximum number of drafted tokens per sequence and step.
pub const MAX_DRAFTED: usize = 16;

/// How the next tokens of a request are drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Speculate {
    /// Not at all.
    Off,
    /// Up to this many tokens that followed the last tokens at their previous occurrence (prompt
    /// lookup: Saxena, 2023).
    Ngram(usize),
}

impl Speculate {
    /// Maximum number of drafted tokens per step.
    pub fn max(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Ngram(max) => max,
        }
    }
}

impl FromStr for Speculate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected off or ngram:1 to ngram:{MAX_DRAFTED}, found {text:?}");
        if text == "off" {
            return Ok(Self::Off);
        }
        let max = text.strip_prefix("ngram:").and_then(|max| max.parse().ok());
        match max.ok_or_else(wrong)? {
            max @ 1..=MAX_DRAFTED => Ok(Self::Ngram(max)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Speculate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Ngram(max) => write!(f, "ngram:{max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_is_read_as_it_is_written() {
        for text in ["off", "ngram:1", "ngram:16"] {
            assert_eq!(text.parse::<Speculate>().unwrap().to_string(), text);
        }
        for text in ["", "on", "ngram", "ngram:", "ngram:0", "ngram:17", "ngram:-1"] {
            assert!(text.parse::<Speculate>().is_err(), "{text}");
        }
    }
}
