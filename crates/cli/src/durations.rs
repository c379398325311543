//! Times as people write them.

use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Parses seconds such as 30 or 0.5.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().context("expected a number of seconds")?;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.context("expected more than 0 seconds")
}

/// Parses an age such as 7d.
pub(crate) fn age(text: &str) -> Result<Duration> {
    let wrong = || format!("expected an age such as 90m, 12h or 7d, found {text:?}");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).with_context(wrong)?;
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => bail!(wrong()),
    };
    let number: f64 = number.parse().with_context(wrong)?;
    Duration::try_from_secs_f64(number * seconds).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_more_than_nothing() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for text in ["0", "-1", "x", "nan", "1e40"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_have_units() {
        let seconds = |text| age(text).map(|age| age.as_secs());
        for (text, expected) in [("90m", 5400), ("12h", 43200), ("7d", 604_800), ("1.5s", 1)] {
            assert_eq!(seconds(text).unwrap(), expected);
        }
        for wrong in ["", "d", "7", "7 weeks", "-1d", "nand", "1e300d", "7é"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
