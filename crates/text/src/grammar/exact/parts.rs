//! Conjunctions of schemas and their alternatives.

use super::decimal::Decimal;
use super::numbers::{Bound, NumberSet};
use crate::grammar::references::{decoded, escaped};
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Alternatives of a conjunction, and schemas that are looked into to compare two.
const MAX_ALTERNATIVES: usize = 2000;
const MAX_COMPARED: usize = 6;
/// Schemas of which each is the next one's place.
const MAX_OPEN: usize = 200;

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub(in crate::grammar) enum Condition<'a> {
    /// Valid against the schema.
    Schema(&'a Value),
    /// Equal to the value.
    Equal(&'a Value),
}

/// A problem of a part.
pub(super) type ConditionError<'a> = (Condition<'a>, String);

impl<'a> Condition<'a> {
    /// What tells the part from all others of the same document.
    pub fn key(self) -> (bool, usize) {
        match self {
            Self::Schema(value) => (false, std::ptr::from_ref(value) as usize),
            Self::Equal(value) => (true, std::ptr::from_ref(value) as usize),
        }
    }

    /// The keywords of a schema that is an object.
    pub fn keywords(self) -> Option<&'a Map<String, Value>> {
        match self {
            Self::Schema(schema) => schema.as_object(),
            Self::Equal(_) => None,
        }
    }

    /// The values that the part lists, if it lists any.
    fn listed(self) -> Option<Vec<&'a Value>> {
        let Self::Schema(schema) = self else {
            let Self::Equal(value) = self else { return None };
            return Some(vec![value]);
        };
        let constant = schema.get("const").map(|value| vec![value]);
        let list = schema.get("enum").and_then(Value::as_array);
        match (constant, list) {
            (Some(constant), Some(list)) => {
                Some(constant.into_iter().filter(|value| contains(list.iter(), value)).collect())
            }
            (constant, list) => constant.or(list.map(|list| list.iter().collect())),
        }
    }

    fn types(self) -> Types {
        match self {
            Self::Equal(value) => Types::of(value),
            Self::Schema(schema) => match schema.get("type") {
                Some(Value::String(name)) => Types::named(name),
                Some(Value::Array(names)) => {
                    let names = names.iter().filter_map(Value::as_str).map(Types::named);
                    Types(names.fold(0, |all, Types(one)| all | one))
                }
                _ => Types::ANY,
            },
        }
    }
}

/// A set of types. Integers are a type apart from other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub const ANY: Self = Self(0b111_1111);
    pub const NULL: Self = Self(1);
    pub const BOOLEAN: Self = Self(2);
    pub const INTEGER: Self = Self(4);
    pub const FRACTION: Self = Self(8);
    pub const STRING: Self = Self(16);
    pub const ARRAY: Self = Self(32);
    pub const OBJECT: Self = Self(64);

    fn named(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self(Self::INTEGER.0 | Self::FRACTION.0),
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            _ => Self::OBJECT,
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(_) if decimal(value).is_some_and(|number| number.is_whole()) => {
                Self::INTEGER
            }
            Value::Number(_) => Self::FRACTION,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// One alternative of a conjunction: schemas of which the applicators in place are expanded.
pub(super) type Flat<'a> = Vec<Condition<'a>>;

pub(super) fn types(flat: &Flat) -> Types {
    Types(flat.iter().fold(Types::ANY.0, |all, part| all & part.types().0))
}

/// The values to which an alternative is limited, if it is limited to any.
pub(super) fn listed<'a>(flat: &Flat<'a>) -> Option<Vec<&'a Value>> {
    let mut lists = flat.iter().filter_map(|part| part.listed());
    let first = lists.next()?;
    Some(lists.fold(first, |kept, list| {
        kept.into_iter().filter(|value| contains(list.iter().copied(), value)).collect()
    }))
}

