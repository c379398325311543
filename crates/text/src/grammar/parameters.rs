//! Arguments that a format writes one by one: strings as they are, other values as JSON.

use super::error::GrammarError;
use super::exact::{self, Arguments, Condition, MAX_COUNTED};
use super::expression::Expression;
use super::formats;
use super::json::{NO_VALUE, allows_anything, is_contradiction, json_grammar, library_error};
use super::lark::{MarkerTokens, literal};
use super::locate::with_definitions;
use super::pattern::searched;
use super::references::{escaped, has_reference};
use super::targets::weight;
use crate::call_reader::call::stated_types;
use crate::tool_formats::syntax::ParameterSyntax;
use llguidance::api::GrammarWithLexer;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Bytes of the schemas of optional arguments that are compiled to see whether a value fits.
const MAX_LOOKED_AT: usize = 2 << 20;
/// Bytes of the schemas of arguments as JSON, each with its definitions.
const MAX_JSON: usize = 32 << 20;

/// The arguments of one tool.
pub(super) struct Parameters {
    /// The sequence of the arguments, for the rule of the call.
    pub sequence: String,
    /// The rules that the sequence refers to.
    pub rules: String,
    /// The grammars of JSON values, by name.
    pub values: Vec<GrammarWithLexer>,
}

/// Returns the grammar of the arguments of tool `tool`, whose `schema` is checked and one of
/// objects.
///
/// # Errors
/// If the format cannot write arguments of this schema.
pub(super) fn parameters(
    syntax: ParameterSyntax,
    tool: usize,
    schema: &Value,
    tags: &MarkerTokens,
) -> Result<Parameters, GrammarError> {
    let mut writer = ParameterWriter {
        syntax,
        tool,
        schema,
        tags,
        all: Parameters { sequence: String::new(), rules: String::new(), values: Vec::new() },
        count: 0,
        looked_at: 0,
        json: 0,
    };
    let mut options = Vec::new();
    for arguments in exact::arguments(schema)? {
        options.extend(writer.arguments(&arguments)?);
    }
    let sequence = match &options[..] {
        [] => {
            let what = format!("{NO_VALUE}, or the format of calls cannot write it");
            return Err(GrammarError::Schema { pointer: "#".into(), what });
        }
        [only] => only.clone(),
        options => format!("({})", options.join(" | ")),
    };
    Ok(Parameters { sequence, ..writer.all })
}

/// Returns the grammar of strings of any names.
pub(super) fn any_parameters(
    syntax: ParameterSyntax,
    tool: usize,
    tags: &MarkerTokens,
) -> Parameters {
    let (name, key) = (format!("any-{tool}"), format!("KEY-{tool}"));
    let mut rules = format!("{key}: {ANY_NAME}\n");
    let ending = Ending::after_rule(syntax, &key, tags);
    let text = any_string(syntax, &ending, &format!("value-{tool}"), tags, &mut rules);
    rules.push_str(&format!("{name}: {}\n", named_by(syntax.text, &key, &text, tags)));
    Parameters { sequence: format!("{name}*"), rules, values: Vec::new() }
}

/// The names of parameters that no schema names.
const ANY_NAME: &str = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/";

/// Returns an argument whose name is of the rule `key`.
fn named_by(before: &str, key: &str, value: &str, tags: &MarkerTokens) -> String {
    let (before, behind) = before.split_once("KEY").unwrap_or((before, ""));
    let [before, behind] = [before, behind].map(|text| tags.sequence(text));
    format!("{before} {key} {behind} {value}")
}

/// What ends a value.
struct Ending {
    /// The text that ends it.
    text: String,
    /// The sequence after that text: the name of the argument and the rest.
    more: String,
}

impl Ending {
    /// The end of the argument with this name as it is written.
    fn after(syntax: ParameterSyntax, key: &str) -> Self {
        Self { text: syntax.close.replace("KEY", key), more: String::new() }
    }

    /// The end of an argument whose name is of the rule `key`. Readers take any name there.
    fn after_rule(syntax: ParameterSyntax, key: &str, tags: &MarkerTokens) -> Self {
        match syntax.close.split_once("KEY") {
            None => Self::after(syntax, ""),
            Some((text, rest)) => {
                Self { text: text.into(), more: format!(" {key} {}", tags.sequence(rest)) }
            }
        }
    }

    fn sequence(&self, tags: &MarkerTokens) -> String {
        tags.sequence(&self.text) + &self.more
    }
}

