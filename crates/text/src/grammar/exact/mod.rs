//! Rules for schemas whose numbers llguidance does not compile exactly.
//!
//! llguidance computes with doubles: some bounds are off by their end, integers beyond 53 bits are
//! rounded. A schema that has such a number becomes rules in llguidance's dialect of Lark, down to
//! the parts that have none, which are schemas within the rules. A rule belongs to a conjunction of
//! schemas, so that schemas in `allOf` are merged where they meet and recursion ends.

mod decimal;
mod library;
mod numbers;
mod parts;

pub(super) use library::is_exact;
pub(super) use parts::{Condition, SchemaRoot};

use super::error::GrammarError;
use super::lark::{literal, with_form};
use super::references::has_reference;
use decimal::Decimal;
use llguidance::api::GrammarWithLexer;
use numbers::Bound;
use parts::{ConditionError, Flat, Types, decimal, listed, types};
use serde_json::{Map, Number, Value, json};
use std::collections::{HashMap, HashSet};

/// Rules of a grammar.
const MAX_RULES: usize = 50_000;
/// Rules of an object whose members are counted.
pub(super) const MAX_COUNTED: usize = 4000;

/// Separators as in schemas that llguidance compiles, and names of properties.
const COMMON: &str = "%llguidance {\"ignore_once\": true}\nCOMMA: /, ?/\nCOLON: /: ?/\n\
                      NAME: /\"([^\"\\\\\\x00-\\x1f\\x7f]|\\\\[\"\\\\bfnrt])*\"/\n";

/// Returns what is wrong with a number in a value of a schema: it may have lost digits, or has too
/// many.
pub(super) fn lost_number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Decimal::of(number).err(),
        Value::Array(list) => list.iter().find_map(lost_number),
        Value::Object(object) => object.values().find_map(lost_number),
        _ => None,
    }
}

/// Checks that a bound of a schema is the one that was written, and that ranges can end there.
///
/// # Errors
/// If it may have lost digits, or has too many.
pub(super) fn bound(number: &Number) -> Result<(), String> {
    Bound::read(number).map(drop)
}

/// Returns the grammar of JSON values that fit all `parts` of the schema `root`; `None` if there
/// are none.
///
/// # Errors
/// If a part cannot be expressed.
pub(super) fn grammar(
    root: &Value,
    parts: &[Condition<'_>],
) -> Result<Option<GrammarWithLexer>, GrammarError> {
    let document = SchemaRoot { root };
    let mut writer = RuleWriter {
        document,
        rules: COMMON.to_owned(),
        names: HashMap::new(),
        count: 0,
        terminals: HashMap::new(),
    };
    let start = writer.rule(parts).map_err(|problem| error(document, problem))?;
    Ok(start.map(|start| GrammarWithLexer::from_lark(format!("start: {start}\n{}", writer.rules))))
}

/// Arguments of a call: the properties of one alternative of a schema of objects.
pub(super) struct Arguments<'a> {
    /// Names in order, each with all that its value must be.
    pub properties: Vec<(&'a str, Vec<Condition<'a>>)>,
    pub required: Vec<&'a str>,
    /// All that the value of any other property must be.
    pub others: Vec<Condition<'a>>,
    /// Whether the schema says that there may be others, or names no properties at all.
    pub invites_others: bool,
    /// Most properties.
    pub most: Option<usize>,
}

/// Returns the alternatives of the arguments that a checked `schema` allows.
///
/// # Errors
/// If the schema cannot be expanded.
pub(super) fn arguments(schema: &Value) -> Result<Vec<Arguments<'_>>, GrammarError> {
    let mut all = Vec::new();
    for flat in alternatives(schema, &[Condition::Schema(schema)])? {
        let values = listed(&flat).map(|values| values.into_iter().map(Some).collect());
        for value in values.unwrap_or(vec![None]) {
            let parts = flat.iter().copied().chain(value.map(Condition::Equal));
            let object = types(&flat).has(Types::OBJECT) && value.is_none_or(Value::is_object);
            all.extend(object.then(|| merged(&parts.map(ObjectPart::of).collect::<Vec<_>>())));
        }
    }
    Ok(all)
}

/// The strings of an alternative.
pub(super) struct Strings<'a> {
    /// The only ones, if they are listed.
    pub values: Option<Vec<&'a str>>,
    /// Schemas that limit them.
    pub keywords: Vec<&'a Map<String, Value>>,
}

