//! References as they are written, as JSON pointers to places that checks keep.
//!
//! A reference may lead to any place of the document, by its pointer with or without the escapes
//! of a URI, by an anchor, or behind the document's own address. Targets at places that are not
//! subschemas are copied into `$defs`.

use super::references::{decoded, encoded, escaped, has_reference, reference, rewrite};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Values that are copied.
const MAX_COPIED: usize = 100_000;

/// Returns `schema` with each reference as the pointer of a subschema, and the references that lead
/// to none, which are unchanged.
pub(super) fn resolved(schema: &Value) -> (Cow<'_, Value>, HashSet<String>) {
    if !has_reference(schema) {
        return (Cow::Borrowed(schema), HashSet::new());
    }
    let id = ["$id", "id"].iter().find_map(|key| schema.get(key)?.as_str());
    let mut resolver = Resolver {
        document: schema,
        id: id.map(|id| id.trim_end_matches('#')).filter(|id| !id.is_empty()),
        anchors: HashMap::new(),
        copies: Vec::new(),
        known: HashSet::new(),
        copied: 0,
        lost: HashSet::new(),
    };
    resolver.find_anchors(schema, "");
    let mut whole = schema.clone();
    rewrite(&mut whole, true, &mut |reference| resolver.pointer(reference));
    let (mut definitions, mut next) = (Map::new(), 0);
    while let Some(pointer) = resolver.copies.get(next).cloned() {
        next += 1;
        let Some(mut target) = schema.pointer(&pointer).cloned() else { continue };
        rewrite(&mut target, true, &mut |reference| resolver.pointer(reference));
        definitions.insert(pointer, target);
    }
    if let (Some(object), false) = (whole.as_object_mut(), definitions.is_empty()) {
        let defs = object.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
        if let Some(defs) = defs.as_object_mut() {
            defs.extend(definitions);
        }
    }
    (Cow::Owned(whole), resolver.lost)
}

/// Returns the options of `anyOf` at a place without the schema that they are options of: it says
/// no more than the others.
pub(super) fn other_options(options: &Value, place: &[String]) -> Value {
    let itself = json!({"$ref": reference(&place[..place.len() - 1])});
    let mut options = options.clone();
    if let Some(list) = options.as_array_mut()
        && list.iter().any(|option| *option != itself)
    {
        // The places of the others stay as they are.
        list.iter_mut()
            .filter(|option| **option == itself)
            .for_each(|option| *option = false.into());
    }
    options
}

struct Resolver<'a> {
    document: &'a Value,
    /// The document's own address.
    id: Option<&'a str>,
    /// The pointers of anchors.
    anchors: HashMap<&'a str, String>,
    /// The pointers of targets that are copied, once and in order.
    copies: Vec<String>,
    known: HashSet<String>,
    /// Values in these.
    copied: usize,
    /// References that lead nowhere.
    lost: HashSet<String>,
}

impl<'a> Resolver<'a> {
    fn find_anchors(&mut self, at: &'a Value, pointer: &str) {
        match at {
            Value::Object(object) => {
                if let Some(name) = object.get("$anchor").and_then(Value::as_str) {
                    self.anchors.entry(name).or_insert_with(|| pointer.to_owned());
                }
                for (key, value) in object {
                    if !matches!(key.as_str(), "const" | "enum") {
                        self.find_anchors(value, &format!("{pointer}/{}", escaped(key)));
                    }
                }
            }
            Value::Array(list) => {
                for (at, value) in list.iter().enumerate() {
                    self.find_anchors(value, &format!("{pointer}/{at}"));
                }
            }
            _ => {}
        }
    }