/// The numbers that an alternative allows, listed values apart.
pub(super) fn numbers<'a>(flat: &Flat<'a>) -> Result<NumberSet, ConditionError<'a>> {
    let integer = !types(flat).has(Types::FRACTION);
    let mut set = NumberSet { integer, ..NumberSet::default() };
    for part in flat {
        let Some(schema) = part.keywords() else { continue };
        set.add(schema).map_err(|(key, what)| (*part, format!("{key}: {what}")))?;
    }
    Ok(set)
}

pub(super) fn decimal(value: &Value) -> Option<Decimal> {
    let Value::Number(number) = value else { return None };
    Decimal::parse(&number.to_string())
}

/// Whether two values are equal, as JSON Schema compares them: 1 is 1.0.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => decimal(one) == decimal(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let found = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| equal(value, other))
            };
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}

fn contains<'a>(mut list: impl Iterator<Item = &'a Value>, value: &Value) -> bool {
    list.any(|other| equal(other, value))
}

/// The schemas in which a part stands.
struct Open {
    parts: Vec<(bool, usize)>,
    /// Whether the alternatives are only compared.
    compared: bool,
}

/// The document that references lead into.
#[derive(Clone, Copy)]
pub(in crate::grammar) struct SchemaRoot<'a> {
    pub root: &'a Value,
}

impl<'a> SchemaRoot<'a> {
    /// The schema that a reference leads to.
    pub fn target(self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(&decoded(reference.strip_prefix('#')?)?)
    }

    /// The place of a part of the document.
    pub fn pointer(self, part: Condition<'a>) -> String {
        let (Condition::Schema(value) | Condition::Equal(value)) = part;
        self.pointer_of(value)
    }

    /// The place of a value of the document, as a JSON pointer in a fragment.
    pub fn pointer_of(self, sought: &Value) -> String {
        fn search(at: &Value, sought: &Value, path: &mut Vec<String>) -> bool {
            if std::ptr::eq(at, sought) {
                return true;
            }
            let children: Vec<(String, &Value)> = match at {
                Value::Object(object) => {
                    object.iter().map(|(key, child)| (escaped(key), child)).collect()
                }
                Value::Array(list) => {
                    list.iter().enumerate().map(|(at, child)| (at.to_string(), child)).collect()
                }
                _ => return false,
            };
            children.into_iter().any(|(key, child)| {
                path.push(key);
                let found = search(child, sought, path);
                if !found {
                    path.pop();
                }
                found
            })
        }
        let mut path = vec!["#".to_owned()];
        search(self.root, sought, &mut path);
        path.join("/")
    }

