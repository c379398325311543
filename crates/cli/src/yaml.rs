//! YAML files whose scalars keep the spelling of the file.
//!
//! YAML reads `off` as false, `1.10` as 1.1 and `0o660` as 432. What a value of a setting means is
//! for its flag to say, which takes a text.

use anyhow::{Result, anyhow};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{NonFiniteFloatPolicy, Options, UserMessageFormatter};
use std::fmt;

/// Parses a document. Its scalars are texts as they are spelt, except nulls; an empty document is
/// null.
///
/// # Errors
///
/// What is wrong with the document, and where.
pub(crate) fn parse(text: &str) -> Result<Value> {
    let problem = |error: serde_saphyr::Error| {
        anyhow!("{}", error.without_snippet().render_with_formatter(&UserMessageFormatter))
    };
    // Which values are lists, maps and nulls.
    let shape: Value = serde_saphyr::from_str_with_options(text, options()).map_err(problem)?;
    if shape.is_null() {
        return Ok(shape);
    }
    let spelt = |document: serde_saphyr::Deserializer<'_, '_>| Spelt(&shape).deserialize(document);
    serde_saphyr::with_deserializer_from_str_with_options(text, options(), spelt).map_err(problem)
}

fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
    }
}

/// Reads a value of this shape with the spelling of its scalars.
struct Spelt<'a>(&'a Value);

impl<'de> DeserializeSeed<'de> for Spelt<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.0 {
            Value::Null => from.deserialize_unit(self),
            Value::Array(_) => from.deserialize_seq(self),
            Value::Object(_) => from.deserialize_map(self),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => from.deserialize_str(self),
        }
    }
}

impl<'de> Visitor<'de> for Spelt<'_> {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the same value again")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        for shape in self.0.as_array().into_iter().flatten() {
            values.extend(list.next_element_seed(Spelt(shape))?);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let shape = self.0.get(&key).ok_or_else(|| A::Error::custom("the key has changed"))?;
            values.insert(key, map.next_value_seed(Spelt(shape))?);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, expected: &Value) {
        assert_eq!(&parse(text).unwrap(), expected, "{text}");
    }

    #[test]
    fn scalars_keep_their_spelling() {
        for text in [
            "off",
            "yes",
            "True",
            "0o660",
            "0123",
            "1_000",
            "0x1234",
            "1e5",
            "1.10",
            "1e999",
            "12345678901234567890123",
            "-.inf",
            ".nan",
            "2026-01-02",
            "::1",
            "a b",
        ] {
            check(&format!("a: {text}"), &json!({ "a": text }));
            check(&format!("a: [{text}, \"{text}\"]"), &json!({ "a": [text, text] }));
        }
        check("- {a: 1.0, b: [no]}\n- ~\n", &json!([{ "a": "1.0", "b": ["no"] }, null]));
        check("a: &x 1.0\nb: *x\n", &json!({ "a": "1.0", "b": "1.0" }));
        check("a: |\n  1.0\n  2\nb: ''\n", &json!({ "a": "1.0\n2\n", "b": "" }));
        check("# nothing\n\n", &Value::Null);
        check("", &Value::Null);
    }

    #[test]
    fn problems_have_places_and_no_advice_for_programmers() {
        for (text, expected) in [
            ("a: 1\na: 2\n", "duplicate mapping key: a not allowed here"),
            ("a: 1\n---\nb: 2\n", "only single YAML document expected"),
            ("a: 1\nb: [\n", "line "),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("line "), "{error}");
            assert!(!error.contains('\n') && !error.contains("<input>"), "{error}");
        }
    }
}
