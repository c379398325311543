//! Arguments that a format writes one by one: strings as they are, other values as JSON.

use super::GrammarError;
use super::exact::{self, Arguments, Condition};
use super::expression::Expression;
use super::formats;
use super::json::{NO_VALUE, json_grammar};
use super::lark::{MarkerTokens, literal};
use super::locate::with_definitions;
use super::references::escaped;
use crate::tool_formats::syntax::ParameterSyntax;
use llguidance::api::GrammarWithLexer;
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

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
    let mut rules = format!("{key}: /[A-Za-z_][A-Za-z0-9_.-]{{0,63}}/\n");
    let text = any_string(syntax, &format!("value-{tool}"), tags, &mut rules);
    let (before, behind) = syntax.text.split_once("KEY").unwrap_or((syntax.text, ""));
    let [before, behind] = [before, behind].map(|text| tags.sequence(text));
    rules.push_str(&format!("{name}: {before} {key} {behind} {text}\n"));
    Parameters { sequence: format!("{name}*"), rules, values: Vec::new() }
}

struct ParameterWriter<'a> {
    syntax: ParameterSyntax,
    tool: usize,
    schema: &'a Value,
    tags: &'a MarkerTokens,
    all: Parameters,
    count: usize,
}

impl<'a> ParameterWriter<'a> {
    /// Returns the sequence of one alternative of the arguments; `None` if no value fits a required
    /// one.
    fn arguments(&mut self, arguments: &Arguments<'a>) -> Result<Option<String>, GrammarError> {
        let mut sequence = String::new();
        for (key, parts) in &arguments.properties {
            let required = arguments.required.contains(key);
            let name = format!("value-{}-{}", self.tool, self.count);
            self.count += 1;
            let written = (self.syntax.key)(key);
            let rule = match written.is_some() {
                true => self.value(key, parts, name)?,
                false => None,
            };
            let (Some(written), Some((text, rule))) = (written, rule) else {
                if required {
                    return Ok(None);
                }
                continue;
            };
            let before = if text { self.syntax.text } else { self.syntax.json };
            let before = self.tags.sequence(&before.replace("KEY", &written));
            let optional = if required { "" } else { "?" };
            sequence.push_str(&format!("({before} {rule}){optional} "));
        }
        Ok(Some(if sequence.is_empty() { "\"\"".into() } else { sequence }))
    }

    /// Returns whether a value is written as it is, and the sequence of the value and its end.
    fn value(
        &mut self,
        key: &str,
        parts: &[Condition<'a>],
        name: String,
    ) -> Result<Option<(bool, String)>, GrammarError> {
        // Readers know strings by this place of the schema.
        let text = self.schema["properties"][key]["type"] == "string";
        if text {
            return Ok(self.text(key, parts, &name)?.map(|rule| (true, rule)));
        }
        let grammar = match parts {
            [Condition::Schema(schema)] if !refers_elsewhere(schema) => {
                let none = Map::new();
                let whole = self.schema.as_object().unwrap_or(&none);
                Some(json_grammar(with_definitions(schema, whole))?)
            }
            parts => exact::grammar(self.schema, parts)?,
        };
        let Some(grammar) = grammar else { return Ok(None) };
        let rule = format!("@{name} {}", self.tags.sequence(self.syntax.close));
        self.all.values.push(GrammarWithLexer { name: Some(name), ..grammar });
        Ok(Some((false, rule)))
    }

    fn text(
        &mut self,
        key: &str,
        parts: &[Condition<'a>],
        name: &str,
    ) -> Result<Option<String>, GrammarError> {
        let (mut literals, mut expressions) = (Vec::new(), Vec::new());
        let wrong =
            |what| GrammarError::Schema { pointer: format!("#/properties/{}", escaped(key)), what };
        for strings in exact::strings(self.schema, parts)? {
            let limits = limits(&strings.keywords);
            match strings.values {
                None if limits.is_empty() => {
                    return Ok(Some(any_string(self.syntax, name, self.tags, &mut self.all.rules)));
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
            let close = self.tags.sequence(self.syntax.close);
            options.push(format!("({}) {close}", literals.join(" | ")));
        }
        if !expressions.is_empty() {
            options.extend(self.limited(Expression::Any(expressions), name).map_err(wrong)?);
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
    fn limited(&mut self, body: Expression, name: &str) -> Result<Option<String>, String> {
        let ParameterSyntax { close, end, escaped_end, .. } = self.syntax;
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
        Ok(Some(format!("{token} {}", self.tags.sequence(&close[lead.len()..]))))
    }
}

/// The limits that keywords set to strings.
fn limits(keywords: &[&Map<String, Value>]) -> Vec<Expression> {
    let mut limits = Vec::new();
    for keywords in keywords {
        let count = |key: &str| keywords.get(key).and_then(Value::as_u64);
        let (least, most) = (count("minLength").unwrap_or(0), count("maxLength"));
        if least > 0 || most.is_some() {
            let most = most.map_or(String::new(), |most| most.to_string());
            limits.push(Expression::Regex(format!("(?s:.{{{least},{most}}})")));
        }
        let text = |key: &str| keywords.get(key).and_then(Value::as_str);
        limits.extend(text("pattern").map(|pattern| Expression::Regex(searched(pattern))));
        limits.extend(text("format").and_then(formats::expression).map(Expression::Regex));
    }
    limits
}

/// Returns the expression of the texts in which `pattern` is found. Each alternative is bound to
/// the ends of the text where it begins with `^` or ends with `$`.
fn searched(pattern: &str) -> String {
    let pattern = regex_to_lark(pattern, "dw");
    let any = "(?s:.*)";
    let options = alternatives(&pattern).into_iter().map(|option| {
        let (begin, option) = option.strip_prefix('^').map_or((any, option), |rest| ("", rest));
        let slashes =
            option.strip_suffix('$').map(|rest| rest.len() - rest.trim_end_matches('\\').len());
        let (option, end) = match slashes {
            Some(count) if count % 2 == 0 => (&option[..option.len() - 1], ""),
            _ => (option, any),
        };
        format!("{begin}({option}){end}")
    });
    options.collect::<Vec<_>>().join("|")
}

/// Splits a regular expression at each `|` that is in no group and no class.
fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut options, mut begin, mut depth, mut class, mut escaped) =
        (Vec::new(), 0, 0, false, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => class = false,
            _ if class => {}
            '[' => class = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => {
                options.push(&pattern[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    options.push(&pattern[begin..]);
    options
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
    name: &str,
    tags: &MarkerTokens,
    rules: &mut String,
) -> String {
    let close = syntax.close;
    match tags.first(close) {
        // The string ends where the token is: the text between them is part of it.
        Some(lead) => {
            let rest = tags.sequence(&close[lead.len()..]);
            let token = name.to_uppercase();
            rules.push_str(&format!("{token}: /(?s:.*)/ {}\n", literal(lead)));
            format!("{token} {rest}")
        }
        None => {
            // Readers take the first closing tag for the end, a line break before it or not.
            let tag = literal(close.trim());
            rules.push_str(&format!("{name}[suffix={tag}]: /(?s:.*)/\n"));
            format!("{name} \"\\n\"")
        }
    }
}
