//! The grammar of JSON for a checked schema.

use super::GrammarError;
use super::exact::{self, Condition};
use super::lark::with_form;
use super::matcher::plain;
use super::references::follow;
use llguidance::api::{GrammarWithLexer, ParserLimits};
use llguidance::{GrammarBuilder, JsonCompileOptions};
use serde_json::{Map, Value, json};

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
    if !object.contains_key("properties") && object.values().any(refers_to_root) {
        // Where references lead to the root, it may be any value.
        let mut inner = Value::Object(object);
        follow(&mut inner, true, &[("#".into(), "#/allOf/0".into())]);
        return Ok(json!({"type": "object", "allOf": [inner]}));
    }
    object.insert("type".into(), "object".into());
    Ok(Value::Object(object))
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

/// Begins messages about schemas that no value fits, here and in llguidance.
pub(super) const NO_VALUE: &str = "Unsatisfiable schema: no value fits";

/// The fault of a grammar that has no text.
pub(super) const NO_TEXT: &str = "expected a grammar that some text matches, found none";

#[cfg(test)]
mod tests {
    use super::*;

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
        let inner = json!({"anyOf": [{"type": "array", "items": {"$ref": "#/allOf/0"}}, {"type": "object"}]});
        check(nested, Some(json!({"type": "object", "allOf": [inner]})));
    }
}
