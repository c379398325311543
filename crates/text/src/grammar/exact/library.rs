//! What llguidance 1.9.1 compiles exactly of numbers, and of objects with a number of properties.
//!
//! A whole number that is excluded and has the other end of the range in the next unit is accepted;
//! an end of two or more digits after the point has no shorter number below it; doubles lose
//! digits; steps are computed with doubles. Found by random schemas against exact arithmetic.

use super::decimal::Decimal;
use super::numbers::{Bound, NumberSet, multiples_of};
use serde_json::{Map, Value};

/// Integers below 2^53 and their neighbours are doubles without loss.
const EXACT_INTEGER: &str = "9007199254740991";
/// Digits after the point that are read without overflow.
const MAX_FRACTION: usize = 15;
/// Bounds of a schema that are compared with each other.
const MAX_BOUNDS: usize = 64;

/// Whether llguidance compiles every number of `schema` exactly. Parts that may be merged count as
/// one.
pub(in crate::grammar) fn is_exact(schema: &Value) -> bool {
    let mut found = Found::default();
    collect(schema, true, &mut found);
    let counted = found.counted || found.merges && found.counts && found.optional;
    if counted || found.steps_meet_constants() || !found.constants.iter().all(is_exact_constant) {
        return false;
    }
    match found.merges {
        false => found.numbers.iter().all(|numbers| sets(&[numbers]).is_some_and(all_exact)),
        true => {
            let all: Vec<&Numbers> = found.numbers.iter().collect();
            all.len() <= MAX_BOUNDS && sets(&all).is_some_and(all_exact)
        }
    }
}

/// The number keywords of a schema.
#[derive(Debug)]
struct Numbers<'a> {
    keywords: &'a Map<String, Value>,
    integer: bool,
    fraction: bool,
}

#[derive(Debug, Default)]
struct Found<'a> {
    numbers: Vec<Numbers<'a>>,
    constants: Vec<&'a Value>,
    /// Whether bounds of several schemas may meet in one number.
    merges: bool,
    /// Whether some schema limits the number of properties, some has one that is not required, and
    /// some does both: the library counts properties that are all required.
    counts: bool,
    optional: bool,
    counted: bool,
}

impl Found<'_> {
    /// Whether a number may be one of a list and a multiple: the library takes such numbers for
    /// ranges, and finds no contradiction in them.
    fn steps_meet_constants(&self) -> bool {
        let steps = |keywords: &Map<String, Value>| keywords.contains_key("multipleOf");
        let listed = |keywords: &Map<String, Value>| {
            keywords.contains_key("const") || keywords.contains_key("enum")
        };
        !self.constants.is_empty()
            && self
                .numbers
                .iter()
                .any(|numbers| steps(numbers.keywords) && (self.merges || listed(numbers.keywords)))
    }
}

const BOUNDS: [&str; 5] =
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// Collects numbers; `keywords` says whether the members of an object are keywords.
fn collect<'a>(schema: &'a Value, keywords: bool, found: &mut Found<'a>) {
    let object = match schema {
        Value::Array(list) => return list.iter().for_each(|value| collect(value, true, found)),
        Value::Object(object) => object,
        _ => return,
    };
    if !keywords {
        return object.values().for_each(|value| collect(value, true, found));
    }
    let has = |key: &&str| object.contains_key(*key);
    let bounded = BOUNDS.iter().any(&has);
    let all_of = object.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
    let applied = ["$ref", "anyOf", "oneOf"].iter().filter(|key| has(key)).count();
    // Properties and items of schemas that are merged are merged as well.
    let own = ["properties", "items", "prefixItems", "additionalProperties"].iter().any(has);
    found.merges |= all_of + applied + usize::from(bounded || own) > 1;
    let counts = object.contains_key("maxProperties");
    let optional = has_optional_property(object);
    found.counts |= counts;
    found.optional |= optional;
    found.counted |= counts && optional;
    if bounded {
        let names = match object.get("type") {
            Some(Value::Array(names)) => names.iter().collect(),
            Some(name) => vec![name],
            None => Vec::new(),
        };
        let typed = |name: &str| names.is_empty() || names.iter().any(|known| **known == name);
        let (integer, fraction) = (typed("integer"), typed("number"));
        if integer || fraction {
            found.numbers.push(Numbers { keywords: object, integer, fraction });
        }
    }
    for (key, value) in object {
        match key.as_str() {
            "const" | "enum" => constants(value, &mut found.constants),
            "properties" | "$defs" | "definitions" => collect(value, false, found),
            _ => collect(value, true, found),
        }
    }
}

