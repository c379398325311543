//! References as they are written, as JSON pointers to places that checks keep.
//!
//! A reference may lead to any place of the document, by its pointer with or without the escapes
//! of a URI, by an anchor, or after the document's own address. Targets at places that are not
//! subschemas are copied into `$defs`.

use super::references::{decoded, encoded, escaped, has_reference, reference, rewrite};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Bytes of pointers and copies that are written.
const MAX_WRITTEN: usize = 4 << 20;

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
        written: 0,
        lost: HashSet::new(),
    };
    resolver.find_anchors(schema, &mut Vec::new());
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
    /// Bytes of pointers and copies so far.
    written: usize,
    /// References that lead nowhere, or whose targets are too long to be written.
    lost: HashSet<String>,
}

impl<'a> Resolver<'a> {
    fn find_anchors(&mut self, at: &'a Value, path: &mut Vec<PointerStep<'a>>) {
        if let Some(name) = at.get("$anchor").and_then(Value::as_str) {
            self.add_anchor(name, path);
        }
        let members: Box<dyn Iterator<Item = (PointerStep, &Value)>> = match at {
            Value::Object(object) => {
                Box::new(object.iter().map(|(key, value)| (PointerStep::Key(key), value)))
            }
            Value::Array(list) => {
                Box::new(list.iter().enumerate().map(|(at, value)| (PointerStep::Item(at), value)))
            }
            _ => return,
        };
        for (step, value) in members {
            if !matches!(step, PointerStep::Key("const" | "enum")) {
                path.push(step);
                self.find_anchors(value, path);
                path.pop();
            }
        }
    }

    fn add_anchor(&mut self, name: &'a str, path: &[PointerStep]) {
        if self.anchors.contains_key(name) || self.is_full() {
            return;
        }
        let pointer: String = path.iter().map(PointerStep::written).collect();
        if self.count(pointer.len()) {
            self.anchors.insert(name, pointer);
        }
    }

    fn is_full(&self) -> bool {
        self.written > MAX_WRITTEN
    }

    /// Counts bytes that are to be written, and returns whether they may be.
    fn count(&mut self, bytes: usize) -> bool {
        self.written = self.written.saturating_add(bytes);
        !self.is_full()
    }

    /// Returns a reference as the pointer of a subschema.
    fn pointer(&mut self, reference: &str) -> String {
        self.found(reference).unwrap_or_else(|| {
            self.lost.insert(reference.to_owned());
            reference.to_owned()
        })
    }

    fn found(&mut self, reference: &str) -> Option<String> {
        if self.is_full() || self.lost.contains(reference) {
            return None;
        }
        let pointer = self.target(reference).filter(|pointer| self.count(pointer.len()))?;
        if is_subschema(self.document, &pointer) {
            return Some(format!("#{}", encoded(&pointer)));
        }
        if !self.known.contains(&pointer) {
            if !self.count(self.document.pointer(&pointer).map_or(0, weight)) {
                return None;
            }
            self.known.insert(pointer.clone());
            self.copies.push(pointer.clone());
        }
        Some(format!("#/$defs/{}", encoded(&escaped(&pointer))))
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

/// A key or an index of a pointer.
enum PointerStep<'a> {
    Key(&'a str),
    Item(usize),
}

impl PointerStep<'_> {
    fn written(&self) -> String {
        match self {
            Self::Key(key) => format!("/{}", escaped(key)),
            Self::Item(at) => format!("/{at}"),
        }
    }
}

/// About the bytes of a value in memory.
pub(super) fn weight(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(weight).sum(),
            Value::Object(object) => {
                object.iter().map(|(key, value)| key.len() + weight(value)).sum()
            }
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

    #[test]
    fn long_paths_are_written_a_bounded_number_of_times() {
        let name = " ".repeat(200_000);
        let here = vec![json!({"$ref": "#a"}); 20_000];
        let schema = json!({"$defs": {&name: {"$anchor": "a"}}, "anyOf": here});
        assert!(resolved(&schema).1.contains("#a"));
        let anchors: Vec<Value> =
            (0..10_000).map(|at| json!({"$anchor": format!("a{at}")})).collect();
        let schema = json!({&name: anchors, "$ref": "#a9999"});
        assert!(resolved(&schema).1.contains("#a9999"));
        let schema = json!({&name: vec![1; 125_000], "$ref": "#"});
        assert!(resolved(&schema).1.is_empty());
    }

    #[test]
    fn targets_are_copied_a_bounded_number_of_times() {
        // Each `~` of a name may be written as `~0`, so that one place has many pointers.
        let pointer = |bits: usize| -> String {
            (0..12).map(|bit| if bits >> bit & 1 == 1 { "~0" } else { "~" }).collect()
        };
        let all: Vec<Value> =
            (0..4096).map(|bits| json!({"$ref": format!("#/{}", pointer(bits))})).collect();
        let schema = json!({"~~~~~~~~~~~~": {"title": "a".repeat(300_000)}, "anyOf": all});
        assert!(resolved(&schema).1.len() > 4000);
    }
}
