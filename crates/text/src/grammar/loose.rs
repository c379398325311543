//! Schemas without what cannot be enforced, part by part.

use super::error::GrammarError;
use super::json::is_contradiction;
use super::left_out::LeftOut;
use super::locate::with_definitions;
use super::references::{encoded, follow};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// Parts that are left out one by one; then the whole schema is.
const MAX_PARTS: usize = 24;
/// Time for the search of such parts.
const MAX_TIME: Duration = Duration::from_millis(1000);

/// Keywords in the order in which they are left out of a schema that does not compile, those first
/// that llguidance most often refuses; with each the keyword that would say more without it.
const WEAKENED: [(&str, &str); 21] = [
    ("pattern", ""),
    ("format", ""),
    ("multipleOf", ""),
    ("oneOf", ""),
    ("maxProperties", ""),
    ("minLength", ""),
    ("maxLength", ""),
    ("minItems", ""),
    ("maxItems", ""),
    ("minimum", ""),
    ("maximum", ""),
    ("exclusiveMinimum", ""),
    ("exclusiveMaximum", ""),
    ("enum", ""),
    ("const", ""),
    ("anyOf", ""),
    ("allOf", ""),
    ("$ref", ""),
    ("prefixItems", "items"),
    ("items", ""),
    ("properties", "additionalProperties"),
];

/// Leaves parts out of a checked schema, of which `left_out` is left out already, until it
/// compiles. `error_of` compiles a schema and names the part at fault.
///
/// # Errors
/// If no value fits the schema.
pub(super) fn loosened(
    mut schema: Value,
    mut left_out: Vec<LeftOut>,
    error_of: impl Fn(&Value) -> Option<GrammarError>,
) -> Result<(Value, Vec<LeftOut>), GrammarError> {
    let began = Instant::now();
    for _ in 0..MAX_PARTS {
        let (pointer, what) = match error_of(&schema) {
            None => return Ok((schema, left_out)),
            Some(GrammarError::Schema { pointer, what }) if !is_contradiction(&what) => {
                (pointer, what)
            }
            Some(error) => return Err(error),
        };
        if began.elapsed() > MAX_TIME {
            break;
        }
        left_out.push(weaken(&mut schema, pointer, what, &error_of));
    }
    let what = "expected fewer parts that cannot be enforced".to_owned();
    left_out.push(LeftOut { pointer: "#".into(), what });
    Ok((Value::Object(Map::new()), left_out))
}

/// Leaves one keyword out of the part at `pointer`, or all of them.
fn weaken(
    schema: &mut Value,
    pointer: String,
    what: String,
    error_of: &impl Fn(&Value) -> Option<GrammarError>,
) -> LeftOut {
    let whole = schema.as_object().cloned().unwrap_or_default();
    let place = pointer.strip_prefix('#').unwrap_or_default();
    let part = schema.pointer(place).and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, other) in WEAKENED.iter().filter(|(key, _)| part.contains_key(*key)) {
        let mut weaker = part.clone();
        weaker.shift_remove(*other);
        let options = weaker.shift_remove(*key).filter(|_| *key == "oneOf");
        if let Some(options) = options.filter(|_| !part.contains_key("anyOf")) {
            weaker.insert("anyOf".into(), options);
        }
        let weaker = Value::Object(weaker);
        if error_of(&with_definitions(&weaker, &whole)).is_some() {
            continue;
        }
        replace(schema, place, weaker);
        if *key == "oneOf" {
            let [from, to] = ["oneOf", "anyOf"].map(|key| format!("#{}/{key}", encoded(place)));
            follow(schema, &[(from, to)]);
        }
        let pointer = format!("{pointer}/{key}");
        return LeftOut { pointer, what };
    }
    replace(schema, place, Value::Object(Map::new()));
    LeftOut { pointer, what }
}

fn replace(schema: &mut Value, place: &str, with: Value) {
    if let Some(part) = schema.pointer_mut(place) {
        *part = with;
    }
}
