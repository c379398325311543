//! Checks of JSON schemas before compilation: a schema with an unknown keyword is an error.
//!
//! The keywords are a subset of draft 2020-12. Annotations (titles, defaults) are dropped. A
//! keyword that the compiler would ignore or misread is an error that names its position.

use super::GrammarError;
use llguidance::api::GrammarWithLexer;
use serde_json::{Map, Value, json};

/// Bounds of a schema.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 20_000;
const MAX_COUNT: u64 = 100_000;
const MAX_TEXT: usize = 4096;

/// The kind of value that a keyword has.
#[derive(Clone, Copy, PartialEq)]
enum KeywordKind {
    /// An annotation.
    Note,
    Schema,
    Schemas,
    SchemasByName,
    Reference,
    Types,
    Names,
    Count,
    Number,
    Text,
    Value,
    Values,
    /// Must be false or missing.
    Never,
    /// Must be empty or missing.
    Empty,
}

/// The keywords of each kind.
const KEYWORDS: [(KeywordKind, &[&str]); 15] = [
    (KeywordKind::Note, &["title", "description", "default", "examples", "example", "deprecated"]),
    (
        KeywordKind::Note,
        &["readOnly", "writeOnly", "contentMediaType", "contentEncoding", "$comment", "$schema"],
    ),
    (KeywordKind::SchemasByName, &["$defs", "definitions", "properties"]),
    (KeywordKind::Schema, &["additionalProperties", "items"]),
    (KeywordKind::Schemas, &["prefixItems", "anyOf", "oneOf", "allOf"]),
    (KeywordKind::Reference, &["$ref"]),
    (KeywordKind::Types, &["type"]),
    (KeywordKind::Names, &["required"]),
    (KeywordKind::Value, &["const"]),
    (KeywordKind::Values, &["enum"]),
    (
        KeywordKind::Count,
        &["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"],
    ),
    (
        KeywordKind::Number,
        &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
    ),
    (KeywordKind::Text, &["pattern", "format"]),
    (KeywordKind::Never, &["uniqueItems", "nullable"]),
    (
        KeywordKind::Empty,
        &["patternProperties", "dependentRequired", "dependentSchemas", "dependencies"],
    ),
];

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Returns `schema` without annotations.
///
/// # Errors
/// If the schema is malformed, too large, or has a keyword that is not supported.
pub(super) fn checked(schema: &Value) -> Result<Value, GrammarError> {
    let mut walk = Walk { place: vec!["#".into()], nodes: 0 };
    walk.schema(schema)
}

struct Walk {
    place: Vec<String>,
    nodes: usize,
}

type Checked = Result<Value, GrammarError>;

impl Walk {
    fn schema(&mut self, schema: &Value) -> Checked {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return self.wrong(format!("expected at most {MAX_NODES} subschemas, found more"));
        }
        if self.place.len() > 2 * MAX_DEPTH {
            return self.wrong(format!("expected at most {MAX_DEPTH} levels, found more"));
        }
        match schema {
            Value::Bool(_) => Ok(schema.clone()),
            Value::Object(object) => self.object(object),
            other => self.expected("a schema", other),
        }
    }

    fn object(&mut self, object: &Map<String, Value>) -> Checked {
        let mut kept = Map::new();
        for (key, value) in object {
            self.place.push(escaped(key));
            if let Some(value) = self.keyword(key, value)? {
                kept.insert(key.clone(), value);
            }
            self.place.pop();
        }
        // Additional properties may repeat a name, so only required ones can be counted.
        let required = object.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
        let least = object.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        if least > required {
            return self.wrong(format!(
                "minProperties is {least}, but can be at most the number of required properties, {required}"
            ));
        }
        kept.remove("minProperties");
        Ok(Value::Object(kept))
    }

    /// Returns the checked value of a keyword, `None` for an annotation.
    fn keyword(&mut self, key: &str, value: &Value) -> Result<Option<Value>, GrammarError> {
        let root = self.place.len() == 2;
        let kind = KEYWORDS.iter().find(|(_, names)| names.contains(&key)).map(|(kind, _)| *kind);
        match kind {
            None if root && key == "$id" => Ok(None),
            None if key.starts_with("x-") && key != "x-guidance" => Ok(None),
            None => self.wrong("this keyword is not supported".into()),
            Some(KeywordKind::Note) => Ok(None),
            Some(KeywordKind::Never) => match value {
                Value::Bool(false) => Ok(None),
                _ => self.wrong("this keyword is not supported".into()),
            },
            Some(KeywordKind::Empty) => match value.as_object() {
                Some(object) if object.is_empty() => Ok(None),
                _ => self.wrong("this keyword is not supported".into()),
            },
            Some(KeywordKind::Schema) => self.schema(value).map(Some),
            Some(KeywordKind::Schemas) => self.schemas(value).map(Some),
            Some(KeywordKind::SchemasByName) => self.schemas_by_name(value).map(Some),
            Some(kind) => self.plain(kind, value).map(Some),
        }
    }

    fn schemas(&mut self, value: &Value) -> Checked {
        let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
            return self.expected("an array of schemas", value);
        };
        let mut checked = Vec::new();
        for (at, schema) in list.iter().enumerate() {
            self.place.push(at.to_string());
            checked.push(self.schema(schema)?);
            self.place.pop();
        }
        Ok(Value::Array(checked))
    }

    fn schemas_by_name(&mut self, value: &Value) -> Checked {
        let Some(object) = value.as_object() else {
            return self.expected("an object of schemas", value);
        };
        let mut checked = Map::new();
        for (name, schema) in object {
            self.place.push(escaped(name));
            checked.insert(name.clone(), self.schema(schema)?);
            self.place.pop();
        }
        Ok(Value::Object(checked))
    }

    /// Checks a value that holds no schema.
    fn plain(&mut self, kind: KeywordKind, value: &Value) -> Checked {
        let of_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
        let short = |value: &Value| value.as_str().is_some_and(|text| text.len() <= MAX_TEXT);
        let all = |check: &dyn Fn(&Value) -> bool| {
            value.as_array().is_some_and(|list| list.iter().all(check))
        };
        let (expected, found): (String, bool) = match kind {
            KeywordKind::Reference => (
                "a reference into this schema, such as #/$defs/name".into(),
                value.as_str().is_some_and(|to| to == "#" || to.starts_with("#/")),
            ),
            KeywordKind::Types => {
                let list = value.as_array().is_some_and(|list| !list.is_empty()) && all(&of_type);
                (format!("one or more of {}", TYPES.join(", ")), of_type(value) || list)
            }
            KeywordKind::Names => ("an array of names".into(), all(&Value::is_string)),
            KeywordKind::Count => (
                format!("a whole number up to {MAX_COUNT}"),
                value.as_u64().is_some_and(|count| count <= MAX_COUNT),
            ),
            KeywordKind::Number => ("a number".into(), value.is_number()),
            KeywordKind::Text => (format!("a text of at most {MAX_TEXT} bytes"), short(value)),
            KeywordKind::Values => {
                let some = value.as_array().is_some_and(|list| !list.is_empty());
                ("an array of values".into(), some)
            }
            _ => (String::new(), true),
        };
        self.nodes += value.as_array().map_or(0, Vec::len);
        if found { Ok(value.clone()) } else { self.expected(&expected, value) }
    }

    fn expected<T>(&self, expected: &str, found: &Value) -> Result<T, GrammarError> {
        let mut found = found.to_string();
        if found.chars().count() > 60 {
            found = found.chars().take(57).chain("...".chars()).collect();
        }
        self.wrong(format!("expected {expected}, found {found}"))
    }

    fn wrong<T>(&self, what: String) -> Result<T, GrammarError> {
        Err(GrammarError::Schema { pointer: self.place.join("/"), what })
    }
}

