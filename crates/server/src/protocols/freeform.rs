//! Custom tools, whose argument is free text: the function of one string that stands for each, and
//! the text, read from the arguments of a call while they arrive.

use crate::generate::answer::members;
use api::Tool;
use serde_json::{Value, json};

/// The parameter that carries the text of a custom tool.
pub(crate) const INPUT: &str = "input";

/// What a warning says of a custom tool whose text has a grammar.
pub(crate) const GRAMMAR_IS_TOLD: &str = "the grammar is told to the model and not enforced";

/// The function that stands for the custom tool `name`. The syntax and the definition of a
/// `grammar` are shown to the model.
pub(crate) fn function(
    name: String,
    description: Option<String>,
    grammar: Option<(&str, &str)>,
) -> Tool {
    let mut input = json!({ "type": "string" });
    if let Some((syntax, definition)) = grammar {
        input["description"] = format!("Text of this {syntax} grammar:\n{definition}").into();
    }
    let description = Some(description.unwrap_or_default());
    let parameters = json!({
        "type": "object",
        "properties": { (INPUT): input },
        "required": [INPUT],
        "additionalProperties": false,
    });
    Tool { name, description, parameters, strict: false, source: None }
}

/// The arguments of the function for a call with this text.
pub(crate) fn arguments(text: &str) -> Value {
    json!({ (INPUT): text })
}

/// The text of a call with these arguments.
pub(crate) fn text(arguments: &str) -> String {
    let mut reader = Freeform::default();
    let text = reader.push(arguments);
    let rest = reader.finish(&text);
    text + &rest
}

/// Reads `{"input": "..."}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freeform {
    arguments: String,
    /// Bytes of `arguments` that are read.
    read: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The text has not begun.
    #[default]
    Before,
    /// Within the text.
    Inside,
    /// Behind the text, or the arguments are something else.
    Over,
}

impl Freeform {
    /// The text that more of the arguments complete.
    pub fn push(&mut self, delta: &str) -> String {
        self.arguments.push_str(delta);
        if self.stage == Stage::Before {
            self.begin();
        }
        let mut text = String::new();
        while self.stage == Stage::Inside
            && let Some(unit) = unit(&self.arguments[self.read..])
        {
            self.read += unit.len();
            match unit {
                "\"" => self.stage = Stage::Over,
                _ if unit.starts_with('\\') => {
                    match serde_json::from_str::<String>(&format!("\"{unit}\"")) {
                        Ok(escaped) => text += &escaped,
                        Err(_) => self.stage = Stage::Over,
                    }
                }
                _ => text += unit,
            }
        }
        text
    }

    /// The text that was held back, after `given`. Arguments of another form are the text; of
    /// arguments that were cut, only their text is.
    pub fn finish(self, given: &str) -> String {
        let whole = serde_json::from_str::<Value>(&self.arguments).is_ok();
        let cut = !whole && self.arguments.starts_with('{');
        let whole = match members(&self.arguments).get_mut(INPUT).map(Value::take) {
            Some(Value::String(text)) => text,
            _ if cut => String::new(),
            _ => self.arguments,
        };
        whole.strip_prefix(given).unwrap_or_default().to_owned()
    }

    /// Looks for the beginning of the text, which only one spelling of the object has.
    fn begin(&mut self) {
        let mut rest = self.arguments.as_str();
        for word in ["{", "\"input\"", ":", "\""] {
            rest = rest.trim_start();
            match rest.strip_prefix(word) {
                Some(behind) => rest = behind,
                None if word.starts_with(rest) => return,
                None => {
                    self.stage = Stage::Over;
                    return;
                }
            }
        }
        self.read = self.arguments.len() - rest.len();
        self.stage = Stage::Inside;
    }
}

/// The character that `text` begins with, as it is written in JSON; `None` while it is incomplete.
fn unit(text: &str) -> Option<&str> {
    let length = match text.as_bytes() {
        // The first half of a character beyond the first plane.
        [b'\\', b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B', ..] => 12,
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        _ => text.chars().next()?.len_utf8(),
    };
    (text.len() >= length).then(|| &text[..text.ceil_char_boundary(length)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text as it comes, one character of the arguments at a time.
    fn read(arguments: &str) -> String {
        let mut reader = Freeform::default();
        let mut streamed = String::new();
        for one in arguments.chars() {
            streamed += &reader.push(one.encode_utf8(&mut [0; 4]));
        }
        let rest = reader.finish(&streamed);
        streamed + &rest
    }

    fn check(arguments: &str, expected: &str) {
        assert_eq!(read(arguments), expected, "{arguments}");
    }

    #[test]
    fn text_comes_out_of_its_json_unchanged() {
        let text = "a \"quoted\" line\n\ttab \\ é 😀 \u{1}";
        check(&serde_json::json!({ "input": text }).to_string(), text);
        check(r#" { "input" : "x" } "#, "x");
        check(r#"{"input": "\ud83d\ude00\u00e9"}"#, "😀é");
        check(r#"{"input": ""}"#, "");
    }

    #[test]
    fn the_text_of_arguments_is_the_one_that_they_were_made_of() {
        for given in ["", "a \"b\"\n", "{\"input\": 1}"] {
            assert_eq!(text(&arguments(given).to_string()), given);
        }
    }

    #[test]
    fn text_streams_before_its_end() {
        let mut reader = Freeform::default();
        assert_eq!(reader.push(r#"{"input": "ab\"#), "ab");
        assert_eq!(reader.push("n"), "\n");
    }

    #[test]
    fn arguments_of_another_form_are_the_text() {
        for other in ["{}", r#"{"x": 1}"#, "plain", r#"{"input": 3}"#, "[1]"] {
            check(other, other);
        }
        check(r#"{"why": "x", "input": "y"}"#, "y");
    }

    #[test]
    fn broken_text_is_what_was_read_of_it() {
        check(r#"{"input": "ab\q"}"#, "ab");
        check(r#"{"input": "ab"#, "ab");
        check(r#"{"input": "ab\ud83dxxxxxxxx"}"#, "ab");
        check(r#"{"input": "ab\udc00"}"#, "ab");
        check(r#"{"input": "ab\u1"#, "ab");
        check(r#"{"input": "#, "");
        check(r#"{"why": "x", "input": "y"#, "y");
        check("{\"why", "");
    }
}