struct ParameterWriter<'a> {
    syntax: ParameterSyntax,
    tool: usize,
    schema: &'a Value,
    tags: &'a MarkerTokens,
    all: Parameters,
    count: usize,
    /// Of [`MAX_LOOKED_AT`].
    looked_at: usize,
    /// Of [`MAX_JSON`].
    json: usize,
}

impl<'a> ParameterWriter<'a> {
    /// Returns the sequence of one alternative of the arguments; `None` if no value fits a required
    /// one.
    fn arguments(&mut self, arguments: &Arguments<'a>) -> Result<Option<String>, GrammarError> {
        let mut members = Vec::new();
        for (key, parts) in &arguments.properties {
            let required = arguments.required.contains(key);
            let written = (self.syntax.key)(key);
            let rule = match &written {
                Some(written) if required || self.has_value(parts) => {
                    self.value(key, &Ending::after(self.syntax, written), parts)?
                }
                _ => None,
            };
            let (Some(written), Some((text, rule))) = (written, rule) else {
                if required {
                    return Ok(None);
                }
                continue;
            };
            let before = if text { self.syntax.text } else { self.syntax.json };
            let before = self.tags.sequence(&before.replace("KEY", &written));
            members.push((format!("{before} {rule}"), required));
        }
        let others = match arguments.invites_others {
            true => self.others(arguments)?,
            false => None,
        };
        self.sequence(&members, others.as_deref(), arguments.most)
    }

    /// Returns the sequence of `members`, each with whether it is required, and of any number of
    /// `others`, together at most `most`; `None` if more are required.
    fn sequence(
        &mut self,
        members: &[(String, bool)],
        others: Option<&str>,
        most: Option<usize>,
    ) -> Result<Option<String>, GrammarError> {
        let required = members.iter().filter(|(_, required)| *required).count();
        let most = most.filter(|most| others.is_some() || *most < members.len());
        let Some(most) = most else {
            let mut all: Vec<String> = members
                .iter()
                .map(|(member, required)| format!("({member}){}", if *required { "" } else { "?" }))
                .collect();
            all.extend(others.map(|other| format!("{other}*")));
            return Ok(Some(if all.is_empty() { "\"\"".into() } else { all.join(" ") }));
        };
        let Some(free) = most.checked_sub(required) else { return Ok(None) };
        let fewest = free.saturating_sub(members.len() - required);
        if members.len() * (free - fewest + 1) > MAX_COUNTED {
            let what = "maxProperties is supported with fewer properties".to_owned();
            return Err(GrammarError::Schema { pointer: "#/maxProperties".into(), what });
        }
        // What may follow the members so far, by how many that are not required may be in it.
        let mut rest: Vec<String> = (fewest..=free)
            .map(|left| match others {
                Some(other) if left > 0 => format!("({other}){{0,{left}}}"),
                _ => "\"\"".to_owned(),
            })
            .collect();
        for (member, required) in members.iter().rev() {
            rest = (0..rest.len())
                .map(|at| match (required, at) {
                    (true, _) => format!("{member} {}", rest[at]),
                    (false, 0) => rest[0].clone(),
                    (false, _) => format!("{member} {} | {}", rest[at - 1], rest[at]),
                })
                .map(|rule| self.rule(&rule))
                .collect();
        }
        Ok(rest.pop())
    }

    /// Adds a rule and returns its name.
    fn rule(&mut self, rule: &str) -> String {
        let name = self.name("rest");
        self.all.rules.push_str(&format!("{name}: {rule}\n"));
        name
    }

