//! Keywords of earlier drafts of JSON Schema in the words of later ones.

use serde_json::{Map, Value};
use std::borrow::Cow;

/// Returns a schema of draft 4, in which `exclusiveMinimum` says whether `minimum` is excluded, in
/// the words of later drafts.
pub(super) fn with_numeric_ends(object: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    let ends = [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")];
    if !ends.iter().any(|(excluded, _)| object.get(*excluded).is_some_and(Value::is_boolean)) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    for (excluded, end) in ends {
        match object.get(excluded) {
            Some(Value::Bool(false)) => drop(object.shift_remove(excluded)),
            Some(Value::Bool(true)) => match object.shift_remove(end) {
                Some(value) => drop(object.insert(excluded.into(), value)),
                None => drop(object.shift_remove(excluded)),
            },
            _ => {}
        }
    }
    Cow::Owned(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ends_of_draft_4_are_those_of_later_drafts() {
        let translated = |schema: Value, expected: Value| {
            let found = with_numeric_ends(schema.as_object().unwrap()).into_owned();
            assert_eq!(Value::Object(found), expected, "{schema}");
        };
        translated(
            json!({"minimum": 1, "exclusiveMinimum": true, "maximum": 2, "exclusiveMaximum": false}),
            json!({"exclusiveMinimum": 1, "maximum": 2}),
        );
        translated(json!({"exclusiveMinimum": true}), json!({}));
    }
}
