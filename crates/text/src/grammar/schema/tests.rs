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
    check(json!({"items": {"$id": "http://x", "not": {"$ref": "#"}}}), &no("items/$id"));
    check(json!({"propertyNames": {"pattern": "^a"}}), &no("propertyNames"));
    check(json!({"unevaluatedProperties": false}), &no("unevaluatedProperties"));
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
        "type": "object", "uniqueItems": false, "x-guidance": {"lenient": true}, "typo": 1,
        "discriminator": {"propertyName": "k"}, "propertyOrdering": ["title"], "not": false,
        "propertyNames": {"type": "string"}, "unevaluatedItems": {}, "$id": "http://x",
        "properties": {
            "title": {"type": "string", "default": "a", "nullable": true, "format": "path"},
            "day": {"type": "string", "format": "date", "enumNames": ["a"]},
        },
    });
    let kept = json!({"type": "object", "properties": {"title": {"type": "string"},
        "day": {"type": "string", "format": "date"}}});
    assert_eq!(checked(&schema).unwrap(), kept);
}

#[test]
fn counts_may_be_written_with_a_point() {
    let counts = json!({"minLength": 2.0, "maxItems": 3.0, "minItems": -0.0});
    let kept = json!({"minLength": 2, "maxItems": 3, "minItems": 0});
    assert_eq!(checked(&counts).unwrap(), kept);
    assert!(checked(&json!({"minLength": 2.5})).is_err());
}

/// Checks what is left of a schema, and the places of what is not.
fn check_loose(schema: Value, kept: Value, places: &[&str]) {
    let Checked { schema: found, left_out } = tolerant(&schema, Tolerance::Malformed).unwrap();
    let found_places: Vec<&str> = left_out.iter().map(|part| &*part.pointer).collect();
    assert_eq!((found, &*found_places), (kept, places), "{schema}");
}

#[test]
fn what_is_left_out_leaves_a_schema_of_more_values() {
    let one = |key: &str, value: Value| {
        let schema = json!({"type": "object", "properties": {"a": {key: value, "minItems": 1}}});
        let kept = json!({"type": "object", "properties": {"a": {"minItems": 1}}});
        check_loose(schema, kept, &[&format!("#/properties/a/{key}")]);
    };
    one("uniqueItems", json!(true));
    one("not", json!({"type": "null"}));
    one("if", json!({}));
    one("contains", json!({}));
    one("dependentRequired", json!({"a": ["b"]}));
    one("pattern", json!("(?=a)b"));
    one("type", json!("str"));
    one("required", json!(true));
    one("minLength", json!(-1));
    one("const", json!([{"a": 36_893_488_147_419_103_233.0}]));
    one("$ref", json!("https://example.com"));
    let closed = json!({"additionalProperties": false, "patternProperties": {"a": {}}});
    check_loose(closed, json!({}), &["#/patternProperties"]);
    let closed = json!({"additionalProperties": false, "properties": 3, "required": ["a"]});
    check_loose(closed, json!({"required": ["a"]}), &["#/properties"]);
    let options = json!({"oneOf": [{"type": "array", "uniqueItems": true}, {"$ref": "#/oneOf/0"}]});
    let weaker = json!({"anyOf": [{"type": "array"}, {"$ref": "#/anyOf/0"}]});
    check_loose(options, weaker, &["#/oneOf/0/uniqueItems"]);
    let least = json!({"type": "object", "minProperties": 2, "required": ["a"]});
    check_loose(least, json!({"type": "object", "required": ["a"]}), &["#"]);
}

#[test]
fn malformed_keywords_are_an_error_where_only_unsupported_ones_are_left_out() {
    let tolerant = |schema: Value| tolerant(&schema, Tolerance::Unsupported);
    assert!(tolerant(json!({"uniqueItems": true})).is_ok());
    assert!(tolerant(json!({"type": "str"})).is_err());
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
                "items": {"type": "null"}, "d": {"$ref": "#/properties/items"}}}),
        json!({"prefixItems": [text(), {"prefixItems": [text()]}],
            "items": {"$ref": "#/prefixItems/0"},
            "properties": {"b": {"$ref": "#/prefixItems/1/prefixItems/0"},
                "c": {"$ref": "#/items"}, "items": {"type": "null"}, "d": {"$ref": "#/properties/items"}}}),
    );
}

#[test]
fn checked_patterns_pass_another_check() {
    let schema = json!({"pattern": "^[^\"\\p{L}]+$"});
    let once = checked(&schema).unwrap();
    assert_eq!(checked(&once).unwrap(), once);
    let many = json!({"anyOf": vec![schema; 1000]});
    assert!(checked(&many).unwrap_err().to_string().contains("subschemas"));
    check(
        json!({"pattern": "[^\"\\p{L}]".repeat(2)}),
        "schema at #/pattern: expected classes of at most 16384 bytes as ranges",
    );
}

#[test]
fn long_names_are_not_written_again_and_again() {
    let name = "a".repeat(200_000);
    let tuples = vec![json!({"items": [{"not": {}}]}); 6000];
    let schema = json!({"properties": {&name: {"anyOf": tuples}}});
    let Checked { left_out, .. } = tolerant(&schema, Tolerance::Malformed).unwrap();
    assert_eq!(left_out.len(), 1);
}

#[test]
fn depth_and_size_are_bounded() {
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(checked(&deep).unwrap_err().to_string().contains("at most 64 levels"));
    let wide: Vec<Value> = (0..MAX_NODES).map(|_| json!(true)).collect();
    assert!(checked(&json!({"anyOf": wide})).unwrap_err().to_string().contains("subschemas"));
}
