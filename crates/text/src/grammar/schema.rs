//! Checks of JSON schemas before compilation: a schema with an unknown keyword is an error.
//!
//! The keywords are a subset of draft 2020-12. Annotations (titles, defaults) are dropped, and the
//! tuples of draft 7, `items: [..]` with `additionalItems`, become `prefixItems` with `items`. A
//! keyword that the compiler would ignore or misread is an error that names its position.

use super::GrammarError;
use llguidance::api::GrammarWithLexer;
use serde_json::{Map, Value, json};

/// Bounds of a schema.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 20_000;
const MAX_COUNT: u64 = 100_000;
const MAX_TEXT: usize = 4096;

/// Returns the checked value of a keyword, `None` for one that does not count.
type KeywordCheck = fn(&mut Walk, &Value) -> Result<Option<Value>, GrammarError>;

/// The keywords of each kind.
const KEYWORDS: [(&[&str], KeywordCheck); 16] = [
    // Annotations.
    (&["title", "description", "default", "examples", "example", "deprecated"], |_, _| Ok(None)),
    (
        &["readOnly", "writeOnly", "contentMediaType", "contentEncoding", "$comment", "$schema"],
        |_, _| Ok(None),
    ),
    (&["$defs", "definitions", "properties"], |walk, value| walk.schemas_by_name(value).map(Some)),
    (&["additionalProperties", "additionalItems"], |walk, value| walk.schema(value).map(Some)),
    (&["items"], |walk, value| match value {
        Value::Array(list) if list.is_empty() => Ok(Some(value.clone())),
        Value::Array(_) => walk.schemas(value).map(Some),
        _ => walk.schema(value).map(Some),
    }),
    (&["prefixItems", "anyOf", "oneOf", "allOf"], |walk, value| walk.schemas(value).map(Some)),
    (&["$ref"], |walk, value| {
        let known = value.as_str().is_some_and(|to| to == "#" || to.starts_with("#/"));
        walk.plain(value, known, "a reference into this schema, such as #/$defs/name")
    }),
    (&["type"], |walk, value| {
        let of_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
        let known = of_type(value) || is_list(value) && all(value, of_type);
        walk.plain(value, known, &format!("one or more of {}", TYPES.join(", ")))
    }),
    (&["required"], |walk, value| {
        walk.plain(value, all(value, Value::is_string), "an array of names")
    }),
    (&["const"], |walk, value| walk.plain(value, true, "")),
    (&["enum"], |walk, value| walk.plain(value, is_list(value), "an array of values")),
    (
        &["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"],
        |walk, value| {
            let known = value.as_u64().is_some_and(|count| count <= MAX_COUNT);
            walk.plain(value, known, &format!("a whole number up to {MAX_COUNT}"))
        },
    ),
    (
        &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
        |walk, value| walk.plain(value, value.is_number(), "a number"),
    ),
    (&["pattern", "format"], |walk, value| {
        let known = value.as_str().is_some_and(|text| text.len() <= MAX_TEXT);
        walk.plain(value, known, &format!("a text of at most {MAX_TEXT} bytes"))
    }),
    (&["uniqueItems", "nullable"], |walk, value| walk.without(*value == false)),
    (
        &["patternProperties", "dependentRequired", "dependentSchemas", "dependencies"],
        |walk, value| walk.without(value.as_object().is_some_and(Map::is_empty)),
    ),
];

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Returns `schema` without annotations, in the words of draft 2020-12.
///
/// # Errors
/// If the schema is malformed, too large, or has a keyword that is not supported.
pub(super) fn checked(schema: &Value) -> Result<Value, GrammarError> {
    let mut walk = Walk { place: vec!["#".into()], nodes: 0, renamed: Vec::new() };
    let mut checked = walk.schema(schema)?;
    if !walk.renamed.is_empty() {
        // Inner places first: their pointers begin with the old names of outer ones.
        walk.renamed.reverse();
        follow(&mut checked, true, &walk.renamed);
    }
    Ok(checked)
}