    /// The alternatives of a conjunction.
    ///
    /// # Errors
    /// If they are too many, or a part of the schema is not supported.
    pub fn alternatives(
        self,
        parts: &[Condition<'a>],
    ) -> Result<Vec<Flat<'a>>, ConditionError<'a>> {
        let mut flats = vec![Vec::new()];
        for part in parts {
            flats = self.expand(*part, flats, &mut Open { parts: Vec::new(), compared: false })?;
        }
        Ok(flats)
    }

    /// The alternatives of a conjunction, to be compared with others: options of `oneOf` are not
    /// compared with each other again.
    fn compared(self, parts: &[Condition<'a>]) -> Result<Vec<Flat<'a>>, ConditionError<'a>> {
        let mut flats = vec![Vec::new()];
        for part in parts {
            flats = self.expand(*part, flats, &mut Open { parts: Vec::new(), compared: true })?;
        }
        Ok(flats)
    }

    /// Adds `part` to each of `flats`; `open` has the schemas in which it stands.
    fn expand(
        self,
        part: Condition<'a>,
        mut flats: Vec<Flat<'a>>,
        open: &mut Open,
    ) -> Result<Vec<Flat<'a>>, ConditionError<'a>> {
        let Condition::Schema(schema) = part else {
            flats.iter_mut().for_each(|flat| flat.push(part));
            return Ok(flats);
        };
        let Some(keywords) = schema.as_object() else {
            return Ok(if *schema == true { flats } else { Vec::new() });
        };
        if open.parts.contains(&part.key()) {
            return Err((part, "the reference leads to itself".into()));
        }
        if open.parts.len() > MAX_OPEN {
            return Err((
                part,
                format!("expected at most {MAX_OPEN} references in a row, found more"),
            ));
        }
        open.parts.push(part.key());
        flats.iter_mut().for_each(|flat| flat.push(part));
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            let target = self.target(reference);
            let target = target.ok_or_else(|| (part, format!("found nothing at {reference}")))?;
            flats = self.expand(Condition::Schema(target), flats, open)?;
        }
        let schemas = |key: &str| keywords.get(key).and_then(Value::as_array).into_iter().flatten();
        for each in schemas("allOf") {
            flats = self.expand(Condition::Schema(each), flats, open)?;
        }
        for key in ["anyOf", "oneOf"].into_iter().filter(|key| keywords.contains_key(*key)) {
            let options: Vec<Condition> = schemas(key).map(Condition::Schema).collect();
            if key == "oneOf" && !open.compared && !self.exclude_each_other(&options)? {
                return Err((
                    part,
                    "oneOf is supported for options that exclude each other".into(),
                ));
            }
            let mut all = Vec::new();
            for option in options {
                all.extend(self.expand(option, flats.clone(), open)?);
                if all.len() > MAX_ALTERNATIVES {
                    return Err((part, format!("has more than {MAX_ALTERNATIVES} alternatives")));
                }
            }
            flats = all;
        }
        open.parts.pop();
        Ok(flats)
    }

    fn exclude_each_other(self, options: &[Condition<'a>]) -> Result<bool, ConditionError<'a>> {
        let flats: Vec<Vec<Flat>> =
            options.iter().map(|option| self.compared(&[*option])).collect::<Result<_, _>>()?;
        Ok(flats.iter().enumerate().all(|(at, one)| {
            let mut others = flats[at + 1..].iter().flatten();
            others.all(|other| one.iter().all(|one| self.disjoint(one, other, 0)))
        }))
    }

    /// Whether it is certain that no value fits both alternatives.
    fn disjoint(self, one: &Flat<'a>, other: &Flat<'a>, depth: usize) -> bool {
        let both: Flat = one.iter().chain(other).copied().collect();
        let types = types(&both);
        if let (Some(one), Some(other)) = (listed(one), listed(other))
            && !one.iter().any(|value| contains(other.iter().copied(), value))
        {
            return true;
        }
        if types.has(Types(Types::NULL.0 | Types::BOOLEAN.0 | Types::STRING.0 | Types::ARRAY.0)) {
            return false;
        }
        let number = types.has(Types(Types::INTEGER.0 | Types::FRACTION.0));
        if number && !numbers(&both).is_ok_and(|set| is_empty(&set)) {
            return false;
        }
        !types.has(Types::OBJECT) || self.differ_in_a_property(one, other, depth)
    }

    fn differ_in_a_property(self, one: &Flat<'a>, other: &Flat<'a>, depth: usize) -> bool {
        let both = one.iter().chain(other);
        let mut required =
            both.filter_map(|part| part.keywords()?.get("required")?.as_array()).flatten();
        let property = |flat: &Flat<'a>, name: &str| {
            let schemas =
                flat.iter().filter_map(|part| part.keywords()?.get("properties")?.get(name));
            self.compared(&schemas.map(Condition::Schema).collect::<Vec<_>>()).ok()
        };
        depth < MAX_COMPARED
            && required.any(|name| {
                let name = name.as_str().unwrap_or_default();
                let (Some(one), Some(other)) = (property(one, name), property(other, name)) else {
                    return false;
                };
                one.iter().all(|one| other.iter().all(|other| self.disjoint(one, other, depth + 1)))
            })
    }
}

/// Whether the ends of a range cross.
fn is_empty(set: &NumberSet) -> bool {
    let (Some(Bound { value: low, excluded: first }), Some(Bound { value: high, excluded: last })) =
        (&set.least, &set.most)
    else {
        return false;
    };
    match low.cmp(high) {
        Ordering::Less => false,
        Ordering::Equal => *first || *last,
        Ordering::Greater => true,
    }
}
