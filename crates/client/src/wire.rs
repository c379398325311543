//! What several answers have in common: lists of bounded length, counts of tokens, and errors.
//!
//! Invariant: a list is not read beyond its maximum length: items in memory are larger than their
//! texts.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// Maximum size of an error in bytes that is read as JSON.
const MAX_PROBLEM: usize = 64 << 10;

/// Counts of tokens, which some servers leave out until the end.
#[derive(Debug, Deserialize)]
pub(super) struct WireUsage {
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    prompt_tokens_details: Option<WireDetails>,
}

#[derive(Debug, Deserialize)]
struct WireDetails {
    cached_tokens: Option<u64>,
}

impl WireUsage {
    /// Prompt tokens whose computation was reused, if the server counts them.
    pub fn cached_tokens(&self) -> Option<u64> {
        self.prompt_tokens_details.as_ref()?.cached_tokens
    }
}

/// What a server says of an error.
#[derive(Debug, Default)]
pub(super) struct ServerProblem {
    pub code: Option<String>,
    pub message: Option<String>,
}

impl ServerProblem {
    /// Reads the usual forms of errors in JSON: `error.message`, `error`, `message`, `detail`.
    pub fn read(body: &[u8]) -> Self {
        let json = (body.len() <= MAX_PROBLEM).then(|| serde_json::from_slice::<Value>(body));
        let Some(Ok(json)) = json else { return Self::default() };
        let error = json.get("error").unwrap_or(&json);
        let text = error["message"].as_str().or(error.as_str()).or(json["detail"].as_str());
        let code = match &error["code"] {
            Value::String(code) => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        };
        Self { code, message: text.map(str::to_owned) }
    }
}

/// Reads a list of at most `MAX` items. `null` is an empty one.
///
/// # Errors
/// If there are more items, or one of them is not of its type.
pub(super) fn at_most<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(AtMost::<MAX, T>(PhantomData))
}

struct AtMost<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for AtMost<MAX, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Three {
        #[serde(default, deserialize_with = "at_most::<3, _, _>")]
        list: Vec<u8>,
    }

    #[test]
    fn lists_are_bounded_and_may_be_missing() {
        let read = |text: &str| serde_json::from_str::<Three>(text).map(|three| three.list);
        assert_eq!(read(r#"{"list": [1, 2, 3]}"#).unwrap(), [1, 2, 3]);
        assert_eq!(read(r#"{"list": null}"#).unwrap(), [0; 0]);
        assert_eq!(read("{}").unwrap(), [0; 0]);
        let refused = read(r#"{"list": [1, 2, 3, 4]}"#).unwrap_err().to_string();
        assert!(refused.contains("at most 3 items"), "{refused}");
        assert!(read(r#"{"list": 1}"#).is_err());
    }
}
