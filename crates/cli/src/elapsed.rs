//! Time since a moment that a file names.

use std::time::{Duration, SystemTime};

/// The time since these seconds after the Unix epoch; `None` of times to come.
pub(crate) fn passed_since(seconds: u64) -> Option<Duration> {
    let then = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    SystemTime::now().duration_since(then).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_come_have_not_passed() {
        for seconds in [u64::MAX, i64::MAX as u64, u64::MAX / 2, 1 << 40] {
            assert_eq!(passed_since(seconds), None, "{seconds}");
        }
        assert!(passed_since(0).unwrap() > Duration::from_secs(1_700_000_000));
    }
}
