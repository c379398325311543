//! The free text of a custom tool, read from the arguments of the function that stands for it
//! while they arrive.

use crate::protocols::responses::tools::INPUT;
use serde_json::Value;

/// Reads `{"input": "..."}`.
#[derive(Debug, Default)]
pub(crate) struct Freeform {
    arguments: String,
    /// Bytes of `arguments` that are read.
    read: usize,
    stage: Stage,
    given: String,
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
        if self.stage != Stage::Inside {
            return String::new();
        }
        let text = self.inside();
        self.given.push_str(&text);
        text
    }

    /// The text that was held back, and all of it. Arguments of another form are the text.
    pub fn finish(mut self) -> (String, String) {
        let whole = match serde_json::from_str::<Value>(&self.arguments) {
            Ok(Value::Object(mut object)) => match object.remove(INPUT) {
                Some(Value::String(text)) => text,
                _ => self.arguments,
            },
            _ => self.arguments,
        };
        match whole.strip_prefix(&self.given) {
            Some(rest) => (rest.to_owned(), whole),
            None => (String::new(), std::mem::take(&mut self.given)),
        }
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

    /// Reads characters up to the closing quote or an escape that is not complete.
    fn inside(&mut self) -> String {
        let mut text = String::new();
        while let Some(first) = self.arguments[self.read..].chars().next() {
            match first {
                '"' => {
                    self.stage = Stage::Over;
                    break;
                }
                '\\' => match escape(&self.arguments[self.read..]) {
                    Escape::Char(read, length) => {
                        text.push(read);
                        self.read += length;
                    }
                    Escape::Open => break,
                    Escape::Wrong => {
                        self.stage = Stage::Over;
                        break;
                    }
                },
                plain => {
                    text.push(plain);
                    self.read += plain.len_utf8();
                }
            }
        }
        text
    }
}

/// What a backslash begins.
enum Escape {
    /// This character, written with so many bytes.
    Char(char, usize),
    /// More is needed.
    Open,
    /// No escape of JSON.
    Wrong,
}

fn escape(text: &str) -> Escape {
    let Some(kind) = text.as_bytes().get(1) else { return Escape::Open };
    let simple = match kind {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'"' | b'\\' | b'/' => char::from(*kind),
        b'u' => return unicode(text),
        _ => return Escape::Wrong,
    };
    Escape::Char(simple, 2)
}

/// `\uXXXX`, or two of them for a character beyond the first plane.
fn unicode(text: &str) -> Escape {
    let unit = |at: usize| text.get(at..at + 4).and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let Some(first) = unit(2) else {
        return if text.len() < 6 { Escape::Open } else { Escape::Wrong };
    };
    if let Some(read) = char::from_u32(first.into()) {
        return Escape::Char(read, 6);
    }
    match unit(8) {
        Some(second) => match char::decode_utf16([first, second]).next() {
            Some(Ok(read)) if text[6..].starts_with("\\u") => Escape::Char(read, 12),
            _ => Escape::Wrong,
        },
        None if text.len() < 12 => Escape::Open,
        None => Escape::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text as it comes, one character of the arguments at a time.
    fn read(arguments: &str) -> (String, String) {
        let mut reader = Freeform::default();
        let mut streamed = String::new();
        for one in arguments.chars() {
            streamed += &reader.push(one.encode_utf8(&mut [0; 4]));
        }
        let (rest, whole) = reader.finish();
        (streamed + &rest, whole)
    }

    fn check(arguments: &str, expected: &str) {
        let (streamed, whole) = read(arguments);
        assert_eq!((streamed.as_str(), whole.as_str()), (expected, expected), "{arguments}");
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
        let (streamed, whole) = read(r#"{"input": "ab\q"}"#);
        assert_eq!(streamed, whole);
        let (streamed, whole) = read(r#"{"input": "ab"#);
        assert_eq!((streamed.as_str(), whole.as_str()), ("ab", "ab"));
    }
}
