//! Literals of Python, as models write them: strings, numbers, `True`, `None`, lists and dicts.

use crate::call_reader::json::{is_json, quoted};

/// A string after its quote.
#[derive(Clone, Debug)]
pub(super) struct PythonString {
    quote: char,
    /// The characters of an escape after its backslash.
    escape: Option<String>,
}

/// What a character of a string is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StringStep {
    /// This text of the string.
    More(String),
    /// The end of the string.
    Over,
}

impl PythonString {
    /// The string that begins with `c`.
    pub fn begun(c: char) -> Option<Self> {
        matches!(c, '"' | '\'').then_some(Self { quote: c, escape: None })
    }

    /// Takes the next character; `None` if it ends no number of a character.
    pub fn push(&mut self, c: char) -> Option<StringStep> {
        let Some(escape) = &mut self.escape else {
            return Some(match c {
                '\\' => {
                    self.escape = Some(String::new());
                    StringStep::More(String::new())
                }
                _ if c == self.quote => StringStep::Over,
                _ => StringStep::More(c.into()),
            });
        };
        escape.push(c);
        let digits = match escape.as_bytes()[0] {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => 0,
        };
        if escape.chars().count() <= digits {
            return Some(StringStep::More(String::new()));
        }
        let text = match c {
            _ if digits > 0 => {
                char::from_u32(u32::from_str_radix(&escape[1..], 16).ok()?)?.to_string()
            }
            'n' => "\n".into(),
            't' => "\t".into(),
            'r' => "\r".into(),
            '\\' | '\'' | '"' => c.into(),
            // A backslash before any other character stands for itself.
            _ => format!("\\{c}"),
        };
        self.escape = None;
        Some(StringStep::More(text))
    }
}

/// Returns the JSON of a literal; `None` if it has none.
pub(super) fn json_of(literal: &str) -> Option<String> {
    let (mut json, mut word) = (String::new(), String::new());
    let mut chars = literal.trim().chars();
    while let Some(c) = chars.next() {
        let Some(mut string) = PythonString::begun(c) else {
            let is_word = c.is_alphanumeric() || "+-._".contains(c);
            if is_word {
                word.push(c);
                continue;
            }
            json += named(&std::mem::take(&mut word));
            json.push(match c {
                '(' => '[',
                ')' => ']',
                other => other,
            });
            continue;
        };
        json += named(&std::mem::take(&mut word));
        let mut text = String::new();
        while let StringStep::More(more) = string.push(chars.next()?)? {
            text += &more;
        }
        json += &quoted(&text);
    }
    json += named(&word);
    is_json(&json).then_some(json)
}

/// The JSON of a word.
fn named(word: &str) -> &str {
    match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        for (literal, expected) in [
            ("True", "true"),
            (" -2.5e3 ", "-2.5e3"),
            ("[1, 'a\\'b', (None, False)]", r#"[1, "a'b", [null, false]]"#),
            ("{'k': \"x\\n\", 'l': []}", r#"{"k": "x\n", "l": []}"#),
            ("{\"a\": true, \"b\": null}", r#"{"a": true, "b": null}"#),
            ("'\\u00e9\\x41\\d'", r#""éA\\d""#),
        ] {
            assert_eq!(json_of(literal).as_deref(), Some(expected), "{literal}");
        }
    }

    #[test]
    fn other_texts_have_no_json() {
        for literal in ["", "x", "f(1)", "[1", "'a", "1 2", "'\\u00g0'", "'\\ud800'", "{1: 2}"] {
            assert_eq!(json_of(literal), None, "{literal}");
        }
        assert_eq!(json_of(&"[".repeat(100_000)), None);
    }
}