/// Returns the alternatives of the strings that fit all `parts` of the schema `root`.
///
/// # Errors
/// If a part cannot be expanded.
pub(super) fn strings<'a>(
    root: &'a Value,
    parts: &[Condition<'a>],
) -> Result<Vec<Strings<'a>>, GrammarError> {
    let flats = alternatives(root, parts)?.into_iter();
    let flats = flats.filter(|flat| types(flat).has(Types::STRING));
    Ok(flats
        .map(|flat| Strings {
            values: listed(&flat)
                .map(|values| values.into_iter().filter_map(Value::as_str).collect()),
            keywords: flat.iter().filter_map(|part| part.keywords()).collect(),
        })
        .collect())
}

fn alternatives<'a>(
    root: &'a Value,
    parts: &[Condition<'a>],
) -> Result<Vec<Flat<'a>>, GrammarError> {
    let document = SchemaRoot { root };
    document.alternatives(parts).map_err(|problem| error(document, problem))
}

fn error<'a>(document: SchemaRoot<'a>, (part, what): ConditionError<'a>) -> GrammarError {
    GrammarError::Schema { pointer: document.pointer(part), what }
}

struct RuleWriter<'a> {
    document: SchemaRoot<'a>,
    rules: String,
    /// The rules of conjunctions; `None` where no value fits.
    names: HashMap<Vec<(bool, usize)>, Option<String>>,
    count: usize,
    terminals: HashMap<String, String>,
}

type Written<'a> = Result<Option<String>, ConditionError<'a>>;

