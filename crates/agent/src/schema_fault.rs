//! Where a value does not fit a JSON schema.
//!
//! [`CHECKED`] are the words that are checked. Others are left to who has written them;
//! [`unchecked_word`] says whether there are some.
//!
//! Invariant: a check takes bounded time, whatever a schema combines or refers to.

use serde_json::{Map, Value};

/// Words of schemas that are checked.
const CHECKED: [&str; 22] = [
    "$ref",
    "type",
    "enum",
    "const",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];
/// Words that demand nothing of a value.
const NOTES: [&str; 13] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
];
/// Words of which the values are schemas by name, lists of schemas, and schemas.
const NAMED: [&str; 3] = ["$defs", "definitions", "properties"];
const LISTED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SINGLE: [&str; 3] = ["items", "not", "additionalProperties"];
/// Most schemas that a check looks at.
const MAX_STEPS: usize = 1 << 18;
/// Most schemas within each other, where a reference counts as what it leads to.
const MAX_DEPTH: usize = 200;

/// The first member of `value` that does not fit `schema`, with what was expected.
///
/// ```text
/// member `path`: expected string, found number
/// ```
pub fn schema_fault(schema: &Value, value: &Value) -> Option<String> {
    let mut check = SchemaCheck { root: schema, steps: 0, depth: 0 };
    let fault = check.fault(schema, value, "");
    match check.steps > MAX_STEPS {
        true => Some(TOO_MUCH.to_owned()),
        false => fault,
    }
}

/// What is said of a schema whose check does not end in time.
const TOO_MUCH: &str = "the schema combines or refers to too much";

/// The first word of `schema` that [`schema_fault`] does not check.
pub fn unchecked_word(schema: &Value) -> Option<String> {
    unchecked(schema, schema)
}

/// The first word of `schema`, a part of `root`, that is not checked.
fn unchecked(root: &Value, schema: &Value) -> Option<String> {
    let of_all = |mut schemas: Box<dyn Iterator<Item = &Value> + '_>| {
        schemas.find_map(|schema| unchecked(root, schema))
    };
    let is_known = |word: &str| CHECKED.contains(&word) || NOTES.contains(&word);
    for (word, value) in schema.as_object()? {
        let is_lost = word == "$ref" && target(root, value).is_none();
        let is_list_of_schemas = word == "items" && value.is_array();
        if !is_known(word) || is_lost || is_list_of_schemas {
            return Some(word.clone());
        }
        let inner = match word.as_str() {
            word if NAMED.contains(&word) => {
                of_all(Box::new(value.as_object().into_iter().flat_map(Map::values)))
            }
            word if LISTED.contains(&word) => {
                of_all(Box::new(value.as_array().into_iter().flatten()))
            }
            word if SINGLE.contains(&word) => unchecked(root, value),
            _ => None,
        };
        if inner.is_some() {
            return inner;
        }
    }
    None
}

/// The part of `root` that the value of `$ref` leads to.
fn target<'a>(root: &'a Value, to: &Value) -> Option<&'a Value> {
    root.pointer(to.as_str()?.strip_prefix('#')?)
}

/// A check under way.
struct SchemaCheck<'a> {
    root: &'a Value,
    steps: usize,
    depth: usize,
}

