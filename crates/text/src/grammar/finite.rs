//! References that lead to themselves: a schema that only they could satisfy has no finite value.

use super::error::GrammarError;
use super::exact::SchemaRoot;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};

/// Parts without a finite value that are replaced.
const MAX_ENDLESS: usize = 100;
/// Schemas that are looked into because they hold together with others, and their parts.
const MAX_CONJUNCTS: usize = 100_000;

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
        for child in node.children(document) {
            parents.entry(address(child)).or_default().push(at);
        }
    }
    let mut finite: HashSet<usize> = HashSet::new();
    let mut waiting: VecDeque<usize> = (0..nodes.len()).collect();
    let mut waits = vec![true; nodes.len()];
    while let Some(at) = waiting.pop_front() {
        waits[at] = false;
        let (node, here) = (&nodes[at], address(nodes[at].schema));
        let is = |value: &Value| finite.contains(&address(value));
        if is(node.schema) || !node.has_finite_value(document, &is) {
            continue;
        }
        finite.insert(here);
        for parent in parents.get(&here).into_iter().flatten() {
            if !std::mem::replace(&mut waits[*parent], true) {
                waiting.push_back(*parent);
            }
        }
    }
    let without = |node: &&Node| !finite.contains(&address(node.schema));
    let outer = nodes.iter().rev().filter(without).take(MAX_ENDLESS + 1);
    let mut pointers: Vec<String> = outer.map(|node| document.pointer_of(node.schema)).collect();
    pointers.reverse();
    pointers
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

/// A schema and all that hold with it, which begin with itself.
struct Node<'a> {
    schema: &'a Value,
    parts: Vec<&'a Value>,
}

/// Returns the subschemas that count, inner ones first.
fn reachable(document: SchemaRoot<'_>) -> Vec<Node<'_>> {
    let (mut order, mut seen) = (Vec::new(), HashSet::new());
    let mut conjuncts = Conjuncts { document, left: MAX_CONJUNCTS };
    let mut waiting = vec![(document.root, None)];
    while let Some((schema, node)) = waiting.pop() {
        if let Some(node) = node {
            order.push(node);
        } else if seen.insert(address(schema)) {
            let node = Node { schema, parts: conjuncts.of(schema) };
            let children = node.children(document);
            waiting.push((schema, Some(node)));
            waiting.extend(children.into_iter().map(|child| (child, None)));
        }
    }
    order
}

fn target<'a>(document: SchemaRoot<'a>, schema: &'a Value) -> Option<&'a Value> {
    document.target(schema.get("$ref")?.as_str()?)
}

/// Finds the schemas that hold together.
struct Conjuncts<'a> {
    document: SchemaRoot<'a>,
    /// Of [`MAX_CONJUNCTS`].
    left: usize,
}

impl<'a> Conjuncts<'a> {
    /// Returns a schema and all that hold with it: what it refers to, and the members of `allOf`.
    /// It is alone if it is no more than a reference, whose target decides, and after very many.
    fn of(&mut self, schema: &'a Value) -> Vec<&'a Value> {
        let refers =
            schema.as_object().is_some_and(|all| all.len() == 1 && all.contains_key("$ref"));
        let all = if refers { None } else { self.expanded(schema) };
        all.unwrap_or_else(|| vec![schema])
    }

    fn expanded(&mut self, schema: &'a Value) -> Option<Vec<&'a Value>> {
        let (mut all, mut known) = (vec![schema], HashSet::from([address(schema)]));
        let mut next = 0;
        while let Some(part) = all.get(next).copied().filter(|_| self.left > 0) {
            next += 1;
            let members = part.get("allOf").and_then(Value::as_array).into_iter().flatten();
            for member in target(self.document, part).into_iter().chain(members) {
                if self.left > 0 && known.insert(address(member)) {
                    let children = own_children(self.document, member).len();
                    self.left = self.left.saturating_sub(1 + children);
                    all.push(member);
                }
            }
        }
        (self.left > 0).then_some(all)
    }
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

impl<'a> Node<'a> {
    /// Returns the schemas on which it depends whether the schema has a finite value.
    fn children(&self, document: SchemaRoot<'a>) -> Vec<&'a Value> {
        self.parts.iter().flat_map(|part| own_children(document, part)).collect()
    }

    /// Whether the schema has a finite value if exactly the subschemas have one for which `finite`
    /// holds.
    fn has_finite_value(&self, document: SchemaRoot<'a>, finite: &impl Fn(&Value) -> bool) -> bool {
        let list = |key: &str| self.schema.get(key).and_then(Value::as_array);
        let any = |key: &str| list(key).is_none_or(|options| options.iter().any(finite));
        target(document, self.schema).is_none_or(finite)
            && list("allOf").is_none_or(|all| all.iter().all(finite))
            && any("anyOf")
            && any("oneOf")
            && has_value_of_a_type(&self.parts, finite)
    }
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
    let least = all("minItems").into_iter().filter_map(Value::as_u64).max().unwrap_or(0) as usize;
    // Of a contradiction, another check says that no value fits.
    let (object, array) = (allowed("object"), allowed("array"));
    let other = ["null", "boolean", "integer", "number", "string"].into_iter().any(allowed);
    other
        || !(object || array)
        || object && has_object(parts, finite)
        || array && parts.iter().all(|part| first_items(part, least).all(finite))
}

/// Whether the properties that `parts` require have finite values.
fn has_object(parts: &[&Value], finite: &impl Fn(&Value) -> bool) -> bool {
    let required = parts.iter().filter_map(|part| part.get("required")?.as_array()).flatten();
    let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
    parts.iter().all(|part| {
        let named = part.get("properties").and_then(Value::as_object);
        let is_named = |name: &&str| named.is_some_and(|named| named.contains_key(*name));
        let others = part.get("additionalProperties").is_none_or(finite);
        named
            .into_iter()
            .flatten()
            .all(|(name, value)| !required.contains(name.as_str()) || finite(value))
            && (others || required.iter().all(is_named))
    })
}

fn first_items(schema: &Value, least: usize) -> impl Iterator<Item = &Value> {
    let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let rest = schema.get("items").filter(|_| least > first.len());
    first.iter().take(least).chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_that_hold_together_are_looked_into_a_bounded_number_of_times() {
        let check = |reference: Value| {
            let all = json!({"allOf": vec![json!({}); 9900]});
            let mut schema = json!({"$defs": {"a": all}, "anyOf": vec![reference; 9900]});
            let before = schema.clone();
            without_endless(&mut schema).unwrap();
            assert_eq!(schema, before);
        };
        check(json!({"$ref": "#/$defs/a"}));
        check(json!({"$ref": "#/$defs/a", "type": "object"}));
    }

    #[test]
    fn required_properties_are_looked_at_once() {
        let names: Vec<String> = (0..4000).map(|at| format!("p{at}")).collect();
        let parts: Vec<Value> =
            names.iter().map(|name| json!({"properties": {name: true}})).collect();
        let mut schema = json!({"type": "object", "required": names, "allOf": parts});
        without_endless(&mut schema).unwrap();
        schema["allOf"][7]["properties"]["p7"] = json!({"$ref": "#"});
        assert!(without_endless(&mut schema).is_err());
    }
}