impl<'a> RuleWriter<'a> {
    /// Returns the rule of the values that fit all `parts`.
    fn rule(&mut self, parts: &[Condition<'a>]) -> Written<'a> {
        let mut kept: Vec<Condition> = Vec::new();
        for part in parts {
            if !kept.iter().any(|other| other.key() == part.key()) {
                kept.push(*part);
            }
        }
        let key: Vec<_> = kept.iter().map(|part| part.key()).collect();
        if let Some(name) = self.names.get(&key) {
            return Ok(name.clone());
        }
        let name = self.name();
        if self.count > MAX_RULES {
            let part = kept.first().copied().unwrap_or(Condition::Schema(self.document.root));
            return Err((part, format!("expected at most {MAX_RULES} rules, found more")));
        }
        self.names.insert(key.clone(), Some(name.clone()));
        let options = match &kept[..] {
            [] => vec![leaf(Value::Bool(true))],
            [Condition::Schema(schema)] if !has_reference(schema) && is_exact(schema) => {
                if **schema == false { Vec::new() } else { vec![leaf((*schema).clone())] }
            }
            _ => self.options(&kept)?,
        };
        if options.is_empty() {
            self.names.insert(key, None);
            return Ok(None);
        }
        self.rules.push_str(&format!("{name}: {}\n", options.join(" | ")));
        Ok(Some(name))
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn options(&mut self, parts: &[Condition<'a>]) -> Result<Vec<String>, ConditionError<'a>> {
        let mut options = Vec::new();
        for flat in self.document.alternatives(parts)? {
            self.flat(&flat, &mut options)?;
        }
        options.dedup();
        Ok(options)
    }

    /// Adds the values of an alternative, type by type.
    fn flat(
        &mut self,
        flat: &Flat<'a>,
        options: &mut Vec<String>,
    ) -> Result<(), ConditionError<'a>> {
        let (types, values) = (types(flat), listed(flat));
        let has = |value: &Value| values.as_ref().is_none_or(|values| values.contains(&value));
        for (kind, words) in [(Types::NULL, &WORDS[..1]), (Types::BOOLEAN, &WORDS[1..])] {
            let words = words.iter().filter(|word| types.has(kind) && has(word));
            options.extend(words.map(|word| literal(&word.to_string())));
        }
        if types.has(Types::INTEGER) || types.has(Types::FRACTION) {
            options.extend(self.number(flat, values.as_deref())?);
        }
        if types.has(Types::STRING) {
            options.extend(string(flat, values.as_deref()));
        }
        let compounds = |kind: fn(&Value) -> bool| match &values {
            None => vec![None],
            Some(values) => {
                values.iter().filter(|value| kind(value)).map(|value| Some(*value)).collect()
            }
        };
        let of = |value: Option<&'a Value>| {
            let mut flat = flat.clone();
            flat.extend(value.map(Condition::Equal));
            flat
        };
        if types.has(Types::ARRAY) {
            for value in compounds(Value::is_array) {
                options.extend(self.array(&of(value))?);
            }
        }
        if types.has(Types::OBJECT) {
            for value in compounds(Value::is_object) {
                options.extend(self.object(&of(value))?);
            }
        }
        Ok(())
    }

    fn number(
        &mut self,
        flat: &Flat<'a>,
        values: Option<&[&Value]>,
    ) -> Result<Vec<String>, ConditionError<'a>> {
        let set = parts::numbers(flat)?;
        if let Some(values) = values {
            let found = values.iter().filter_map(|value| decimal(value));
            return Ok(found
                .filter(|value| set.has(value))
                .map(|value| literal(&value.to_string()))
                .collect());
        }
        if set.is_free() {
            let kind = if set.integer { "integer" } else { "number" };
            return Ok(vec![leaf(json!({ "type": kind }))]);
        }
        let part = flat[0];
        let Some(terminal) = set.terminal().map_err(|what| (part, what))? else {
            return Ok(Vec::new());
        };
        let next = format!("NUMBER{}", self.terminals.len());
        let name = self.terminals.entry(terminal.clone()).or_insert_with(|| {
            self.rules.push_str(&format!("{next}: {terminal}\n"));
            next
        });
        Ok(vec![name.clone()])
    }

    fn array(&mut self, flat: &Flat<'a>) -> Written<'a> {
        let parts: Vec<ArrayPart> = flat.iter().map(|part| ArrayPart::of(*part)).collect();
        let least = parts.iter().map(|part| part.least).max().unwrap_or(0);
        let mut most = parts.iter().filter_map(|part| part.most).min();
        let mut first = parts.iter().map(|part| part.first.len()).max().unwrap_or(0);
        first = first.min(most.unwrap_or(usize::MAX));
        let mut items = Vec::new();
        for at in 0..first {
            let parts: Vec<Condition> = parts.iter().filter_map(|part| part.item(at)).collect();
            match self.rule(&parts)? {
                Some(item) => items.push(item),
                None => {
                    most = Some(at);
                    break;
                }
            }
        }
        let mut rest = None;
        if most.is_none_or(|most| most > items.len()) {
            let parts: Vec<Condition> = parts.iter().filter_map(|part| part.rest).collect();
            rest = self.rule(&parts)?;
        }
        let most = if rest.is_none() { Some(items.len()) } else { most };
        if most.is_some_and(|most| most < least) {
            return Ok(None);
        }
        Ok(Some(sequence(&items, rest.as_deref(), least, most)))
    }

    fn object(&mut self, flat: &Flat<'a>) -> Written<'a> {
        let parts: Vec<ObjectPart> = flat.iter().map(|part| ObjectPart::of(*part)).collect();
        let Arguments { properties, required, others, most, .. } = merged(&parts);
        let mut members = Vec::new();
        for (name, schemas) in &properties {
            let is_required = required.contains(name);
            match self.rule(schemas)? {
                Some(value) => {
                    members.push((format!("{} COLON {value}", quoted(name)), is_required))
                }
                None if is_required => return Ok(None),
                None => {}
            }
        }
        let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
        let others = self.rule(&others)?;
        let required = members.iter().filter(|(_, required)| *required).count();
        if most.is_some_and(|most| most < required) {
            return Ok(None);
        }
        // A count that no object exceeds says nothing.
        let most = most.filter(|most| others.is_some() || *most < members.len());
        let free = most.map(|most| most - required);
        let optional = members.len() - required;
        if free.is_some_and(|free| members.len() * (free.min(optional) + 1) > MAX_COUNTED) {
            return Err((flat[0], "maxProperties is supported with fewer properties".into()));
        }
        let others = others.filter(|_| free != Some(0)).map(|value| self.other(&names, &value));
        Ok(Some(match free {
            Some(free) => self.counted(&members, others.as_deref(), free),
            None => {
                members.extend(others.map(|pair| (format!("{pair} (COMMA {pair})*"), false)));
                self.members(&members)
            }
        }))
    }

    /// Returns a property that is not among `names`.
    fn other(&mut self, names: &[&str], value: &str) -> String {
        let key = match names {
            [] => "NAME".to_owned(),
            names => {
                let taken: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                self.count += 1;
                let key = format!("NAME{}", self.count);
                self.rules.push_str(&format!("{key}: NAME & ~({})\n", taken.join(" | ")));
                key
            }
        };
        format!("{key} COLON {value}")
    }

    /// Returns an object of `members` in order, each with whether it is required. The rules of a
    /// rest with and without a member before it differ by a comma.
    fn members(&mut self, members: &[(String, bool)]) -> String {
        let mut rest = ["\"\"", "\"\""].map(str::to_owned);
        for (member, required) in members.iter().rev() {
            let [alone, after] = &rest;
            let [mut first, mut later] = beginning_with(member, after);
            if !required {
                (first, later) = (format!("{first} | {alone}"), format!("{later} | {after}"));
            }
            rest = self.rest(&first, &later);
        }
        format!("\"{{\" {} \"}}\"", rest[0])
    }

    /// The same with at most `free` members that are not required, or are an `other`. Rests are by
    /// how many of these may be in them, from the fewest on.
    fn counted(&mut self, members: &[(String, bool)], other: Option<&str>, free: usize) -> String {
        let optional = members.iter().filter(|(_, required)| !required).count();
        let fewest = free.saturating_sub(optional);
        let ends = (fewest..=free).map(|left| match other {
            Some(pair) if left > 0 => {
                let comma = format!("COMMA {pair}");
                let more = repeated(&comma, 0, Some(left - 1));
                [format!("({pair} {more})?"), repeated(&comma, 0, Some(left))]
            }
            _ => ["\"\"", "\"\""].map(str::to_owned),
        });
        let mut rests: Vec<[String; 2]> = ends.collect();
        for (member, required) in members.iter().rev() {
            let with = (0..rests.len()).map(|at| match (required, at.checked_sub(1)) {
                (true, _) => beginning_with(member, &rests[at][1]),
                (false, None) => rests[at].clone(),
                (false, Some(fewer)) => {
                    let [first, later] = beginning_with(member, &rests[fewer][1]);
                    let [alone, after] = &rests[at];
                    [format!("{first} | {alone}"), format!("{later} | {after}")]
                }
            });
            let with: Vec<[String; 2]> = with.collect();
            rests = with.iter().map(|[first, later]| self.rest(first, later)).collect();
        }
        format!("\"{{\" {} \"}}\"", rests[free - fewest][0])
    }

    /// Adds the rules of the rest of an object, without and with a member before it.
    fn rest(&mut self, alone: &str, after: &str) -> [String; 2] {
        [alone, after].map(|rule| {
            let name = self.name();
            self.rules.push_str(&format!("{name}: {rule}\n"));
            name
        })
    }
}

/// Returns the rest of an object that begins with `member`, without and with a member before it.
fn beginning_with(member: &str, rest: &str) -> [String; 2] {
    [format!("{member} {rest}"), format!("COMMA {member} {rest}")]
}

/// What a part says about arrays.
struct ArrayPart<'a> {
    first: Vec<Condition<'a>>,
    rest: Option<Condition<'a>>,
    least: usize,
    most: Option<usize>,
}

static NOTHING: Value = Value::Bool(false);
/// The values of the types that have few.
static WORDS: [Value; 3] = [Value::Null, Value::Bool(true), Value::Bool(false)];

impl<'a> ArrayPart<'a> {
    fn of(part: Condition<'a>) -> Self {
        if let Condition::Equal(Value::Array(list)) = part {
            let first = list.iter().map(Condition::Equal).collect();
            let rest = Some(Condition::Schema(&NOTHING));
            return Self { first, rest, least: list.len(), most: Some(list.len()) };
        }
        let get = |key: &str| part.keywords().and_then(|schema| schema.get(key));
        let count = |key: &str| get(key).and_then(Value::as_u64).map(|count| count as usize);
        let first = get("prefixItems").and_then(Value::as_array).into_iter().flatten();
        let first = first.map(Condition::Schema).collect();
        let least = count("minItems").unwrap_or(0);
        Self { first, rest: get("items").map(Condition::Schema), least, most: count("maxItems") }
    }

    fn item(&self, at: usize) -> Option<Condition<'a>> {
        self.first.get(at).copied().or(self.rest)
    }
}

/// What a part says about objects.
struct ObjectPart<'a> {
    properties: Vec<(&'a str, Condition<'a>)>,
    /// Whether the part has a keyword of named properties.
    names: bool,
    others: Option<Condition<'a>>,
    required: Vec<&'a str>,
    most: Option<usize>,
}

impl<'a> ObjectPart<'a> {
    fn of(part: Condition<'a>) -> Self {
        if let Condition::Equal(Value::Object(object)) = part {
            let properties = object.iter().map(|(name, value)| (&**name, Condition::Equal(value)));
            let required = object.keys().map(|name| &**name).collect();
            let others = Some(Condition::Schema(&NOTHING));
            let properties = properties.collect();
            return Self { properties, names: true, others, required, most: None };
        }
        let get = |key: &str| part.keywords().and_then(|schema| schema.get(key));
        let properties = get("properties").and_then(Value::as_object).into_iter().flatten();
        let required = get("required").and_then(Value::as_array).into_iter().flatten();
        Self {
            properties: properties
                .map(|(name, schema)| (&**name, Condition::Schema(schema)))
                .collect(),
            names: get("properties").is_some(),
            others: get("additionalProperties").map(Condition::Schema),
            required: required.filter_map(Value::as_str).collect(),
            most: get("maxProperties").and_then(Value::as_u64).map(|most| most as usize),
        }
    }

