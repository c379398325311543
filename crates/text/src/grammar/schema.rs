//! Checks of JSON schemas before compilation: a keyword that cannot be enforced is an error or is
//! left out.
//!
//! The keywords are a subset of draft 2020-12. Annotations and unknown keywords are dropped, the
//! tuples of draft 7, `items: [..]` with `additionalItems`, become `prefixItems` with `items`, and
//! the ends of draft 4, of which a flag says that they are excluded, become those of later drafts.

use super::drafts::with_numeric_ends;
use super::error::GrammarError;
use super::exact;
use super::finite;
use super::json::library_error;
use super::left_out::LeftOut;
use super::pattern::translated;
use super::references::{escaped, follow, has_reference, reference};
use super::targets::{other_options, resolved};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Bounds of a schema.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 20_000;
const MAX_COUNT: u64 = 100_000;
const MAX_TEXT: usize = 4096;
/// Bytes of a pattern, and of what it is translated to.
const MAX_PATTERN: usize = 16 << 10;
/// Bytes of patterns that count as a subschema.
const PATTERN_NODE: usize = 64;

/// The result of a keyword: its checked value, `None` for one that does not count.
type Kept = Result<Option<Value>, Fault>;
type KeywordCheck = fn(&mut Walk, &Value) -> Kept;

/// The keywords that are checked. Any other is unknown to JSON Schema and says nothing.
const KEYWORDS: [(&[&str], KeywordCheck); 21] = [
    (&["$defs", "definitions", "properties"], |walk, value| walk.schemas_by_name(value).map(Some)),
    (&["additionalProperties", "additionalItems"], |walk, value| walk.schema(value).map(Some)),
    (&["items"], |walk, value| match value {
        Value::Array(list) if list.is_empty() => Ok(Some(value.clone())),
        Value::Array(_) => walk.schemas(value).map(Some),
        _ => walk.schema(value).map(Some),
    }),
    (&["prefixItems", "oneOf", "allOf"], |walk, value| walk.schemas(value).map(Some)),
    (&["anyOf"], |walk, value| walk.schemas(&other_options(value, &walk.place)).map(Some)),
    (&["$ref"], |walk, value| match value.as_str() {
        Some(to) if walk.lost.contains(to) => walk.wrong(format!(
            "expected a reference into this schema, such as #/$defs/name, found {value}"
        )),
        known => walk.plain(value, known.is_some(), "a reference"),
    }),
    (&["type"], |walk, value| {
        let of_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
        let known = of_type(value) || is_list(value) && all(value, of_type);
        walk.plain(value, known, &format!("one or more of {}", TYPES.join(", ")))
    }),
    (&["required"], |walk, value| {
        walk.plain(value, all(value, Value::is_string), "an array of names")
    }),
    (&["const"], |walk, value| walk.values(value, true)),
    (&["enum"], |walk, value| walk.values(value, is_list(value))),
    (
        &["minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"],
        |walk, value| match whole(value) {
            Some(count) => Ok(Some(count.into())),
            None => walk.expected(&format!("a whole number up to {MAX_COUNT}"), value),
        },
    ),
    (&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], Walk::number),
    (&["multipleOf"], |walk, value| match value.as_f64() {
        Some(0.0) => walk.expected("a number other than 0", value),
        _ => walk.number(value),
    }),
    (&["pattern"], |walk, value| walk.expression("pattern", value)),
    (&["format"], |walk, value| match walk.expression("format", value) {
        // Formats are annotations: one that is not known says nothing.
        Err(Fault { malformed: false, .. }) => Ok(None),
        known => known,
    }),
    (&["uniqueItems"], |walk, value| walk.without(*value == false)),
    (&["propertyNames"], |walk, value| walk.without(allows_all_names(value))),
    (
        &["patternProperties", "dependentRequired", "dependentSchemas", "dependencies"],
        |walk, value| walk.without(value.as_object().is_some_and(Map::is_empty)),
    ),
    (&["not"], |walk, value| walk.without(*value == false)),
    (&["if", "contains"], |walk, _| walk.without(false)),
    (
        &["unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"],
        |walk, value| walk.without(allows_all(value)),
    ),
];

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// What becomes of a keyword that cannot be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tolerance {
    /// An error.
    None,
    /// One that is not supported is left out, one that is malformed is an error.
    Unsupported,
    /// Left out.
    Malformed,
}

