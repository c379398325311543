//! How long a model without requests stays loaded.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long a model without requests stays loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// This time after its last request; zero to unload it when that has ended.
    For(Duration),
    /// Until the server ends.
    Forever,
}

/// Units by their names, in seconds. Longer names go before those they begin with.
const UNITS: [(&str, f64); 9] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

impl KeepAlive {
    /// Not longer than its requests.
    pub const NOT: Self = Self::For(Duration::ZERO);

    /// The time of so many seconds; a negative number is for ever.
    pub fn of_seconds(seconds: f64) -> Option<Self> {
        match seconds {
            _ if seconds.is_nan() => None,
            ..0.0 => Some(Self::Forever),
            // More than the clock can count is for ever too.
            _ => Some(Duration::try_from_secs_f64(seconds).map_or(Self::Forever, Self::For)),
        }
    }
}

impl FromStr for KeepAlive {
    type Err = String;

    /// Parses numbers with their units, such as `1h30m`, or a number of seconds alone, as Go writes
    /// durations; days are an extension.
    fn from_str(text: &str) -> Result<Self, String> {
        seconds(text).and_then(Self::of_seconds).ok_or_else(|| {
            "expected a number of seconds or a duration such as \"5m\", negative for ever"
                .to_owned()
        })
    }
}

impl fmt::Display for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => write!(f, "{}s", time.as_secs_f64()),
            Self::Forever => f.write_str("-1"),
        }
    }
}

/// The seconds of a duration: numbers with their units, or a number alone.
fn seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    if let Ok(number) = rest.parse::<f64>() {
        return number.is_finite().then_some(sign * number);
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let (name, unit) = UNITS.iter().find(|(name, _)| rest[digits..].starts_with(name))?;
        sum += number * unit;
        rest = &rest[digits + name.len()..];
    }
    Some(sign * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<f64>) {
        assert_eq!(seconds(text), expected, "{text}");
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        check("5m", Some(300.0));
        check("1h30m", Some(5400.0));
        check("1.5h", Some(5400.0));
        check("250ms", Some(0.25));
        check("2d", Some(172_800.0));
        check("-1m", Some(-60.0));
        check("-1", Some(-1.0));
        check("0", Some(0.0));
        check("0s", Some(0.0));
        check("3600", Some(3600.0));
        for wrong in ["", "-", "m", "5 m", "5x", "5m3", "1e999", "nan", "µ", "5é", ".s"] {
            check(wrong, None);
        }
    }

    #[test]
    fn negative_times_are_for_ever() {
        let parse = |text: &str| text.parse::<KeepAlive>().ok();
        assert_eq!(parse("-1"), Some(KeepAlive::Forever));
        assert_eq!(parse("-5m"), Some(KeepAlive::Forever));
        assert_eq!(parse("0"), Some(KeepAlive::For(Duration::ZERO)));
        assert_eq!(parse("1e300"), Some(KeepAlive::Forever));
        assert_eq!(parse("soon"), None);
        let time = KeepAlive::For(Duration::from_millis(1500));
        assert_eq!((time.to_string().parse(), parse("-1")), (Ok(time), Some(KeepAlive::Forever)));
    }
}
