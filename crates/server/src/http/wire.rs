//! Deserializing requests into the types that the OpenAPI document is made from. A member that is
//! `null` counts as absent, unknown members are ignored, and a member of a wrong type is an error
//! that names its path. Of a member whose field begins with `_` the type is checked and no more.

mod strict;

use self::strict::{Strict, StrictError, joined};
use crate::http::error::HttpError;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What can be read from the members of a body.
pub(crate) trait FromBody: Sized {
    /// Reads `body`, which is an object.
    fn from_body(body: &Value) -> Result<Self, HttpError>;
}

impl<T: DeserializeOwned> FromBody for T {
    fn from_body(body: &Value) -> Result<Self, HttpError> {
        part(body, "")
    }
}

/// Declares a body of several parts, whose members stand next to each other: the members unknown
/// to one part are those of another.
macro_rules! body {
    ($(#[$about:meta])* $vis:vis struct $Body:ident {
        $($seen:vis $part:ident: $Part:ty),+ $(,)?
    }) => {
        #[derive(Debug, utoipa::ToSchema)]
        $(#[$about])*
        $vis struct $Body {
            $(#[serde(flatten)] $seen $part: $Part),+
        }

        impl $crate::http::wire::FromBody for $Body {
            fn from_body(body: &serde_json::Value) -> Result<Self, $crate::http::error::HttpError> {
                Ok(Self { $($part: $crate::http::wire::FromBody::from_body(body)?),+ })
            }
        }
    };
}
pub(crate) use body;

/// Reads a body.
pub(crate) fn read<T: FromBody>(body: &Value) -> Result<T, HttpError> {
    match body.is_object() {
        true => T::from_body(body),
        false => Err(HttpError::invalid("", "the body must be a JSON object")),
    }
}

/// The value at the path `at` of the body, as a `T`.
pub(crate) fn part<T: DeserializeOwned>(value: &Value, at: &str) -> Result<T, HttpError> {
    T::deserialize(Strict(value)).map_err(|error| refused(error, at))
}

/// The error of a value at the path `at`.
fn refused(error: StrictError, at: &str) -> HttpError {
    let path = joined(at, &error.path);
    let message = in_json_words(error.message);
    if let Some(name) = absent(&message) {
        return missing(&joined(&path, name));
    }
    let message = if path.is_empty() { message } else { format!("{path}: {message}") };
    HttpError::invalid(path, message)
}

/// `message` without the name of a type of this program at its end.
fn in_json_words(message: String) -> String {
    match message.rsplit_once(", expected struct ") {
        Some((problem, name)) if name.chars().all(char::is_alphanumeric) => {
            format!("{problem}, expected an object")
        }
        _ => message,
    }
}

/// The member that serde's `message` of a missing field names.
fn absent(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// A JSON object, by the name that descriptions have for it.
pub(crate) type Object = Map<String, Value>;

/// One text or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of strings")]
pub(crate) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    /// All of them.
    pub fn all(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// The error of a member at `path` that is not there.
pub(crate) fn missing(path: &str) -> HttpError {
    HttpError::member(path, "is missing")
}

/// A value as `serde_json` reads it, which does not take `3.0` for an integer. For
/// `#[serde(default, deserialize_with = "wire::exact")]`.
pub(crate) fn exact<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<T, D::Error> {
    T::deserialize(Value::deserialize(from)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Outer {
        n: Option<usize>,
        inner: Option<Inner>,
    }

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Inner {
        flag: Option<bool>,
        word: Option<Word>,
    }

    #[derive(serde::Deserialize, Debug, PartialEq)]
    enum Word {
        Yes,
    }

    #[derive(serde::Deserialize, Debug, ToSchema)]
    struct First {
        a: bool,
    }

    #[derive(serde::Deserialize, Debug, ToSchema)]
    struct Second {
        b: u32,
    }

    body! {
        struct Both {
            first: First,
            second: Second,
        }
    }

    #[test]
    fn parts_of_a_body_are_read_from_the_same_members() {
        let both: Both = read(&json!({"b": 1, "a": true, "c": 2})).unwrap();
        assert_eq!((both.first.a, both.second.b), (true, 1));
        let error = |body: Value| read::<Both>(&body).unwrap_err().body()["error"]["param"].take();
        assert_eq!(error(json!({"a": true, "b": "x"})), "b");
        assert_eq!(error(json!({"b": 1})), "a");
        assert_eq!(error(json!([])), Value::Null);
    }

    #[test]
    fn null_is_absent_and_unknown_members_are_ignored() {
        let read: Outer = read(&json!({"n": null, "inner": {"flag": null, "x": 1}})).unwrap();
        assert_eq!(read, Outer { n: None, inner: Some(Inner { flag: None, word: None }) });
    }

    fn check_error(body: Value, param: &str) {
        let error = read::<Outer>(&body).expect_err(&body.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{body}");
    }

    #[test]
    fn wrong_types_name_their_path() {
        check_error(json!({"inner": {"flag": 3}}), "inner.flag");
        check_error(json!({"n": -1}), "n");
        check_error(json!({"n": 1.5}), "n");
        assert_eq!(read::<Outer>(&json!({"n": 3.0})).unwrap().n, Some(3));
        assert!(read::<Outer>(&json!([])).is_err());
    }

    #[test]
    fn arrays_are_no_objects_and_objects_are_no_words() {
        check_error(json!({"inner": [true, "Yes"]}), "inner");
        check_error(json!({"inner": {"word": {"Yes": null}}}), "inner.word");
        assert_eq!(part::<Word>(&json!("Yes"), "word").unwrap(), Word::Yes);
    }

    #[test]
    fn types_have_the_names_of_json() {
        for wrong in [json!(false), json!([]), json!("a, expected struct B")] {
            let error = part::<Inner>(&wrong, "all").unwrap_err().body();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.ends_with(", expected an object"), "{message}");
        }
    }

    #[test]
    fn parts_are_named_from_the_whole_body() {
        let error = part::<Vec<Outer>>(&json!([{"n": "x"}]), "all").unwrap_err();
        assert_eq!(error.body()["error"]["param"], "all[0].n");
        let error = part::<Inner>(&json!({"flag": 1}), "all").unwrap_err();
        assert_eq!(error.body()["error"]["param"], "all.flag");
        let error = part::<Inner>(&json!(3), "all").unwrap_err();
        assert_eq!(error.body()["error"]["param"], "all");
    }
}
