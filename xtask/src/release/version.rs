//! Versions of three numbers.

use std::fmt;

/// A version: major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version([u64; 3]);

impl Version {
    /// Reads a version as it is written in a manifest.
    ///
    /// # Errors
    /// A text other than three numbers with dots between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = |part: &str| -> Option<u64> {
            // Neither signs nor zeros before a number, as semantic versions have it.
            let is_plain = part == "0" || !part.starts_with(['0', '+']);
            part.parse().ok().filter(|_| is_plain)
        };
        let numbers: Option<Vec<u64>> = text.split('.').map(number).collect();
        let wrong = || format!("expected a version such as 1.2.3, found {text}");
        numbers.and_then(|numbers| numbers.try_into().ok()).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number_and_shown_as_they_are_written() {
        let version = |text: &str| Version::parse(text).unwrap();
        assert!(version("0.9.9") < version("0.10.0") && version("0.10.0") < version("1.0.0"));
        assert_eq!(version("10.20.30").to_string(), "10.20.30");
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "1", "1.2", "1.2.3.4", "v1.2.3", "1.2.x", "1..3", "01.2.3", "+1.2.3"] {
            let error = Version::parse(text).unwrap_err();
            assert_eq!(error, format!("expected a version such as 1.2.3, found {text}"));
        }
    }
}