    fn name(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}-{}-{}", self.tool, self.count)
    }

    /// Returns the rule of an argument that the schema does not name; `None` if no value fits.
    /// Readers do not know its type, so that a value of a type is written as JSON.
    fn others(&mut self, arguments: &Arguments<'a>) -> Result<Option<String>, GrammarError> {
        if !self.has_value(&arguments.others) {
            return Ok(None);
        }
        let free =
            |part: &Condition| matches!(part, Condition::Schema(schema) if allows_anything(schema));
        let key = self.name("KEY");
        let ending = Ending::after_rule(self.syntax, &key, self.tags);
        let (before, value) = match arguments.others.iter().all(free) {
            true => {
                let name = self.name("value");
                let rules = &mut self.all.rules;
                (self.syntax.text, Some(any_string(self.syntax, &ending, &name, self.tags, rules)))
            }
            false => (self.syntax.json, self.json(&ending, &arguments.others)?),
        };
        let Some(value) = value else { return Ok(None) };
        let names = arguments.properties.iter().map(|(name, _)| literal(name));
        let names: Vec<String> = names.collect();
        let taken =
            if names.is_empty() { "".into() } else { format!(" & ~({})", names.join(" | ")) };
        self.all.rules.push_str(&format!("{key}: {ANY_NAME}{taken}\n"));
        Ok(Some(self.rule(&named_by(before, &key, &value, self.tags))))
    }

    /// Whether a value may fit `parts`; where that is not certain, it may.
    fn has_value(&mut self, parts: &[Condition<'a>]) -> bool {
        let [Condition::Schema(schema)] = parts else { return true };
        if **schema == false {
            return false;
        }
        if self.looked_at > MAX_LOOKED_AT {
            return true;
        }
        let whole = self.whole(schema);
        self.looked_at += weight(&whole);
        if self.looked_at > MAX_LOOKED_AT {
            return true;
        }
        let contradicts = |whole| library_error(whole).is_some_and(|what| is_contradiction(&what));
        !(exact::is_exact(&whole) && contradicts(whole))
    }

    /// Returns a part of the schema with the definitions that it may refer to.
    fn whole(&self, part: &Value) -> Value {
        match has_reference(part) {
            true => with_definitions(part, self.keywords()),
            false => part.clone(),
        }
    }

    fn keywords(&self) -> &'a Map<String, Value> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        self.schema.as_object().unwrap_or(&NONE)
    }

    /// Returns whether a value is written as it is, and the sequence of the value and its end.
    fn value(
        &mut self,
        key: &str,
        ending: &Ending,
        parts: &[Condition<'a>],
    ) -> Result<Option<(bool, String)>, GrammarError> {
        if stated_types(self.schema, key) == ["string"] {
            return Ok(self.text(key, ending, parts)?.map(|rule| (true, rule)));
        }
        Ok(self.json(ending, parts)?.map(|rule| (false, rule)))
    }

    /// Returns the sequence of a value as JSON and its end.
    fn json(
        &mut self,
        ending: &Ending,
        parts: &[Condition<'a>],
    ) -> Result<Option<String>, GrammarError> {
        let name = self.name("value");
        let grammar = match parts {
            [Condition::Schema(schema)] if !refers_elsewhere(schema) => {
                let whole = self.whole(schema);
                self.json += weight(&whole);
                if self.json > MAX_JSON {
                    let what = format!(
                        "expected arguments of at most {MAX_JSON} bytes, each with the definitions \
                         that it refers to, found more"
                    );
                    return Err(GrammarError::Schema { pointer: "#".into(), what });
                }
                Some(json_grammar(whole)?)
            }
            parts => exact::grammar(self.schema, parts)?,
        };
        let Some(grammar) = grammar else { return Ok(None) };
        let rule = format!("@{name} {}", ending.sequence(self.tags));
        self.all.values.push(GrammarWithLexer { name: Some(name), ..grammar });
        Ok(Some(rule))
    }

    fn text(
        &mut self,
        key: &str,
        ending: &Ending,
        parts: &[Condition<'a>],
    ) -> Result<Option<String>, GrammarError> {
        let name = self.name("value");
        let (mut literals, mut expressions) = (Vec::new(), Vec::new());
        let wrong =
            |what| GrammarError::Schema { pointer: format!("#/properties/{}", escaped(key)), what };
        for strings in exact::strings(self.schema, parts)? {
            let limits = limits(&strings.keywords).map_err(wrong)?;
            match strings.values {
                None if limits.is_empty() => {
                    return Ok(Some(any_string(
                        self.syntax,
                        ending,
                        &name,
                        self.tags,
                        &mut self.all.rules,
                    )));
                }
                None => expressions.push(Expression::All(limits)),
                Some(values) => {
                    for value in values {
                        let mut all = limits.clone();
                        all.push(Expression::Literal(value.into()));
                        let fits = Expression::All(all).terminal().map_err(wrong)?.is_some();
                        literals.extend(self.written(value).filter(|_| fits));
                    }
                }
            }
        }
        let mut options = Vec::new();
        if !literals.is_empty() {
            let close = ending.sequence(self.tags);
            options.push(format!("({}) {close}", literals.join(" | ")));
        }
        if !expressions.is_empty() {
            let any = Expression::Any(expressions);
            options.extend(self.limited(any, ending, &name).map_err(wrong)?);
        }
        Ok(match &options[..] {
            [] => None,
            [only] => Some(only.clone()),
            options => Some(format!("({})", options.join(" | "))),
        })
    }

    /// Returns a value as a literal, if readers can tell its end.
    fn written(&self, value: &str) -> Option<String> {
        let ParameterSyntax { end, escaped_end, .. } = self.syntax;
        if escaped_end.is_some_and(|escaped| value.contains(escaped)) {
            return None;
        }
        let value = match escaped_end {
            Some(escaped) => value.replace(&format!("{end}>"), escaped),
            None => value.to_owned(),
        };
        (!value.contains(end)).then(|| literal(&value))
    }

    /// Adds the terminal of the texts that match `body` and what ends them. The texts do not hold
    /// what readers take for the end, nor what they take for its escape.
    fn limited(
        &mut self,
        body: Expression,
        ending: &Ending,
        name: &str,
    ) -> Result<Option<String>, String> {
        let ParameterSyntax { end, escaped_end, .. } = self.syntax;
        let close = &*ending.text;
        let mut all = vec![body];
        for mark in [Some(end), escaped_end].into_iter().flatten() {
            let any = || Expression::Regex("(?s:.*)".into());
            let holds = vec![any(), Expression::Literal(mark.into()), any()];
            all.push(Expression::Not(Box::new(Expression::Sequence(holds))));
        }
        let lead = self.tags.first(close).unwrap_or(close.trim_end());
        let with_lead = vec![Expression::All(all), Expression::Literal(lead.into())];
        let Some(terminal) = Expression::Sequence(with_lead).terminal()? else { return Ok(None) };
        let token = name.to_uppercase();
        self.all.rules.push_str(&format!("{token}: {terminal}\n"));
        let rest = self.tags.sequence(&close[lead.len()..]);
        Ok(Some(format!("{token} {rest}{}", ending.more)))
    }
}

/// The limits that keywords set to strings.
fn limits(keywords: &[&Map<String, Value>]) -> Result<Vec<Expression>, String> {
    let mut limits = Vec::new();
    for keywords in keywords {
        let count = |key: &str| keywords.get(key).and_then(Value::as_u64);
        let (least, most) = (count("minLength").unwrap_or(0), count("maxLength"));
        if least > 0 || most.is_some() {
            let most = most.map_or(String::new(), |most| most.to_string());
            limits.push(Expression::Regex(format!("(?s:.{{{least},{most}}})")));
        }
        let text = |key: &str| keywords.get(key).and_then(Value::as_str);
        limits.extend(text("pattern").map(searched).transpose()?);
        limits.extend(text("format").and_then(formats::expression).map(Expression::Regex));
    }
    Ok(limits)
}

/// Whether a schema has a reference to a place that [`with_definitions`] does not keep.
fn refers_elsewhere(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            let kept = |to: &str| to.starts_with("#/$defs/") || to.starts_with("#/definitions/");
            let elsewhere = object.get("$ref").is_some_and(|to| !to.as_str().is_some_and(kept));
            elsewhere || object.values().any(refers_elsewhere)
        }
        Value::Array(list) => list.iter().any(refers_elsewhere),
        _ => false,
    }
}