    /// Returns a reference as the pointer of a subschema.
    fn pointer(&mut self, reference: &str) -> String {
        let Some(pointer) = self.target(reference) else {
            self.lost.insert(reference.to_owned());
            return reference.to_owned();
        };
        if is_subschema(self.document, &pointer) {
            return format!("#{}", encoded(&pointer));
        }
        if !self.known.contains(&pointer) {
            self.copied += self.document.pointer(&pointer).map_or(0, size);
            if self.copied > MAX_COPIED {
                self.lost.insert(reference.to_owned());
                return reference.to_owned();
            }
            self.known.insert(pointer.clone());
            self.copies.push(pointer.clone());
        }
        format!("#/$defs/{}", encoded(&escaped(&pointer)))
    }

    /// Returns the pointer of what a reference leads to, if it leads to anything.
    fn target(&self, reference: &str) -> Option<String> {
        let own = self.id.and_then(|id| reference.strip_prefix(id));
        let fragment = match own.unwrap_or(reference) {
            "" => "",
            rest => rest.strip_prefix('#')?,
        };
        let found = |pointer: &String| {
            (pointer.is_empty() || pointer.starts_with('/'))
                && self.document.pointer(pointer).is_some()
        };
        let pointer = decoded(fragment).filter(found).or(Some(fragment.to_owned()).filter(found));
        pointer.or_else(|| self.anchors.get(fragment).cloned())
    }
}

/// The number of values in a value.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(object) => object.values().map(size).sum(),
        _ => 0,
    }
}

/// Whether a pointer leads to a subschema of `schema` through keywords alone.
fn is_subschema(schema: &Value, pointer: &str) -> bool {
    let mut keys = pointer.split('/').skip(1);
    let mut at = schema;
    while let Some(key) = keys.next() {
        let Some(value) = at.get(key) else { return false };
        let inner = match (key, value) {
            ("$defs" | "definitions" | "properties", Value::Object(_)) => true,
            ("items" | "prefixItems" | "anyOf" | "oneOf" | "allOf", Value::Array(_)) => true,
            ("items" | "additionalItems" | "additionalProperties", _) => false,
            _ => return false,
        };
        at = value;
        if inner {
            let Some(name) = keys.next() else { return false };
            let name = format!("/{name}");
            let Some(value) = value.pointer(&name) else { return false };
            at = value;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, expected: Value, lost: &[&str]) {
        let (found, unknown) = resolved(&schema);
        assert_eq!(*found, expected, "{schema}");
        assert_eq!(unknown, lost.iter().map(|text| text.to_string()).collect(), "{schema}");
    }

    #[test]
    fn references_are_pointers_to_subschemas() {
        let to = |reference: &str| {
            json!({"$id": "https://e.com/s", "$ref": reference,
                "$defs": {"A B": true, "é": {"$anchor": "here"}, "L[int]": true}})
        };
        for (written, pointer) in [
            ("#/$defs/A B", "#/$defs/A%20B"),
            ("#/$defs/A%20B", "#/$defs/A%20B"),
            ("#/$defs/é", "#/$defs/%C3%A9"),
            ("#/$defs/L[int]", "#/$defs/L%5Bint%5D"),
            ("#here", "#/$defs/%C3%A9"),
            ("https://e.com/s", "#"),
            ("https://e.com/s#/$defs/A B", "#/$defs/A%20B"),
        ] {
            check(to(written), to(pointer), &[]);
        }
        for lost in ["#/$defs/C", "#there", "https://e.com/other", "other.json#/$defs/A"] {
            check(to(lost), to(lost), &[lost]);
        }
    }

    #[test]
    fn targets_elsewhere_are_definitions() {
        let all = json!({"A": {"items": {"$ref": "#/all/B"}}, "B": {"type": "null"}});
        check(
            json!({"$ref": "#/all/A", "all": all}),
            json!({"$ref": "#/$defs/~1all~1A",
                "all": {"A": {"items": {"$ref": "#/$defs/~1all~1B"}}, "B": {"type": "null"}},
                "$defs": {"/all/A": {"items": {"$ref": "#/$defs/~1all~1B"}},
                    "/all/B": {"type": "null"}}}),
            &[],
        );
    }
}