/// A schema in the words of draft 2020-12, and what it leaves out of another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checked {
    pub schema: Value,
    pub left_out: Vec<LeftOut>,
}

/// Returns `schema` without annotations, in the words of draft 2020-12.
///
/// # Errors
/// If the schema is malformed, too large, or has a keyword that is not supported.
pub(super) fn checked(schema: &Value) -> Result<Value, GrammarError> {
    Ok(tolerant(schema, Tolerance::None)?.schema)
}

/// Returns `schema` as [`checked`] does, without the parts that `tolerance` leaves out; it allows
/// every value that `schema` allows.
///
/// # Errors
/// If a part is not tolerated, or references lead to themselves.
pub(super) fn tolerant(schema: &Value, tolerance: Tolerance) -> Result<Checked, GrammarError> {
    let (schema, lost) = resolved(schema);
    let mut walk = Walk {
        tolerance,
        lost,
        place: vec!["#".into()],
        nodes: 0,
        renamed: Vec::new(),
        left_out: Vec::new(),
    };
    let mut schema = walk.schema(&schema).map_err(|fault| fault.error)?;
    if !walk.renamed.is_empty() {
        // Inner places first: their pointers begin with the old names of outer ones.
        walk.renamed.reverse();
        follow(&mut schema, &walk.renamed);
    }
    finite::without_endless(&mut schema)?;
    Ok(Checked { schema, left_out: walk.left_out })
}

struct Walk {
    tolerance: Tolerance,
    /// References that lead to no part of the schema.
    lost: HashSet<String>,
    place: Vec<String>,
    nodes: usize,
    /// Old and new pointers to subschemas of tuples, outer ones first; of one tuple, `items` last.
    renamed: Vec<(String, String)>,
    left_out: Vec<LeftOut>,
}

/// An error of a keyword, and whether the keyword is malformed.
struct Fault {
    error: GrammarError,
    malformed: bool,
}

