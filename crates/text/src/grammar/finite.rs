//! References that lead to themselves: a schema that only they could satisfy has no finite value.

use super::GrammarError;
use super::exact::SchemaRoot;
use serde_json::Value;
use std::collections::HashMap;

/// Parts without a finite value that are replaced.
const MAX_ENDLESS: usize = 100;
/// Schemas that hold together and are looked into.
const MAX_CONJUNCTS: usize = 64;

/// Replaces the parts of a checked `schema` that have no finite value, contradictions apart, by
/// `false`: answers end, so that they are without them.
///
/// # Errors
/// If the whole has none, because references lead to themselves, or very many parts have none.
pub(super) fn without_endless(schema: &mut Value) -> Result<(), GrammarError> {
    let endless = endless(schema);
    if endless.iter().any(|pointer| pointer == "#") || endless.len() > MAX_ENDLESS {
        return Err(GrammarError::Schema {
            pointer: endless.into_iter().next_back().unwrap_or_default(),
            what: "expected a schema of values that end, found references that lead to themselves"
                .into(),
        });
    }
    for pointer in endless {
        if let Some(part) = schema.pointer_mut(&pointer[1..]) {
            *part = false.into();
        }
    }
    Ok(())
}

/// Returns the pointers of the parts that have no finite value, inner ones first; of very many, the
/// outer ones.
fn endless(schema: &Value) -> Vec<String> {
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
    let outer = nodes.iter().rev().filter(without).take(MAX_ENDLESS + 1);
    let mut pointers: Vec<String> = outer.map(|node| document.pointer_of(node)).collect();
    pointers.reverse();
    pointers
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

/// Returns the parts on which it depends whether a schema has a finite value.
fn children<'a>(document: SchemaRoot<'a>, schema: &'a Value) -> Vec<&'a Value> {
    conjuncts(document, schema).into_iter().flat_map(|part| own_children(document, part)).collect()
}

/// Returns a schema and all that hold with it: what it refers to, and the members of `allOf`.
fn conjuncts<'a>(document: SchemaRoot<'a>, schema: &'a Value) -> Vec<&'a Value> {
    let mut all = vec![schema];
    let mut next = 0;
    while let Some(part) = all.get(next).copied().filter(|_| next < MAX_CONJUNCTS) {
        next += 1;
        let members = part.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for member in target(document, part).into_iter().chain(members) {
            if !all.iter().any(|known| std::ptr::eq(*known, member)) {
                all.push(member);
            }
        }
    }
    all
}

fn own_children<'a>(document: SchemaRoot<'a>, schema: &'a Value) -> Vec<&'a Value> {
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
        && has_value_of_a_type(&conjuncts(document, schema), finite)
}

/// Whether one of the types that all `parts` allow has a finite value.
fn has_value_of_a_type(parts: &[&Value], finite: &impl Fn(&Value) -> bool) -> bool {
    let allows = |part: &Value, name: &str| match part.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(names)) => names.iter().any(|known| known == name),
        _ => true,
    };
    let allowed = |name: &str| parts.iter().all(|part| allows(part, name));
    let all = |key: &str| parts.iter().filter_map(|part| part.get(key)).collect::<Vec<_>>();
    let names = all("required").into_iter().filter_map(Value::as_array).flatten();
    let least = all("minItems").into_iter().filter_map(Value::as_u64).max().unwrap_or(0) as usize;
    let fits = |value: Option<&Value>| value.is_none_or(finite);
    // Of a contradiction, another check says that no value fits.
    let (object, array) = (allowed("object"), allowed("array"));
    let other = ["null", "boolean", "integer", "number", "string"].into_iter().any(allowed);
    other
        || !(object || array)
        || object
            && names
                .filter_map(Value::as_str)
                .all(|name| parts.iter().all(|part| fits(property(part, name))))
        || array && parts.iter().all(|part| first_items(part, least).all(finite))
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let property = schema.get("properties").and_then(|all| all.get(name));
    property.or(schema.get("additionalProperties"))
}

fn first_items(schema: &Value, least: usize) -> impl Iterator<Item = &Value> {
    let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let rest = schema.get("items").filter(|_| least > first.len());
    first.iter().take(least).chain(rest)
}