impl SchemaCheck<'_> {
    fn fault(&mut self, schema: &Value, value: &Value, place: &str) -> Option<String> {
        self.steps += 1;
        if self.depth > MAX_DEPTH {
            // Nothing that is tried instead is of use.
            self.steps = MAX_STEPS + 1;
        }
        if self.steps > MAX_STEPS {
            return Some(TOO_MUCH.to_owned());
        }
        self.depth += 1;
        let fault = match schema {
            Value::Bool(false) => wrong(place, "nothing", value),
            Value::Object(words) => own_fault(words, value, place)
                .or_else(|| self.combined_fault(words, value, place))
                .or_else(|| self.inner_fault(words, value, place)),
            _ => None,
        };
        self.depth -= 1;
        fault
    }

    /// The fault by what a schema combines or refers to.
    fn combined_fault(
        &mut self,
        words: &Map<String, Value>,
        value: &Value,
        place: &str,
    ) -> Option<String> {
        if let Some(schema) = words.get("$ref").and_then(|to| target(self.root, to))
            && let Some(fault) = self.fault(schema, value, place)
        {
            return Some(fault);
        }
        let list = |word: &str| words.get(word).and_then(Value::as_array);
        let mut all = list("allOf").into_iter().flatten();
        if let Some(fault) = all.find_map(|schema| self.fault(schema, value, place)) {
            return Some(fault);
        }
        for word in ["anyOf", "oneOf"] {
            let Some(schemas) = list(word) else { continue };
            let fits = |schema: &&Value| self.fault(schema, value, place).is_none();
            let fitting = schemas.iter().filter(fits).count();
            if fitting == 0 || (word == "oneOf" && fitting > 1) {
                return wrong(place, &format!("what `{word}` allows"), value);
            }
        }
        let fits = self.fault(words.get("not")?, value, place).is_none();
        fits.then(|| wrong(place, "what `not` does not forbid", value)).flatten()
    }

    /// The fault of a member or an item.
    fn inner_fault(
        &mut self,
        words: &Map<String, Value>,
        value: &Value,
        place: &str,
    ) -> Option<String> {
        if let Value::Array(items) = value {
            let schema = words.get("items")?;
            let mut each = items.iter().enumerate();
            return each.find_map(|(at, item)| self.fault(schema, item, &format!("{place}[{at}]")));
        }
        let properties = words.get("properties").and_then(Value::as_object);
        let others = words.get("additionalProperties");
        let others = others.filter(|_| !words.contains_key("patternProperties"));
        for (name, member) in value.as_object().into_iter().flatten() {
            let inner = inner(place, name);
            let fault = match (properties.and_then(|all| all.get(name)), others) {
                (Some(schema), _) => self.fault(schema, member, &inner),
                (None, Some(Value::Bool(false))) => Some(format!("there is no member `{inner}`")),
                (None, Some(schema)) => self.fault(schema, member, &inner),
                (None, None) => None,
            };
            if fault.is_some() {
                return fault;
            }
        }
        None
    }
}

/// The fault of a value itself.
fn own_fault(words: &Map<String, Value>, value: &Value, place: &str) -> Option<String> {
    if let Some(types) = words.get("type") {
        let one = std::slice::from_ref(types);
        let names = types.as_array().map_or(one, Vec::as_slice).iter().filter_map(Value::as_str);
        let names: Vec<&str> = names.collect();
        if !names.iter().any(|name| is_of(name, value)) {
            return wrong(place, &names.join(" or "), value);
        }
    }
    if let Some(constant) = words.get("const").filter(|constant| *constant != value) {
        return wrong(place, &constant.to_string(), value);
    }
    if let Some(values) = words.get("enum").and_then(Value::as_array)
        && !values.contains(value)
    {
        return wrong(place, &format!("one of {}", Value::from(values.clone())), value);
    }
    let required = words.get("required").and_then(Value::as_array).into_iter().flatten();
    let mut required = required.filter_map(Value::as_str).filter(|_| value.is_object());
    if let Some(name) = required.find(|name| value.get(name).is_none()) {
        return Some(format!("member `{}` is missing", inner(place, name)));
    }
    size_fault(words, value, place)
}

/// The fault of a number, or of how much a value has.
fn size_fault(words: &Map<String, Value>, value: &Value, place: &str) -> Option<String> {
    let (what, size, least, most) = match value {
        Value::Number(number) => ("a number", number.as_f64()?, "minimum", "maximum"),
        Value::String(text) => {
            ("a text with a length", text.chars().count() as f64, "minLength", "maxLength")
        }
        Value::Array(items) => ("a list with a length", items.len() as f64, "minItems", "maxItems"),
        Value::Object(members) => {
            ("an object with a size", members.len() as f64, "minProperties", "maxProperties")
        }
        Value::Null | Value::Bool(_) => return None,
    };
    let limit = |word: &str| words.get(word).and_then(Value::as_f64);
    let strict = |word: &str| limit(word).filter(|_| value.is_number());
    let faults = [
        (limit(least).filter(|least| size < *least), "of at least"),
        (limit(most).filter(|most| size > *most), "of at most"),
        (strict("exclusiveMinimum").filter(|least| size <= *least), "above"),
        (strict("exclusiveMaximum").filter(|most| size >= *most), "below"),
    ];
    let (limit, how) = faults.into_iter().find_map(|(limit, how)| Some((limit?, how)))?;
    Some(format!("{}: expected {what} {how} {limit}, found {size}", shown(place)))
}

fn wrong(place: &str, expected: &str, value: &Value) -> Option<String> {
    Some(format!("{}: expected {expected}, found {}", shown(place), found(value)))
}

