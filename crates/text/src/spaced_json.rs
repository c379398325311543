//! JSON with the spaces that Python's `json.dumps` writes: chat templates write tools and calls so,
//! and models are trained on it.

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value};
use std::io::{Result, Write};

/// Writes `value` on one line, with a space after each comma and colon.
pub fn spaced_json(value: &Value) -> String {
    let mut out = Vec::new();
    let mut writer = Serializer::with_formatter(&mut out, Spaced);
    value.serialize(&mut writer).expect("JSON can be written to memory");
    String::from_utf8(out).expect("JSON is text")
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spaces_follow_commas_and_colons_outside_of_strings() {
        let value = json!({"a": [1, {"b": "c,d:e"}], "é": null, "empty": [[], {}]});
        let expected = r#"{"a": [1, {"b": "c,d:e"}], "é": null, "empty": [[], {}]}"#;
        assert_eq!(spaced_json(&value), expected);
    }
}
