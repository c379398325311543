//! Calls as text in the syntax of a format, for templates that have no place for calls.

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::spaced_json::spaced_json;
use serde_json::Value;

impl ToolFormat {
    /// Writes calls, each the name of a tool and its arguments, as the model writes them. Arguments
    /// are an object, or text that is no valid object, which is written as it is.
    pub fn written<'a>(&self, calls: impl IntoIterator<Item = (&'a str, &'a Value)>) -> String {
        let CallSyntax { open, begin, before, after, between, close, parameters, .. } = self.writes;
        let mut out = String::from(open);
        for (number, (name, arguments)) in calls.into_iter().enumerate() {
            let between = if number == 0 { "" } else { between };
            let before = before.replace("NAME", name);
            let arguments = match (arguments, parameters) {
                (Value::String(text), _) => text.clone(),
                (Value::Object(members), Some(syntax)) => {
                    members.iter().map(|(key, value)| parameter(syntax, key, value)).collect()
                }
                (value, _) => spaced_json(value),
            };
            out.extend([between, begin, &before, &arguments, after]);
        }
        out + close
    }
}

fn parameter(syntax: ParameterSyntax, key: &str, value: &Value) -> String {
    let (before, value) = match value {
        Value::String(text) => (syntax.text, text.clone()),
        other => (syntax.json, spaced_json(other)),
    };
    before.replace("KEY", key) + &value + syntax.close
}

#[cfg(test)]
mod tests {
    use crate::{OutputEvent, OutputForm, OutputParser, Reasoning, ToolFormat, ToolSignature};
    use serde_json::{Value, json};

    /// The calls that the parser of the format finds in `text`.
    fn read(format: &'static ToolFormat, text: &str) -> Vec<(String, Value)> {
        let signature = |name: &str| ToolSignature { name: name.into(), parameters: Value::Null };
        let tools = ["f", "g"].map(signature).into();
        let form = OutputForm {
            reasoning: Reasoning::Unsplit,
            format: Some(format),
            tools,
            parallel: true,
        };
        let mut parser = OutputParser::new(&form);
        let mut events = parser.push(text);
        events.extend(parser.finish(false));
        let mut calls: Vec<(String, String)> = Vec::new();
        for event in events {
            match event {
                OutputEvent::CallStart { name } => calls.push((name, String::new())),
                OutputEvent::CallArguments(more) => calls.last_mut().unwrap().1.push_str(&more),
                OutputEvent::CallEnd => {}
                other => panic!("{format}: {other:?} in {text}"),
            }
        }
        let parsed = |(name, text): (String, String)| {
            (name, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{format} {e}: {text}")))
        };
        calls.into_iter().map(parsed).collect()
    }

    #[test]
    fn written_calls_are_read_again() {
        let calls = [("f", json!({"a": "x <y> \"z\"", "b": [1, {"c": null}]})), ("g", json!({}))];
        for format in ToolFormat::ALL.iter().copied() {
            let count = if format.writes.many { 2 } else { 1 };
            let text = format.written(calls[..count].iter().map(|(name, it)| (*name, it)));
            let found = read(format, &text);
            let expected = calls[..count].iter().map(|(name, it)| ((*name).to_owned(), it.clone()));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{format}: {text}");
        }
    }
}