/// Returns the grammar of JSON for `schema`. One space may follow `,` and `:`, and no other white
/// space stands between values: models that are free to add line breaks add them without end.
pub(super) fn json_grammar(mut schema: Value) -> GrammarWithLexer {
    let form =
        json!({"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": false});
    match &mut schema {
        Value::Object(object) => {
            object.insert("x-guidance".into(), form);
        }
        other => *other = json!({"allOf": [other.take()], "x-guidance": form}),
    }
    GrammarWithLexer::from_json_schema(schema)
}

/// Returns a name as it is written in a JSON pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, message: &str) {
        assert_eq!(checked(&schema).unwrap_err().to_string(), message, "{schema}");
    }

    #[test]
    fn unsupported_schemas_are_an_error_that_names_its_place() {
        let no = |place: &str| format!("schema at #/{place}: this keyword is not supported");
        check(json!({"not": {}}), &no("not"));
        check(json!({"properties": {"a/b": {"if": {}}}}), &no("properties/a~1b/if"));
        check(json!({"anyOf": [true, {"uniqueItems": true}]}), &no("anyOf/1/uniqueItems"));
        check(json!({"patternProperties": {"a": {}}}), &no("patternProperties"));
        check(json!({"items": {"$id": "http://x"}}), &no("items/$id"));
        check(json!({"x-guidance": {"lenient": true}}), &no("x-guidance"));
        check(json!({"typo": "string"}), &no("typo"));
        check(json!([]), "schema at #: expected a schema, found []");
        check(json!({"items": [{}]}), "schema at #/items: expected a schema, found [{}]");
        check(
            json!({"$ref": "http://example.com/a"}),
            "schema at #/$ref: expected a reference into this schema, such as #/$defs/name, found \"http://example.com/a\"",
        );
        check(
            json!({"minLength": 1_000_000_000}),
            "schema at #/minLength: expected a whole number up to 100000, found 1000000000",
        );
        check(
            json!({"type": "object", "minProperties": 1}),
            "schema at #: minProperties is 1, but can be at most the number of required properties, 0",
        );
    }

    #[test]
    fn what_says_nothing_about_validity_is_left_out() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "x-order": 1,
            "type": "object", "uniqueItems": false,
            "properties": {"title": {"type": "string", "default": "a"}},
        });
        let kept = json!({"type": "object", "properties": {"title": {"type": "string"}}});
        assert_eq!(checked(&schema).unwrap(), kept);
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
        assert!(checked(&deep).unwrap_err().to_string().contains("at most 64 levels"));
        let wide: Vec<Value> = (0..MAX_NODES).map(|_| json!(true)).collect();
        assert!(checked(&json!({"anyOf": wide})).unwrap_err().to_string().contains("subschemas"));
    }
}
