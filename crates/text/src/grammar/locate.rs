//! Search for the smallest part of a schema that does not compile on its own.

use super::error::GrammarError;
use super::references::escaped;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// Time for the search; after that, a larger part is named.
const MAX_TIME: Duration = Duration::from_millis(200);

/// Returns the error of a checked `schema` that fails with `what`; `error_of` compiles a part.
pub(super) fn located(
    schema: &Value,
    what: String,
    error_of: impl Fn(Value) -> Option<String>,
) -> GrammarError {
    let began = Instant::now();
    let none = Map::new();
    let whole = schema.as_object().unwrap_or(&none);
    let (mut part, mut pointer, mut what) = (schema, "#".to_owned(), what);
    loop {
        let fault = children(part).into_iter().find_map(|(place, child)| {
            let late = began.elapsed() > MAX_TIME;
            let error = if late { None } else { error_of(with_definitions(child, whole)) };
            Some((place, child, error?))
        });
        let Some((place, child, inner)) = fault else {
            return GrammarError::Schema { pointer, what };
        };
        pointer = format!("{pointer}/{place}");
        (part, what) = (child, inner);
    }
}

/// Returns the direct subschemas and their places.
fn children(schema: &Value) -> Vec<(String, &Value)> {
    let mut children = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                let place = |name: &str| format!("{key}/{}", escaped(name));
                children.extend(named.iter().map(|(name, child)| (place(name), child)));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                let place = |at: usize| format!("{key}/{at}");
                children.extend(list.iter().enumerate().map(|(at, child)| (place(at), child)));
            }
            ("items" | "additionalProperties", _) => children.push((key.clone(), value)),
            _ => {}
        }
    }
    // Schemas that are true or false always compile.
    children.retain(|(_, child)| child.is_object());
    children
}

/// Returns a part of a schema with the definitions of the whole.
pub(super) fn with_definitions(part: &Value, whole: &Map<String, Value>) -> Value {
    let Value::Object(part) = part else { return part.clone() };
    let mut part = part.clone();
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = whole.get(key) {
            part.entry(key).or_insert_with(|| definitions.clone());
        }
    }
    Value::Object(part)
}
