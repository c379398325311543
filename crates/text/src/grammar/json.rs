//! The grammar of JSON for a checked schema.

use super::error::GrammarError;
use super::exact::{self, Condition};
use super::lark::with_form;
use super::matcher::plain;
use super::references::{encoded, rewrite};
use llguidance::api::{GrammarWithLexer, ParserLimits};
use llguidance::{GrammarBuilder, JsonCompileOptions};
use serde_json::{Map, Value};

/// Returns the error of compiling a schema that llguidance compiles alone.
pub(super) fn library_error(schema: Value) -> Option<String> {
    let builder = GrammarBuilder::new(None, ParserLimits::default());
    let compiled = JsonCompileOptions::default().json_to_llg(builder, schema);
    compiled.err().map(|error| plain(&error.to_string()))
}

/// Returns the grammar of JSON for a checked `schema`.
///
/// # Errors
/// If no value fits the schema, or a number cannot be expressed.
pub(super) fn json_grammar(schema: Value) -> Result<GrammarWithLexer, GrammarError> {
    if exact::is_exact(&schema) {
        return Ok(GrammarWithLexer::from_json_schema(with_form(schema)));
    }
    exact::grammar(&schema, &[Condition::Schema(&schema)])?
        .ok_or_else(|| GrammarError::Schema { pointer: "#".into(), what: NO_VALUE.into() })
}

/// Returns a checked schema of the objects that `schema` allows.
///
/// # Errors
/// If it allows none.
pub(super) fn of_objects(schema: Value) -> Result<Value, GrammarError> {
    let none = || GrammarError::Schema {
        pointer: "#".into(),
        what: format!("{NO_VALUE}, which must be an object"),
    };
    let mut object = match schema {
        Value::Object(object) => object,
        schema if schema == true => Map::new(),
        _ => return Err(none()),
    };
    match object.get("type") {
        Some(Value::String(name)) if name == "object" => return Ok(Value::Object(object)),
        Some(Value::Array(names)) if !names.iter().any(|name| name == "object") => {
            return Err(none());
        }
        Some(Value::String(_)) => return Err(none()),
        _ => {}
    }
    if object.values().any(refers_to_root) {
        object = with_root_defined(object);
    }
    object.insert("type".into(), "object".into());
    Ok(Value::Object(object))
}

/// Returns a schema in which references to the root lead to a definition that is as the root was:
/// there it may be any value.
fn with_root_defined(root: Map<String, Value>) -> Map<String, Value> {
    const NAME: &str = "#";
    let mut whole = Value::Object(root);
    let to = format!("#/$defs/{}", encoded(NAME));
    rewrite(&mut whole, true, &mut |from| if from == "#" { to.clone() } else { from.into() });
    let Value::Object(mut whole) = whole else { return Map::new() };
    let definitions = whole.shift_remove("$defs");
    let mut definitions = match definitions {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let mut copy = whole.clone();
    copy.shift_remove("definitions");
    definitions.insert(NAME.into(), Value::Object(copy));
    whole.insert("$defs".into(), Value::Object(definitions));
    whole
}

fn refers_to_root(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get("$ref").is_some_and(|to| to == "#") || object.values().any(refers_to_root)
        }
        Value::Array(list) => list.iter().any(refers_to_root),
        _ => false,
    }
}

/// Whether a checked schema says nothing about values.
pub(super) fn allows_anything(schema: &Value) -> bool {
    *schema == true || schema.as_object().is_some_and(Map::is_empty)
}

/// Begins messages about schemas that no value fits, here and in llguidance.
pub(super) const NO_VALUE: &str = "Unsatisfiable schema: no value fits";

/// The fault of a grammar that has no text.
pub(super) const NO_TEXT: &str = "expected a grammar that some text matches, found none";

/// Whether the fault of a schema is that no value fits it.
pub(super) fn is_contradiction(what: &str) -> bool {
    what.contains(NO_VALUE.split(':').next().unwrap_or_default()) || what == NO_TEXT
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_of_any_number_of_properties_may_have_large_numbers() {
        let large = json!({"type": "integer", "minimum": 9_007_199_254_740_993_u64});
        let properties: Map<String, Value> =
            (0..5000).map(|at| (format!("p{at}"), large.clone())).collect();
        let schema = json!({"type": "object", "properties": properties});
        assert!(!exact::is_exact(&schema));
        assert!(json_grammar(schema).is_ok());
    }

    #[test]
    fn schemas_of_objects_allow_nothing_else() {
        let check = |schema: Value, expected: Option<Value>| {
            assert_eq!(of_objects(schema.clone()).ok(), expected, "{schema}");
        };
        let object = || Some(json!({"type": "object"}));
        check(json!(true), object());
        check(json!({}), object());
        check(json!({"type": ["array", "object"]}), object());
        check(json!({"type": "array"}), None);
        check(json!(false), None);
        let nested =
            json!({"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "object"}]});
        let inner =
            json!([{"type": "array", "items": {"$ref": "#/$defs/%23"}}, {"type": "object"}]);
        let defs = json!({"#": {"anyOf": inner}});
        check(nested, Some(json!({"type": "object", "anyOf": inner, "$defs": defs})));
    }
}