/// Lets references follow subschemas to their new places. `keywords` says whether the members of an
/// object are keywords, not the names of subschemas.
fn follow(schema: &mut Value, keywords: bool, renamed: &[(String, String)]) {
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

struct Walk {
    place: Vec<String>,
    nodes: usize,
    /// Old and new pointers to subschemas of tuples, outer ones first; of one tuple, `items` last.
    renamed: Vec<(String, String)>,
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
        let is_tuple = self.tuple(object)?;
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
        let rest = kept.remove("additionalItems");
        if is_tuple && let Some(first) = kept.remove("items") {
            if is_list(&first) {
                kept.insert("prefixItems".into(), first);
            }
            kept.extend(rest.map(|rest| ("items".into(), rest)));
        }
        Ok(Value::Object(kept))
    }

    /// Whether a schema has `items` as draft 7 has them: the schemas of the first items in order.
    /// Only then `additionalItems` says anything, as `items` of draft 2020-12 does.
    fn tuple(&mut self, object: &Map<String, Value>) -> Result<bool, GrammarError> {
        if !object.get("items").is_some_and(Value::is_array) {
            return Ok(false);
        }
        if object.contains_key("prefixItems") {
            return self.wrong("items is an array, which cannot stand beside prefixItems".into());
        }
        let place = self.place.join("/");
        for (from, to) in [("additionalItems", "items"), ("items", "prefixItems")] {
            self.renamed.push((format!("{place}/{from}"), format!("{place}/{to}")));
        }
        Ok(true)
    }

    /// Returns the checked value of a keyword, `None` for an annotation.
    fn keyword(&mut self, key: &str, value: &Value) -> Result<Option<Value>, GrammarError> {
        let root = self.place.len() == 2;
        match KEYWORDS.iter().find(|(names, _)| names.contains(&key)) {
            Some((_, check)) => check(self, value),
            None if root && key == "$id" => Ok(None),
            None => self.without(key.starts_with("x-") && key != "x-guidance"),
        }
    }

    /// Leaves a keyword out if it `can_be` left out, and otherwise refuses it.
    fn without(&self, can_be: bool) -> Result<Option<Value>, GrammarError> {
        if can_be { Ok(None) } else { self.wrong("this keyword is not supported".into()) }
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

    /// Takes a value that holds no schema, which must be as `expected`.
    fn plain(
        &mut self,
        value: &Value,
        as_expected: bool,
        expected: &str,
    ) -> Result<Option<Value>, GrammarError> {
        self.nodes += value.as_array().map_or(0, Vec::len);
        if as_expected { Ok(Some(value.clone())) } else { self.expected(expected, value) }
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

/// Whether a value is a list with at least one item.
fn is_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty())
}

/// Whether a value is a list of which every item passes `check`.
fn all(value: &Value, check: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(check))
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
        check(json!({"items": 3}), "schema at #/items: expected a schema, found 3");
        check(json!({"items": [true, {"not": {}}]}), &no("items/1/not"));
        check(json!({"items": [{}], "additionalItems": {"not": {}}}), &no("additionalItems/not"));
        check(
            json!({"items": [{}], "prefixItems": [{}]}),
            "schema at #: items is an array, which cannot stand beside prefixItems",
        );
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
    fn references_in_values_are_texts() {
        let value = json!({"$ref": "#/properties/a/items/0"});
        let schema = json!({"properties": {
            "a": {"items": [{"type": "string"}]},
            "b": {"const": value}, "c": {"enum": [value]},
            "const": {"$ref": "#/properties/a/items/0"},
        }});
        let checked = checked(&schema).unwrap();
        assert_eq!(checked["properties"]["b"]["const"], value);
        assert_eq!(checked["properties"]["c"]["enum"], json!([value]));
        let followed = "#/properties/a/prefixItems/0";
        assert_eq!(checked["properties"]["const"]["$ref"], followed);
    }

    #[test]
    fn tuples_of_draft_7_are_those_of_draft_2020() {
        let translated = |schema: Value, expected: Value| {
            assert_eq!(checked(&schema).unwrap(), expected, "{schema}");
        };
        let text = || json!({"type": "string"});
        translated(
            json!({"properties": {"a": {"items": [{"items": [text()]}, true], "minItems": 2,
                "additionalItems": false}}}),
            json!({"properties": {"a": {"prefixItems": [{"prefixItems": [text()]}, true],
                "minItems": 2, "items": false}}}),
        );
        translated(json!({"items": text(), "additionalItems": false}), json!({"items": text()}));
        translated(json!({"items": [], "additionalItems": text()}), json!({"items": text()}));
        translated(
            json!({"items": [text(), {"items": [text()]}], "additionalItems": {"$ref": "#/items/0"},
                "properties": {"b": {"$ref": "#/items/1/items/0"}, "c": {"$ref": "#/additionalItems"},
                    "items": {"$ref": "#/properties/items/x"}}}),
            json!({"prefixItems": [text(), {"prefixItems": [text()]}],
                "items": {"$ref": "#/prefixItems/0"},
                "properties": {"b": {"$ref": "#/prefixItems/1/prefixItems/0"},
                    "c": {"$ref": "#/items"}, "items": {"$ref": "#/properties/items/x"}}}),
        );
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
        assert!(checked(&deep).unwrap_err().to_string().contains("at most 64 levels"));
        let wide: Vec<Value> = (0..MAX_NODES).map(|_| json!(true)).collect();
        assert!(checked(&json!({"anyOf": wide})).unwrap_err().to_string().contains("subschemas"));
    }
}