    fn property(&self, name: &str) -> Option<Condition<'a>> {
        let known = self.properties.iter().find(|(known, _)| *known == name);
        known.map(|(_, part)| *part).or(self.others)
    }
}

/// Returns the properties of objects that fit all `parts`, in the order in which they are named.
fn merged<'a>(parts: &[ObjectPart<'a>]) -> Arguments<'a> {
    let required: Vec<&str> = parts.iter().flat_map(|part| part.required.iter().copied()).collect();
    let named = parts.iter().flat_map(|part| part.properties.iter().map(|(name, _)| *name));
    let mut seen = HashSet::new();
    let names = named.chain(required.iter().copied()).filter(|name| seen.insert(*name));
    let properties =
        names.map(|name| (name, parts.iter().filter_map(|part| part.property(name)).collect()));
    let others: Vec<Condition> = parts.iter().filter_map(|part| part.others).collect();
    let invites_others = !others.is_empty() || !parts.iter().any(|part| part.names);
    let most = parts.iter().filter_map(|part| part.most).min();
    Arguments { properties: properties.collect(), required, others, invites_others, most }
}

/// Returns an array of `items`, then any number of `rest`, between two lengths.
fn sequence(items: &[String], rest: Option<&str>, least: usize, most: Option<usize>) -> String {
    let count = items.len();
    let mut all = String::new();
    if let Some(rest) = rest {
        let first = if count == 0 { rest.to_owned() } else { format!("COMMA {rest}") };
        let (few, many) = (least.saturating_sub(count), most.map(|most| most - count - 1));
        let more = repeated(&format!("COMMA {rest}"), few.saturating_sub(1), many);
        let more = format!("{first} {more}");
        all = if few == 0 { format!("({more})?") } else { more };
    }
    for (at, item) in items.iter().enumerate().rev() {
        let comma = if at == 0 { "" } else { "COMMA " };
        all = format!("{comma}{item} {all}");
        if at >= least {
            all = format!("({all})?");
        }
    }
    format!("\"[\" {all} \"]\"")
}

