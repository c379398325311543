//! Worth of extents: the seconds that their uses saved, each decaying by half in six hours.
//!
//! All worths shrink alike between uses, so that their order does not depend on the time at which
//! it is asked for. The worth is kept as a time: that at which one use, saving one second per MiB,
//! would have given the same worth. This time is the file's time of modification: one number, which
//! all processes see, without a word to rewrite in the file.

/// Seconds in which the worth of a use decays by half.
const HALF_LIFE: f64 = 6.0 * 3600.0;
/// Nanoseconds of a second.
const NANOS: f64 = 1e9;
/// The least of the seconds per MiB that count.
const MIN_SAVED: f64 = 1e-6;

/// A worth, in nanoseconds since the Unix epoch.
pub(crate) type Worth = i64;

/// The worth of one use at the time `now`, in nanoseconds since the epoch, that saves `micros` of
/// computing for `bytes` of disk.
pub(crate) fn of_use(now: i64, micros: u64, bytes: u64) -> Worth {
    let mib = (bytes.max(1)) as f64 / f64::from(1 << 20);
    let saved = (micros as f64 / 1e6 / mib).max(MIN_SAVED);
    now.saturating_add((HALF_LIFE * saved.log2() * NANOS) as i64)
}

/// The worth of both uses together.
pub(crate) fn add(one: Worth, other: Worth) -> Worth {
    let apart = one.abs_diff(other) as f64 / NANOS / HALF_LIFE;
    // log2(2^a + 2^b) = max + log2(1 + 2^-|a - b|), where nothing overflows.
    let more = HALF_LIFE * (-apart).exp2().ln_1p() / std::f64::consts::LN_2;
    one.max(other).saturating_add((more * NANOS) as i64)
}

/// The seconds per MiB that a worth stands for at the time `now`.
pub(crate) fn seconds_at(worth: Worth, now: i64) -> f64 {
    ((worth.saturating_sub(now)) as f64 / NANOS / HALF_LIFE).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;
    const NOW: i64 = 1_790_000_000_000_000_000;

    #[test]
    fn one_second_per_mebibyte_is_worth_the_time_of_its_use() {
        assert_eq!(of_use(NOW, 4_000_000, 4 << 20), NOW);
        assert_eq!(of_use(NOW, 8_000_000, 4 << 20), NOW + 6 * HOUR);
        assert_eq!(of_use(NOW, 1_000_000, 4 << 20), NOW - 12 * HOUR);
        assert_eq!(seconds_at(NOW, NOW), 1.0);
        assert_eq!(seconds_at(NOW, NOW + 6 * HOUR), 0.5);
        // Nothing computed, and nothing stored.
        assert!(of_use(NOW, 0, 1 << 40) < NOW && of_use(NOW, u64::MAX, 0) > NOW);
    }

    #[test]
    fn uses_add_up_as_the_sum_of_decayed_seconds() {
        // (hours before now, seconds per MiB)
        let uses = [(60, 3.0), (31, 0.2), (7, 0.01), (2, 5.0), (0, 0.5)];
        let direct: f64 =
            uses.iter().map(|&(hours, saved)| saved * (-f64::from(hours) / 6.0).exp2()).sum();
        let use_of = |&(hours, saved): &(i32, f64)| {
            of_use(NOW - i64::from(hours) * HOUR, (saved * 1e6) as u64, 1 << 20)
        };
        let sum = uses.iter().map(use_of).reduce(add).unwrap();
        let reversed = uses.iter().rev().map(use_of).reduce(add).unwrap();
        assert!((seconds_at(sum, NOW) / direct - 1.0).abs() < 1e-6, "{direct}");
        assert!((sum - reversed).abs() < 1000);
    }

    #[test]
    fn sums_of_far_apart_worths_are_stable() {
        assert_eq!(add(NOW, i64::MIN), NOW);
        assert_eq!(add(i64::MAX, i64::MAX), i64::MAX);
        assert_eq!(add(NOW, NOW), NOW + 6 * HOUR);
        assert!(seconds_at(NOW, i64::MAX) >= 0.0);
    }
}
