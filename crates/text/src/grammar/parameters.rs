//! Arguments that a format writes one by one: strings as they are, other values as JSON.

use super::GrammarError;
use super::lark::{MarkerTokens, literal};
use super::locate::with_definitions;
use crate::tool_formats::syntax::ParameterSyntax;
use serde_json::{Map, Value};

/// The arguments of one tool.
pub(super) struct Parameters {
    /// The sequence of the arguments, for the rule of the call.
    pub sequence: String,
    /// The rules that the sequence refers to.
    pub rules: String,
    /// The names and schemas of JSON values.
    pub values: Vec<(String, Value)>,
}

/// Keywords of a schema of strings that are written as they are.
const STRING_KEYWORDS: [&str; 3] = ["type", "enum", "const"];

/// Returns the grammar of the arguments of tool `tool`, whose `schema` is checked.
///
/// # Errors
/// If the format cannot write arguments of this schema.
pub(super) fn parameters(
    syntax: ParameterSyntax,
    tool: usize,
    schema: &Value,
    tags: &MarkerTokens,
) -> Result<Parameters, GrammarError> {
    let place = |key: &str| format!("#/properties/{key}");
    let wrong = |pointer: String, what: String| Err(GrammarError::Schema { pointer, what });
    let known = ["type", "properties", "required", "additionalProperties", "$defs", "definitions"];
    let object = schema.as_object().filter(|_| schema["type"] == "object");
    let Some(object) = object.filter(|object| object.keys().all(|key| known.contains(&&**key)))
    else {
        return wrong(
            "#".into(),
            format!("expected an object with nothing but {}", known.join(", ")),
        );
    };
    let none = Map::new();
    let properties = object.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let is_required = |key: &str| {
        let names = object.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|name| name == key))
    };
    let mut all = Parameters { sequence: String::new(), rules: String::new(), values: Vec::new() };
    for (at, (key, value)) in properties.iter().enumerate() {
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
            return wrong(place(key), "expected letters, digits, _, - and . in its name".into());
        }
        let name = format!("value-{tool}-{at}");
        let text = value["type"] == "string";
        let before =
            tags.sequence(&if text { syntax.text } else { syntax.json }.replace("KEY", key));
        let rule = match (text, value.as_object()) {
            (true, Some(value)) if !value.keys().all(|key| STRING_KEYWORDS.contains(&&**key)) => {
                return wrong(
                    place(key),
                    "a string of this format can have a type and values only".into(),
                );
            }
            (true, Some(value)) => string(syntax, &name, value, tags, &mut all.rules),
            _ => {
                all.values.push((name.clone(), with_definitions(value, object)));
                format!("@{name} {}", tags.sequence(syntax.close))
            }
        };
        let optional = if is_required(key) { "" } else { "?" };
        all.sequence.push_str(&format!("({before} {rule}){optional} "));
    }
    Ok(all)
}

/// Returns the grammar of strings of any names.
pub(super) fn any_parameters(
    syntax: ParameterSyntax,
    tool: usize,
    tags: &MarkerTokens,
) -> Parameters {
    let (name, key) = (format!("any-{tool}"), format!("KEY-{tool}"));
    let mut rules = format!("{key}: /[A-Za-z_][A-Za-z0-9_.-]{{0,63}}/\n");
    let text = string(syntax, &format!("value-{tool}"), &Map::new(), tags, &mut rules);
    let (before, behind) = syntax.text.split_once("KEY").unwrap_or((syntax.text, ""));
    let [before, behind] = [before, behind].map(|text| tags.sequence(text));
    rules.push_str(&format!("{name}: {before} {key} {behind} {text}\n"));
    Parameters { sequence: format!("{name}*"), rules, values: Vec::new() }
}

/// Adds the rules of a string of the values that `of` allows, and of what ends it. Returns their
/// sequence.
fn string(
    syntax: ParameterSyntax,
    name: &str,
    of: &Map<String, Value>,
    tags: &MarkerTokens,
    rules: &mut String,
) -> String {
    let close = syntax.close;
    let values = of.get("enum").and_then(Value::as_array);
    let values = values.map(Vec::as_slice).or(of.get("const").map(std::slice::from_ref));
    if let Some(values) = values {
        let literals: Vec<String> = values.iter().filter_map(Value::as_str).map(literal).collect();
        return format!("({}) {}", literals.join(" | "), tags.sequence(close));
    }
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
