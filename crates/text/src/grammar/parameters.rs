//! Arguments that a format writes one by one: text as it is, other values as JSON.

use super::GrammarError;
use super::lark::{MarkerTokens, literal};
use super::locate::with_definitions;
use serde_json::{Map, Value};

/// How parameters are written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ParameterStyle {
    /// `<parameter=KEY>`, a line break, the value, another.
    Coder,
    /// `<｜DSML｜parameter name="KEY" string="true">`, the value.
    Dsml,
}

/// The arguments of one tool.
pub(super) struct Parameters {
    /// What a call refers to.
    pub sequence: String,
    /// The rules that it needs.
    pub rules: String,
    /// The names and schemas of JSON values.
    pub values: Vec<(String, Value)>,
}

/// Keywords of a text that is written as it is.
const OF_TEXT: [&str; 3] = ["type", "enum", "const"];

/// The grammar of the arguments of tool `tool`, whose `schema` is checked.
pub(super) fn parameters(
    style: ParameterStyle,
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
        let before = tags.sequence(&style.before(key, text));
        let rule = match (text, value.as_object()) {
            (true, Some(value)) if !value.keys().all(|key| OF_TEXT.contains(&&**key)) => {
                return wrong(
                    place(key),
                    "a text of this format can have a type and values only".into(),
                );
            }
            (true, Some(value)) => style.text(&name, value, tags, &mut all.rules),
            _ => {
                all.values.push((name.clone(), with_definitions(value, object)));
                format!("@{name} {}", tags.sequence(style.after()))
            }
        };
        let optional = if is_required(key) { "" } else { "?" };
        all.sequence.push_str(&format!("({before} {rule}){optional} "));
    }
    Ok(all)
}

/// Parameters of any name, each of them a text.
pub(super) fn any_parameters(
    style: ParameterStyle,
    tool: usize,
    tags: &MarkerTokens,
) -> Parameters {
    let (name, key) = (format!("any-{tool}"), format!("KEY-{tool}"));
    let mut rules = format!("{key}: /[A-Za-z_][A-Za-z0-9_.-]{{0,63}}/\n");
    let text = style.text(&format!("value-{tool}"), &Map::new(), tags, &mut rules);
    let before = style.before("KEY", true);
    let (before, behind) = before.split_once("KEY").unwrap_or((&before, ""));
    let [before, behind] = [before, behind].map(|text| tags.sequence(text));
    rules.push_str(&format!("{name}: {before} {key} {behind} {text}\n"));
    Parameters { sequence: format!("{name}*"), rules, values: Vec::new() }
}

impl ParameterStyle {
    fn before(self, key: &str, text: bool) -> String {
        match self {
            Self::Coder => format!("<parameter={key}>\n"),
            Self::Dsml => format!("<｜DSML｜parameter name=\"{key}\" string=\"{text}\">"),
        }
    }

    fn after(self) -> &'static str {
        match self {
            Self::Coder => "\n</parameter>\n",
            Self::Dsml => "</｜DSML｜parameter>\n",
        }
    }

    /// A text and what ends it.
    fn text(
        self,
        name: &str,
        of: &Map<String, Value>,
        tags: &MarkerTokens,
        rules: &mut String,
    ) -> String {
        let values = of.get("enum").and_then(Value::as_array);
        let values = values.map(Vec::as_slice).or(of.get("const").map(std::slice::from_ref));
        if let Some(values) = values {
            let literals: Vec<String> =
                values.iter().filter_map(Value::as_str).map(literal).collect();
            return format!("({}) {}", literals.join(" | "), tags.sequence(self.after()));
        }
        match tags.first(self.after()) {
            // The text ends where the token is: what stands between them is part of it.
            Some(lead) => {
                let rest = tags.sequence(&self.after()[lead.len()..]);
                let token = name.to_uppercase();
                rules.push_str(&format!("{token}: /(?s:.*)/ {}\n", literal(lead)));
                format!("{token} {rest}")
            }
            None => {
                // Readers take the first closing tag for the end, a line break before it or not.
                let tag = literal(self.after().trim());
                rules.push_str(&format!("{name}[suffix={tag}]: /(?s:.*)/\n"));
                format!("{name} \"\\n\"")
            }
        }
    }
}
