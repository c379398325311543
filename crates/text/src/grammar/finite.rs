//! References that lead to themselves: a schema that only they could satisfy has no finite value.

use super::GrammarError;
use super::exact::SchemaRoot;
use serde_json::Value;
use std::collections::HashMap;

/// Checks that every part of a checked `schema` has a finite value, contradictions apart.
///
/// # Errors
/// If a part has none, because references lead to themselves.
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    let document = SchemaRoot { root: schema };
    let nodes = reachable(document);
    let mut parents: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        for child in children(document, node) {
            parents.entry(address(child)).or_default().push(at);
        }
    }
    let mut finite: HashMap<usize, bool> = HashMap::new();
    let mut waiting: Vec<usize> = (0..nodes.len()).rev().collect();
    while let Some(at) = waiting.pop() {
        let node = nodes[at];
        let is = |value: &Value| finite.get(&address(value)) == Some(&true);
        if !is(node) && has_finite_value(document, node, &is) {
            finite.insert(address(node), true);
            waiting.extend(parents.get(&address(node)).into_iter().flatten());
        }
    }
    let without = |node: &&&Value| finite.get(&address(node)) != Some(&true);
    match nodes.iter().rev().find(without) {
        None => Ok(()),
        Some(node) => Err(GrammarError::Schema {
            pointer: document.pointer_of(node),
            what: "expected a schema of values that end, found references that lead to themselves"
                .into(),
        }),
    }
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

/// Returns the subschemas that count, inner ones first.
fn reachable(document: SchemaRoot<'_>) -> Vec<&Value> {
    let (mut order, mut seen) = (Vec::new(), HashMap::new());
    let mut waiting = vec![(document.root, false)];
    while let Some((node, inner_done)) = waiting.pop() {
        if inner_done {
            order.push(node);
        } else if seen.insert(address(node), ()).is_none() {
            waiting.push((node, true));
            waiting.extend(children(document, node).into_iter().map(|child| (child, false)));
        }
    }
    order
}

fn target<'a>(document: SchemaRoot<'a>, schema: &'a Value) -> Option<&'a Value> {
    document.target(schema.get("$ref")?.as_str()?)
}

fn children<'a>(document: SchemaRoot<'a>, schema: &'a Value) -> Vec<&'a Value> {
    let mut children: Vec<&Value> = target(document, schema).into_iter().collect();
    for key in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        children.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
    }
    children.extend(["items", "additionalProperties"].iter().filter_map(|key| schema.get(key)));
    let properties = schema.get("properties").and_then(Value::as_object);
    children.extend(properties.into_iter().flat_map(|properties| properties.values()));
    children
}

/// Whether a schema has a finite value if exactly the subschemas have one for which `finite` holds.
/// A reference to nothing is an error elsewhere.
fn has_finite_value<'a>(
    document: SchemaRoot<'a>,
    schema: &'a Value,
    finite: &impl Fn(&Value) -> bool,
) -> bool {
    let list = |key: &str| schema.get(key).and_then(Value::as_array);
    let any = |key: &str| list(key).is_none_or(|options| options.iter().any(finite));
    target(document, schema).is_none_or(finite)
        && list("allOf").is_none_or(|all| all.iter().all(finite))
        && any("anyOf")
        && any("oneOf")
        && match schema.get("type").and_then(Value::as_str) {
            Some("object") => required(schema).all(finite),
            Some("array") => first_items(schema).all(finite),
            _ => true,
        }
}

fn required(schema: &Value) -> impl Iterator<Item = &Value> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| {
        let property = schema.get("properties").and_then(|all| all.get(name.as_str()?));
        property.or(schema.get("additionalProperties"))
    })
}

fn first_items(schema: &Value) -> impl Iterator<Item = &Value> {
    let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
    let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let rest = schema.get("items").filter(|_| least > first.len());
    first.iter().take(least).chain(rest)
}
