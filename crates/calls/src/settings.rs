//! Values of options, from JSON.
//!
//! Invariant: a value that is not what was expected is an error that says what was found.

use base::parse_size;
use serde_json::Value;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Most characters of a value that an error quotes.
const MAX_QUOTED: usize = 60;

/// A text.
pub(crate) fn text(value: &Value) -> Result<&str, String> {
    let found = value.as_str().filter(|text| !text.is_empty());
    found.ok_or_else(|| expected("a text", value))
}

/// A text that `T` is parsed from.
pub(crate) fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<T, String> {
    text(value)?.parse().map_err(|error: T::Err| error.to_string())
}

/// `true` or `false`.
pub(crate) fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| expected("true or false", value))
}

/// A whole number in `range`.
pub(crate) fn number(value: &Value, range: RangeInclusive<usize>) -> Result<usize, String> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        let (low, high) = range.into_inner();
        match high {
            usize::MAX => expected(&format!("a number from {low} on"), value),
            high => expected(&format!("a number from {low} to {high}"), value),
        }
    })
}

/// The number of things of which there is at least one.
pub(crate) fn count(value: &Value) -> Result<usize, String> {
    number(value, 1..=usize::MAX)
}

/// A number of bytes, or a size such as 4GiB.
pub(crate) fn size(value: &Value) -> Result<usize, String> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    match (value.as_str(), number) {
        (Some(text), _) => parse_size(text),
        (None, Some(number)) if number > 0 => Ok(number),
        _ => Err(expected("a size such as \"4GiB\", or a number of bytes", value)),
    }
}

/// As [`size`], or 0 for none.
pub(crate) fn size_or_none(value: &Value) -> Result<usize, String> {
    if value.as_u64() == Some(0) { Ok(0) } else { size(value) }
}

/// A time in seconds.
pub(crate) fn seconds(value: &Value) -> Result<Duration, String> {
    let time = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| expected("more than 0 seconds", value))
}

/// The message of a value that is not `what`.
pub(crate) fn expected(what: &str, value: &Value) -> String {
    format!("expected {what}, found {}", found(value))
}

/// A value as errors show it.
fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => {
            let text = scalar.to_string();
            match text.char_indices().nth(MAX_QUOTED) {
                Some((at, _)) => format!("{}…", &text[..at]),
                None => text,
            }
        }
    }
}
