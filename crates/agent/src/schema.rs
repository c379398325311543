//! JSON schemas as strict calls have them: every member is required, and none may be added.

use serde_json::{Map, Value, json};

/// An object with `members`, all of them required.
pub(crate) fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": false,
    })
}

/// A member of a type, `string`, `integer` or `boolean`, that must have a value.
pub(crate) fn member(kind: &str, description: &str) -> Value {
    json!({ "type": kind, "description": description })
}

/// A member whose value may be `null`.
pub(crate) fn nullable(kind: &str, description: &str) -> Value {
    json!({ "type": [kind, "null"], "description": description })
}
