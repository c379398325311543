//! References within a schema, as JSON pointers in a fragment.

use serde_json::Value;

/// Returns a name as it is written in a JSON pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Whether a schema has a reference.
pub(super) fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => object.contains_key("$ref") || object.values().any(has_reference),
        Value::Array(list) => list.iter().any(has_reference),
        _ => false,
    }
}

/// Lets references follow subschemas to their new places. `keywords` says whether the members of an
/// object are keywords, not the names of subschemas.
pub(super) fn follow(schema: &mut Value, keywords: bool, renamed: &[(String, String)]) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(|value| follow(value, true, renamed)),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match (key.as_str(), value) {
                    // Values, in which a reference is a text like any other.
                    ("const" | "enum", _) if keywords => {}
                    ("$ref", Value::String(pointer)) if keywords => {
                        *pointer = moved(pointer, renamed);
                    }
                    ("$defs" | "definitions" | "properties", value) if keywords => {
                        follow(value, false, renamed);
                    }
                    (_, value) => follow(value, true, renamed),
                }
            }
        }
        _ => {}
    }
}

fn moved(pointer: &str, renamed: &[(String, String)]) -> String {
    renamed.iter().fold(pointer.to_owned(), |pointer, (from, to)| {
        match pointer.strip_prefix(&**from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
            _ => pointer,
        }
    })
}