/// Adds the rules of any string, and of what ends it. Returns their sequence.
fn any_string(
    syntax: ParameterSyntax,
    ending: &Ending,
    name: &str,
    tags: &MarkerTokens,
    rules: &mut String,
) -> String {
    let Ending { text: close, more } = ending;
    match tags.first(close) {
        // The string ends where the token is: the text between them is part of it.
        Some(lead) => {
            let rest = tags.sequence(&close[lead.len()..]);
            let token = name.to_uppercase();
            // Other tokens may spell the marker, which readers take for the end all the same.
            let text = match lead {
                "" => format!("/(?s:.*)/ & ~(/(?s:.*)/ {} /(?s:.*)/)", literal(syntax.end)),
                lead => format!("/(?s:.*)/ {}", literal(lead)),
            };
            rules.push_str(&format!("{token}: {text}\n"));
            format!("{token} {rest}{more}")
        }
        None => {
            // Readers take the first `end` for the end, a line break before it or not.
            let (lead, rest) = close.split_once(syntax.end).unwrap_or((close, ""));
            let tag = literal((lead.to_owned() + syntax.end).trim_start());
            rules.push_str(&format!("{name}[suffix={tag}]: /(?s:.*)/\n"));
            let rest = tags.sequence(rest);
            format!("{name} {rest}{more}")
        }
    }
}
