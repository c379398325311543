//! Members of requests that are not supported and would change the prompt or the answer: they are
//! refused by name, unless they have a value that changes nothing.

use crate::http::error::HttpError;
use serde_json::Value;

/// A member, and whether a value of it changes nothing.
pub(crate) type Unsupported = (&'static str, fn(&Value) -> bool);

/// Refuses a body in which one of `members` asks for something.
pub(crate) fn refuse(body: &Value, members: &[Unsupported]) -> Result<(), HttpError> {
    let asks = |(name, is_off): &&Unsupported| body.get(*name).is_some_and(|it| !is_off(it));
    match members.iter().find(asks) {
        Some((name, _)) => Err(HttpError::member(name, "is not supported")),
        None => Ok(()),
    }
}

/// Whether a value is `null`, `false` or an empty array.
pub(crate) fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}

/// Whether a value is off, or 0.
pub(crate) fn is_zero(value: &Value) -> bool {
    is_off(value) || value.as_f64() == Some(0.0)
}

/// Whether a value is `null` or 1.
pub(crate) fn is_one(value: &Value) -> bool {
    value.is_null() || value.as_f64() == Some(1.0)
}

/// Whether a value is `null` or `true`.
pub(crate) fn is_on(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(true))
}

/// Whether a value is `null` or one of `words`, in whatever case.
pub(crate) fn is_word(value: &Value, words: &[&str]) -> bool {
    let is_among = |word: &str| words.iter().any(|one| word.eq_ignore_ascii_case(one));
    value.is_null() || value.as_str().is_some_and(is_among)
}