fn has_optional_property(schema: &Map<String, Value>) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|all| all.keys().any(|name| !is_required(name)))
}

fn constants<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(list) => list.iter().for_each(|value| constants(value, found)),
        Value::Object(object) => object.values().for_each(|value| constants(value, found)),
        _ => {}
    }
}

fn is_exact_constant(value: &&Value) -> bool {
    let Value::Number(number) = value else { return true };
    Decimal::of(number).is_ok_and(|number| is_small(&number))
}

fn is_small(number: &Decimal) -> bool {
    let most = Decimal::parse(EXACT_INTEGER);
    most.is_some_and(|most| number.magnitude() <= most)
}

/// The sets that each pair of ends gives, in both types; `None` if a bound cannot be read.
fn sets(all: &[&Numbers]) -> Option<Vec<NumberSet>> {
    let (mut least, mut most, mut multiples) = (vec![None], vec![None], Vec::new());
    for numbers in all {
        let mut set = NumberSet::default();
        set.add(numbers.keywords).ok()?;
        least.extend(set.least.map(Some));
        most.extend(set.most.map(Some));
        multiples.extend(set.multiples);
    }
    let mut sets = Vec::new();
    for integer in [true, false] {
        if !all.iter().any(|numbers| if integer { numbers.integer } else { numbers.fraction }) {
            continue;
        }
        for least in &least {
            for most in &most {
                let (least, most) = (least.clone(), most.clone());
                sets.push(NumberSet { integer, least, most, multiples: multiples.clone() });
            }
        }
    }
    Some(sets)
}

fn all_exact(sets: Vec<NumberSet>) -> bool {
    sets.iter().all(|set| {
        let ends = [&set.least, &set.most];
        let small = ends.into_iter().flatten().all(|bound| is_small(&bound.value));
        small && steps_are_exact(set) && (set.integer || range_is_exact(set))
    })
}

/// Whether the range of a set that is not of integers is exact.
fn range_is_exact(set: &NumberSet) -> bool {
    let NumberSet { least, most, .. } = set;
    let fits = |bound: &Bound| bound.value.fraction.len() <= MAX_FRACTION;
    if ![least, most].into_iter().flatten().all(fits) {
        return false;
    }
    let positive = least.as_ref().is_none_or(|least| !least.value.negative);
    let upper_is_positive = most.as_ref().is_some_and(|most| !most.value.negative);
    if upper_is_positive && !unit_is_exact(least.as_ref().filter(|_| positive), most.as_ref()) {
        return false;
    }
    // The negative part, without its sign.
    let lower = least.as_ref().filter(|least| least.value.negative);
    let inner = most.as_ref().filter(|most| most.value.negative || most.value.is_zero());
    lower.is_none_or(|lower| unit_is_exact(inner, Some(lower)))
}

/// Whether the magnitudes between two ends are exact.
fn unit_is_exact(low: Option<&Bound>, high: Option<&Bound>) -> bool {
    let Some(high) = high else { return true };
    if high.value.fraction.len() > 1 {
        return false;
    }
    let excluded = low.filter(|low| low.excluded && low.value.is_whole());
    excluded.is_none_or(|low| low.value.whole != high.value.whole || high.value.is_whole())
}

/// Whether steps fit the arithmetic of llguidance, and whether doubles can tell that a range has
/// one.
fn steps_are_exact(set: &NumberSet) -> bool {
    // Of a step with digits after the point, the library wants all of them in every number.
    if set.multiples.iter().any(|step| !step.is_whole() && multiples_of(step).is_some()) {
        return false;
    }
    let mut product = 1u64;
    for step in &set.multiples {
        let Some(coefficient) = coefficient(step) else { return false };
        product = product.saturating_mul(coefficient);
    }
    if product > u64::from(u32::MAX) || set.multiples.len() > 1 && product > 10_000 {
        return false;
    }
    let whole = set.multiples.iter().all(Decimal::is_whole);
    let narrow = set.least.is_some() && set.most.is_some();
    set.multiples.is_empty() || whole || !narrow
}

/// The step as llguidance reads it, times a power of ten, if it reads it without loss.
fn coefficient(step: &Decimal) -> Option<u64> {
    let text = format!("{}.{}", step.whole, step.fraction);
    let mut value: f64 = format!("0{text}0").parse().ok()?;
    let mut places = 0;
    while value.fract() != 0.0 {
        value *= 10.0;
        places += 1;
        if places > step.fraction.len() {
            return None;
        }
    }
    let exact = step.scaled(places)? as f64 == value && value <= f64::from(u32::MAX);
    exact.then_some(value as u64)
}