impl Walk {
    fn schema(&mut self, schema: &Value) -> Result<Value, Fault> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return self.wrong(format!("expected at most {MAX_NODES} subschemas, found more"));
        }
        if self.place.iter().map(String::len).sum::<usize>() > MAX_TEXT {
            return self.wrong(format!("expected names of at most {MAX_TEXT} bytes, found more"));
        }
        if self.place.len() > 2 * MAX_DEPTH {
            return self.wrong(format!("expected at most {MAX_DEPTH} levels, found more"));
        }
        match schema {
            Value::Bool(_) => Ok(schema.clone()),
            Value::Object(object) => self.object(&with_numeric_ends(object)),
            other => self.expected("a schema", other),
        }
    }

    fn object(&mut self, object: &Map<String, Value>) -> Result<Value, Fault> {
        if let Some(id) = self.inner_id(object)? {
            return Ok(id);
        }
        let mut kept = Map::new();
        let is_tuple = self.tuple(object)?;
        for (key, value) in object {
            let depth = self.place.len();
            self.place.push(escaped(key));
            let before = self.left_out.len();
            let checked = self.keyword(key, value);
            let checked = self.tolerated(checked)?;
            // Of weaker options, several may hold.
            let weaker = key == "oneOf" && self.left_out.len() > before;
            self.place.truncate(depth);
            match checked {
                Some(value) if weaker => self.any_of(&mut kept, object, value),
                Some(value) => drop(kept.insert(key.clone(), value)),
                None => {}
            }
        }
        self.count_properties(object, &mut kept)?;
        let rest = kept.remove("additionalItems");
        if is_tuple && let Some(first) = kept.remove("items") {
            if is_list(&first) {
                kept.insert("prefixItems".into(), first);
            }
            kept.extend(rest.map(|rest| ("items".into(), rest)));
        }
        // Without the keyword on the left, the other one would say more than the schema does.
        for (absent, other) in [
            ("properties", "additionalProperties"),
            ("patternProperties", "additionalProperties"),
            ("prefixItems", "items"),
        ] {
            let has = |object: &Map<String, Value>| object.contains_key(absent);
            if has(object) && !has(&kept) && self.leaves_out(absent) {
                kept.remove(other);
            }
        }
        Ok(Value::Object(kept))
    }

    /// Whether the keyword of the current place has been left out.
    fn leaves_out(&self, key: &str) -> bool {
        let place = format!("{}/{key}", self.place.join("/"));
        self.left_out.iter().any(|part| part.pointer == place)
    }

    /// Keeps the options of `oneOf` as those of `anyOf`.
    fn any_of(
        &mut self,
        kept: &mut Map<String, Value>,
        object: &Map<String, Value>,
        options: Value,
    ) {
        if !object.contains_key("anyOf") {
            let place = reference(&self.place);
            self.renamed.push((format!("{place}/oneOf"), format!("{place}/anyOf")));
            kept.insert("anyOf".into(), options);
        }
    }

    /// References within a schema of its own address lead elsewhere.
    fn inner_id(&mut self, object: &Map<String, Value>) -> Result<Option<Value>, Fault> {
        let inner = self.place.len() > 1 && object.get("$id").is_some_and(Value::is_string);
        if !inner || !object.values().any(has_reference) {
            return Ok(None);
        }
        self.place.push("$id".into());
        let refused = self.without(false);
        self.tolerated(refused)?;
        self.place.pop();
        Ok(Some(true.into()))
    }

    /// Additional properties may repeat a name, so only required ones can be counted.
    fn count_properties(
        &mut self,
        object: &Map<String, Value>,
        kept: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let required = object.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
        let least = kept.remove("minProperties").and_then(|least| least.as_u64()).unwrap_or(0);
        if least > required {
            let refused = self.wrong(format!(
                "minProperties is {least}, but can be at most the number of required properties, {required}"
            ));
            self.tolerated(refused)?;
        }
        Ok(())
    }

    /// Whether a schema has `items` as draft 7 has them: the schemas of the first items in order.
    /// Only then `additionalItems` says anything, as `items` of draft 2020-12 does.
    fn tuple(&mut self, object: &Map<String, Value>) -> Result<bool, Fault> {
        if !object.get("items").is_some_and(Value::is_array) {
            return Ok(false);
        }
        if object.contains_key("prefixItems") {
            return self.wrong("items is an array, which cannot stand beside prefixItems".into());
        }
        let place = reference(&self.place);
        for (from, to) in [("additionalItems", "items"), ("items", "prefixItems")] {
            self.renamed.push((format!("{place}/{from}"), format!("{place}/{to}")));
        }
        Ok(true)
    }

    /// Returns the checked value of a keyword, `None` for one that says nothing about validity.
    fn keyword(&mut self, key: &str, value: &Value) -> Kept {
        match KEYWORDS.iter().find(|(names, _)| names.contains(&key)) {
            Some((_, check)) => check(self, value),
            None => Ok(None),
        }
    }

    /// Leaves a keyword out if its fault is tolerated.
    fn tolerated(&mut self, checked: Kept) -> Kept {
        let fault = match checked {
            Err(fault) => fault,
            checked => return checked,
        };
        match (self.tolerance, fault) {
            (Tolerance::None, fault) => Err(fault),
            (Tolerance::Unsupported, fault) if fault.malformed => Err(fault),
            (_, Fault { error: GrammarError::Schema { pointer, what }, .. }) => {
                self.left_out.push(LeftOut { pointer, what });
                Ok(None)
            }
            (_, fault) => Err(fault),
        }
    }

    /// Leaves a keyword out if it `can_be` left out, and otherwise refuses it.
    fn without(&self, can_be: bool) -> Kept {
        if can_be { Ok(None) } else { self.wrong("this keyword is not supported".into()) }
    }

    fn number(&mut self, value: &Value) -> Kept {
        let Value::Number(number) = value else { return self.expected("a number", value) };
        match exact::bound(number) {
            Ok(()) => Ok(Some(value.clone())),
            Err(what) => self.wrong(what),
        }
    }

    /// Takes values, in which every number must be the one that was written.
    fn values(&mut self, value: &Value, as_expected: bool) -> Kept {
        let kept = self.plain(value, as_expected, "an array of values")?;
        match exact::lost_number(value) {
            None => Ok(kept),
            Some(what) => self.wrong(what),
        }
    }

    /// Takes a `pattern` or `format` that llguidance takes.
    fn expression(&mut self, key: &str, value: &Value) -> Kept {
        let most = if key == "pattern" { MAX_PATTERN } else { MAX_TEXT };
        let known = value.as_str().is_some_and(|text| text.len() <= most);
        let kept = self.plain(value, known, &format!("a text of at most {most} bytes"))?;
        let kept = match value.as_str().filter(|_| key == "pattern").map(translated) {
            Some(Ok(pattern)) if pattern.len() > most => {
                return self.wrong(format!("expected classes of at most {most} bytes as ranges"));
            }
            Some(Ok(pattern)) => {
                self.nodes += pattern.len() / PATTERN_NODE;
                Some(Value::String(pattern))
            }
            Some(Err(what)) => return self.wrong(what),
            None => kept,
        };
        match library_error(json!({"type": "string", key: kept})) {
            None => Ok(kept),
            Some(what) => self.wrong(what),
        }
    }

    fn schemas(&mut self, value: &Value) -> Result<Value, Fault> {
        let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
            return self.expected("an array of schemas", value);
        };
        let mut checked = Vec::new();
        for (at, schema) in list.iter().enumerate() {
            self.place.push(at.to_string());
            checked.push(self.part(schema)?);
            self.place.pop();
        }
        Ok(Value::Array(checked))
    }

    fn schemas_by_name(&mut self, value: &Value) -> Result<Value, Fault> {
        let Some(object) = value.as_object() else {
            return self.expected("an object of schemas", value);
        };
        let mut checked = Map::new();
        for (name, schema) in object {
            self.place.push(escaped(name));
            checked.insert(name.clone(), self.part(schema)?);
            self.place.pop();
        }
        Ok(Value::Object(checked))
    }

    /// Returns a checked subschema, which allows everything if its fault is tolerated.
    fn part(&mut self, schema: &Value) -> Result<Value, Fault> {
        let depth = self.place.len();
        let checked = self.schema(schema).map(Some);
        let kept = self.tolerated(checked)?;
        self.place.truncate(depth);
        Ok(kept.unwrap_or(Value::Bool(true)))
    }

    /// Takes a value that holds no schema, which must be as `expected`.
    fn plain(&mut self, value: &Value, as_expected: bool, expected: &str) -> Kept {
        self.nodes += value.as_array().map_or(0, Vec::len);
        if as_expected { Ok(Some(value.clone())) } else { self.expected(expected, value) }
    }

    fn expected<T>(&self, expected: &str, found: &Value) -> Result<T, Fault> {
        let mut found = found.to_string();
        if found.chars().count() > 60 {
            found = found.chars().take(57).chain("...".chars()).collect();
        }
        let fault = self.fault(format!("expected {expected}, found {found}"));
        Err(Fault { malformed: true, ..fault })
    }

    fn wrong<T>(&self, what: String) -> Result<T, Fault> {
        Err(self.fault(what))
    }

    fn fault(&self, what: String) -> Fault {
        let error = GrammarError::Schema { pointer: self.place.join("/"), what };
        Fault { error, malformed: false }
    }
}

/// The number of a keyword that counts, which may be written as 2.0.
fn whole(value: &Value) -> Option<u64> {
    let written = value.as_f64().filter(|count| (0.0..=MAX_COUNT as f64).contains(count))?;
    (written.fract() == 0.0).then_some(written as u64)
}

/// Whether a schema allows every value.
fn allows_all(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.keys().all(|key| !KEYWORDS.iter().any(|(names, _)| names.contains(&&**key)))
        }
        other => *other == true,
    }
}

/// Whether a schema allows every string.
fn allows_all_names(schema: &Value) -> bool {
    let mut schema = schema.clone();
    let strings = schema["type"] == "string";
    if let Some(object) = schema.as_object_mut().filter(|_| strings) {
        object.shift_remove("type");
    }
    allows_all(&schema)
}

/// Whether a value is a list with at least one item.
fn is_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty())
}

/// Whether a value is a list of which every item passes `check`.
fn all(value: &Value, check: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(check))
}

#[cfg(test)]
mod tests;