/// Returns `item` between `least` and `most` times. The dialect has no repetition of none.
fn repeated(item: &str, least: usize, most: Option<usize>) -> String {
    match most {
        Some(0) => String::new(),
        most => {
            let most = most.map_or(String::new(), |most| most.to_string());
            format!("({item}){{{least},{most}}}")
        }
    }
}

/// Returns the strings of an alternative, as a schema.
fn string(flat: &Flat, values: Option<&[&Value]>) -> Option<String> {
    let mut all = Vec::new();
    if let Some(values) = values {
        let texts: Vec<&Value> = values.iter().copied().filter(|value| value.is_string()).collect();
        if texts.is_empty() {
            return None;
        }
        all.push(json!({"type": "string", "enum": texts}));
    }
    for schema in flat.iter().filter_map(|part| part.keywords()) {
        let mut text = Map::from_iter([("type".to_owned(), "string".into())]);
        for key in ["minLength", "maxLength", "pattern", "format"] {
            text.extend(schema.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        all.extend((text.len() > 1).then_some(Value::Object(text)));
    }
    Some(leaf(match all.len() {
        0 => json!({"type": "string"}),
        1 => all.remove(0),
        _ => json!({ "allOf": all }),
    }))
}

/// Returns a schema within a rule.
fn leaf(schema: Value) -> String {
    format!("%json {}", with_form(schema))
}

/// Returns a name as a literal of its JSON text.
fn quoted(name: &str) -> String {
    literal(&Value::from(name).to_string())
}
