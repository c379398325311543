//! How long a model is to stay loaded: seconds, or Go's notation of durations.

use crate::http::error::HttpError;
use serde::Deserialize;
use utoipa::ToSchema;

/// Seconds or a duration such as `5m`; a negative one is for ever.
#[derive(Clone, Debug, Deserialize, PartialEq, ToSchema)]
#[serde(untagged, expecting = "expected a number of seconds or a duration such as \"5m\"")]
pub(crate) enum KeepAlive {
    Seconds(f64),
    Text(String),
}

/// Units by their names, in seconds. Longer names go before those they begin with.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Whether the model is to be unloaded at once.
pub(crate) fn unloads(keep_alive: Option<&KeepAlive>) -> Result<bool, HttpError> {
    let seconds = match keep_alive {
        None => return Ok(false),
        Some(KeepAlive::Seconds(seconds)) => Some(*seconds),
        Some(KeepAlive::Text(text)) => seconds(text),
    };
    let problem = "must be a number of seconds or a duration such as \"5m\"";
    seconds.map(|time| time == 0.0).ok_or_else(|| HttpError::member("keep_alive", problem))
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
    fn only_nothing_unloads() {
        let unloads = |keep: KeepAlive| unloads(Some(&keep)).ok();
        assert_eq!(unloads(KeepAlive::Seconds(0.0)), Some(true));
        assert_eq!(unloads(KeepAlive::Text("0s".into())), Some(true));
        assert_eq!(unloads(KeepAlive::Seconds(-1.0)), Some(false));
        assert_eq!(unloads(KeepAlive::Text("soon".into())), None);
    }
}