fn shown(place: &str) -> String {
    if place.is_empty() { "the value".to_owned() } else { format!("member `{place}`") }
}

fn inner(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_member_at_fault_is_named() {
        let schema = json!({
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": {
                "path": {"type": "string"}, "kind": {"enum": ["a", "b"]},
                "lines": {"type": "array", "items": {
                    "type": "object", "properties": {"at": {"type": ["integer", "null"]}},
                }},
            },
        });
        for (value, expected) in [
            (json!({"path": "x", "kind": "a", "lines": [{"at": 1}, {"at": null}]}), None),
            (json!([]), Some("the value: expected object, found array")),
            (json!({}), Some("member `path` is missing")),
            (json!({"path": 1}), Some("member `path`: expected string, found number")),
            (json!({"path": "", "x": 1}), Some("there is no member `x`")),
            (
                json!({"path": "", "kind": "c"}),
                Some("member `kind`: expected one of [\"a\",\"b\"], found string"),
            ),
            (
                json!({"path": "", "lines": [{"at": 1}, {"at": 1.5}]}),
                Some("member `lines[1].at`: expected integer or null, found number"),
            ),
        ] {
            assert_eq!(schema_fault(&schema, &value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn words_that_are_not_understood_are_left_out() {
        let all = [json!(true), json!({"items": 1}), json!({"required": {"a": 1}, "enum": 1})];
        for schema in all.into_iter().chain([json!({"type": "thing"})]) {
            assert_eq!(schema_fault(&schema, &json!({"a": [1]})), None, "{schema}");
        }
    }

    #[test]
    fn sizes_combinations_and_references_are_checked() {
        let schema = json!({
            "$defs": {"size": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10}},
            "properties": {
                "size": {"$ref": "#/$defs/size"},
                "name": {"type": "string", "minLength": 2, "maxLength": 3},
                "list": {"maxItems": 1, "items": {"anyOf": [{"type": "null"}, {"const": 7}]}},
                "one": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
                "all": {"allOf": [{"type": "string"}, {"not": {"const": "x"}}]},
                "self": {"$ref": "#"},
            },
            "additionalProperties": {"type": "boolean"},
        });
        let check = |value: Value, expected: Option<&str>| {
            assert_eq!(schema_fault(&schema, &value).as_deref(), expected, "{value}");
        };
        let all = json!({"size": 1, "name": "éé", "list": [7], "one": 1.5, "all": "y", "z": true});
        check(all, None);
        for (value, expected) in [
            (json!({"size": 0}), "member `size`: expected a number of at least 1, found 0"),
            (json!({"size": 10}), "member `size`: expected a number below 10, found 10"),
            (
                json!({"name": "abcd"}),
                "member `name`: expected a text with a length of at most 3, found 4",
            ),
            (json!({"list": [8]}), "member `list[0]`: expected what `anyOf` allows, found number"),
            (json!({"one": 1}), "member `one`: expected what `oneOf` allows, found number"),
            (
                json!({"all": "x"}),
                "member `all`: expected what `not` does not forbid, found string",
            ),
            (json!({"z": 1}), "member `z`: expected boolean, found number"),
            (
                json!({"self": {"size": 0}}),
                "member `self.size`: expected a number of at least 1, found 0",
            ),
        ] {
            check(value, Some(expected));
        }
        assert_eq!(unchecked_word(&schema), None);
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        for circle in
            [json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}), json!({"not": {"$ref": "#"}})]
        {
            assert_eq!(schema_fault(&circle, &json!(1)).as_deref(), Some(TOO_MUCH));
        }
    }

    #[test]
    fn words_that_are_not_checked_are_named() {
        let check = |schema: Value, expected: &str| {
            assert_eq!(unchecked_word(&schema).as_deref(), Some(expected), "{schema}");
        };
        check(json!({"pattern": "x"}), "pattern");
        check(json!({"properties": {"pattern": {"pattern": "x"}}}), "pattern");
        check(json!({"items": {"anyOf": [{}, {"uniqueItems": true}]}}), "uniqueItems");
        check(json!({"$defs": {"a": {"if": {}}}}), "if");
        for to in ["https://example.org/x", "#/x", "#x"] {
            check(json!({"$ref": to}), "$ref");
            assert_eq!(schema_fault(&json!({"$ref": to}), &json!(1)), None, "{to}");
        }
        assert_eq!(unchecked_word(&json!({"properties": {"pattern": {"type": "null"}}})), None);
    }
}
