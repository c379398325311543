//! Metadata of GGUF files, as JSON and as text.

use formats::gguf::{GgufFile, Value};
use serde_json::{Value as Json, json};

/// Maximum length of a shown text in characters.
const MAX_CHARACTERS: usize = 100;

/// All metadata as JSON.
pub(super) fn metadata_json(gguf: &GgufFile) -> Json {
    let entry = |(key, value): (&str, &Value)| (key.to_owned(), value_json(value));
    Json::Object(gguf.metadata().iter().map(entry).collect())
}

/// A value as JSON. Of arrays only the length: a vocabulary has hundreds of thousands of entries.
fn value_json(value: &Value) -> Json {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => float(*v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Array(array) => json!({"array": array.element(), "length": array.len()}),
    }
}

/// An f32 with its shortest digits, not those of its f64.
pub(super) fn float(value: f32) -> Json {
    value.to_string().parse::<f64>().map_or(Json::Null, |value| json!(value))
}

/// A metadata value on one line.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        Value::Array(array) => format!("{} x {}", array.len(), array.element()),
        other => value_json(other).to_string(),
    }
}

/// Text from a file without control characters and of bounded length.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_CHARACTERS).flat_map(printable).collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = (!c.is_control()).then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_files_is_shown_on_one_line_and_bounded() {
        assert_eq!(shown("a\n\u{1b}[1mb"), "a\\n\\u{1b}[1mb");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), MAX_CHARACTERS + 1);
    }
}
