//! An incremental JSON checker that classifies each character.
//!
//! The checker accepts the texts of RFC 8259, except for halves of surrogate pairs and for depth
//! beyond a bound.

/// Depth of a text, within the limits of other parsers.
const MAX_DEPTH: usize = 100;

/// The text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson;

/// The class of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// White space between tokens.
    Space,
    /// `{` or `[`.
    Open,
    /// `}` or `]`.
    Close,
    /// `,` or `:`.
    Separator,
    /// The quote that begins a key.
    KeyStart,
    /// The quote that begins a string that is a value.
    TextStart,
    /// The quote that ends a key or a string.
    TextEnd,
    /// A character of a string, unescaped.
    Char(char),
    /// Part of an escape that is not complete.
    Escape,
    /// Part of a number or of a word.
    Scalar,
}

/// The state of a running check; by default before a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Json {
    state: JsonState,
    /// The open objects (true) and arrays (false).
    open: Vec<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
enum JsonState {
    #[default]
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    After,
    Text {
        key: bool,
        high: u32,
        at: At,
    },
    Number(Number),
    Word(&'static str),
}

/// The place in a string.
#[derive(Clone, Copy, Debug)]
enum At {
    Plain,
    Backslash,
    Hex { digits: u32, value: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Json {
    /// Returns the number of open objects and arrays.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether a whole value has been read.
    pub fn is_whole(&self) -> bool {
        let ended = match self.state {
            JsonState::After => true,
            JsonState::Number(number) => number.can_end(),
            _ => false,
        };
        ended && self.open.is_empty()
    }

    /// Returns the quote that the text needs before the open objects and arrays can be closed,
    /// which is empty in most places; `None` where a key, a number or a word is not complete.
    fn quote(&self) -> Option<&'static str> {
        match self.state {
            JsonState::Text { key: false, high: 0, at: At::Plain } => Some("\""),
            JsonState::After | JsonState::ValueOrEnd | JsonState::KeyOrEnd => Some(""),
            JsonState::Number(number) if number.can_end() => Some(""),
            _ => None,
        }
    }

    /// Takes the next character. After an error the checker is of no use.
    ///
    /// # Errors
    /// If the character continues no JSON.
    pub fn push(&mut self, c: char) -> Result<Token, NotJson> {
        match self.state {
            JsonState::Text { key, high, at } => self.text(c, key, high, at),
            JsonState::Number(number) => match number.push(c) {
                Some(next) => self.turn(JsonState::Number(next), Token::Scalar),
                None if number.can_end() => {
                    self.state = JsonState::After;
                    self.structure(c)
                }
                None => Err(NotJson),
            },
            JsonState::Word(rest) => match rest.strip_prefix(c).ok_or(NotJson)? {
                "" => self.turn(JsonState::After, Token::Scalar),
                rest => self.turn(JsonState::Word(rest), Token::Scalar),
            },
            _ => self.structure(c),
        }
    }

    fn turn(&mut self, state: JsonState, token: Token) -> Result<Token, NotJson> {
        self.state = state;
        Ok(token)
    }

    /// Takes a character between strings, numbers and words.
    fn structure(&mut self, c: char) -> Result<Token, NotJson> {
        if matches!(c, ' ' | '\t' | '\n' | '\r') {
            return Ok(Token::Space);
        }
        match (self.state, c, self.open.last()) {
            (JsonState::Key | JsonState::KeyOrEnd, '"', _) => {
                self.turn(text(true), Token::KeyStart)
            }
            (JsonState::Colon, ':', _) => self.turn(JsonState::Value, Token::Separator),
            (JsonState::After, ',', Some(true)) => self.turn(JsonState::Key, Token::Separator),
            (JsonState::After, ',', Some(false)) => self.turn(JsonState::Value, Token::Separator),
            (JsonState::KeyOrEnd | JsonState::After, '}', Some(true))
            | (JsonState::ValueOrEnd | JsonState::After, ']', Some(false)) => {
                self.open.pop();
                self.turn(JsonState::After, Token::Close)
            }
            (JsonState::Value | JsonState::ValueOrEnd, _, _) => self.value(c),
            _ => Err(NotJson),
        }
    }

    /// Takes the first character of a value.
    fn value(&mut self, c: char) -> Result<Token, NotJson> {
        match c {
            '{' | '[' if self.open.len() < MAX_DEPTH => {
                self.open.push(c == '{');
                let state = if c == '{' { JsonState::KeyOrEnd } else { JsonState::ValueOrEnd };
                self.turn(state, Token::Open)
            }
            '"' => self.turn(text(false), Token::TextStart),
            '-' => self.turn(JsonState::Number(Number::Minus), Token::Scalar),
            '0' => self.turn(JsonState::Number(Number::Zero), Token::Scalar),
            '1'..='9' => self.turn(JsonState::Number(Number::Integer), Token::Scalar),
            't' => self.turn(JsonState::Word("rue"), Token::Scalar),
            'f' => self.turn(JsonState::Word("alse"), Token::Scalar),
            'n' => self.turn(JsonState::Word("ull"), Token::Scalar),
            _ => Err(NotJson),
        }
    }

    /// Takes a character of a string; `high` is the first half of a surrogate pair, or 0.
    fn text(&mut self, c: char, key: bool, high: u32, at: At) -> Result<Token, NotJson> {
        let mut escape = |at| self.turn(JsonState::Text { key, high, at }, Token::Escape);
        match (at, c) {
            (At::Plain, '\\') => escape(At::Backslash),
            (At::Backslash, 'u') => escape(At::Hex { digits: 0, value: 0 }),
            (At::Hex { digits, value }, _) => {
                let value = value * 16 + c.to_digit(16).ok_or(NotJson)?;
                if digits < 3 {
                    return escape(At::Hex { digits: digits + 1, value });
                }
                self.unicode(value, key, high)
            }
            _ if high != 0 => Err(NotJson),
            (At::Plain, '"') => {
                self.turn(if key { JsonState::Colon } else { JsonState::After }, Token::TextEnd)
            }
            (At::Plain, ' '..) => Ok(Token::Char(c)),
            (At::Backslash, _) => {
                let c = unescaped(c).ok_or(NotJson)?;
                self.turn(text(key), Token::Char(c))
            }
            _ => Err(NotJson),
        }
    }

    /// Takes the value of the four digits of `\u`.
    fn unicode(&mut self, value: u32, key: bool, high: u32) -> Result<Token, NotJson> {
        match (value, high) {
            (0xd800..=0xdbff, 0) => {
                self.turn(JsonState::Text { key, high: value, at: At::Plain }, Token::Escape)
            }
            (0xdc00..=0xdfff, 1..) => {
                let code = 0x10000 + ((high - 0xd800) << 10) + (value - 0xdc00);
                let c = char::from_u32(code).ok_or(NotJson)?;
                self.turn(text(key), Token::Char(c))
            }
            (_, 0) => {
                let c = char::from_u32(value).ok_or(NotJson)?;
                self.turn(text(key), Token::Char(c))
            }
            _ => Err(NotJson),
        }
    }
}

/// Returns the state at the start of a string.
fn text(key: bool) -> JsonState {
    JsonState::Text { key, high: 0, at: At::Plain }
}

/// Returns the character of the escape `c` after a backslash.
fn unescaped(c: char) -> Option<char> {
    let all = [('n', '\n'), ('t', '\t'), ('r', '\r'), ('b', '\u{8}'), ('f', '\u{c}')];
    let all = [('"', '"'), ('\\', '\\'), ('/', '/')].into_iter().chain(all);
    all.into_iter().find(|&(name, _)| name == c).map(|(_, c)| c)
}

impl Number {
    /// Returns the state after `c`, if `c` continues the number.
    fn push(self, c: char) -> Option<Self> {
        Some(match (self, c) {
            (Self::Minus, '0') => Self::Zero,
            (Self::Minus, '1'..='9') | (Self::Integer, '0'..='9') => Self::Integer,
            (Self::Zero | Self::Integer, '.') => Self::Point,
            (Self::Point | Self::Fraction, '0'..='9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, 'e' | 'E') => Self::E,
            (Self::E, '+' | '-') => Self::Sign,
            (Self::E | Self::Sign | Self::Exponent, '0'..='9') => Self::Exponent,
            _ => return None,
        })
    }

    fn can_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Exponent)
    }
}

/// The place of a character relative to a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// White space around it.
    Outside,
    /// The first character of the object, or one in the middle.
    Inside,
    /// The brace that closes the object.
    Last,
}

/// An object alone; by default before its brace.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonObject(Json);

impl JsonObject {
    /// Takes the next character.
    ///
    /// # Errors
    /// If the character continues no JSON object.
    pub fn push(&mut self, c: char) -> Result<Span, NotJson> {
        let first = self.0.depth() == 0;
        match self.0.push(c)? {
            Token::Space if first => Ok(Span::Outside),
            Token::Close if self.0.depth() == 0 => Ok(Span::Last),
            _ if first && c != '{' => Err(NotJson),
            _ => Ok(Span::Inside),
        }
    }

    /// Whether the whole object has been read.
    pub fn is_whole(&self) -> bool {
        self.0.is_whole()
    }
}

/// Whether `text` is one JSON value with white space around it.
pub(crate) fn is_json(text: &str) -> bool {
    let mut json = Json::default();
    text.chars().all(|c| json.push(c).is_ok()) && json.is_whole()
}

/// Returns the JSON text of an object from a text that begins one: the longest part of it that can
/// be closed, closed. A member whose value has not begun is left out; an empty text is an object
/// without members.
pub fn closed_object(text: &str) -> String {
    let (mut json, mut end, mut quote) = (Json::default(), 0, "");
    for (at, c) in text.char_indices() {
        if json.push(c).is_err() {
            break;
        }
        if let Some(needed) = json.quote() {
            (end, quote) = (at + c.len_utf8(), needed);
        }
    }
    if end == 0 {
        return "{}".into();
    }
    // Objects and arrays begin and end in places where the text can be closed, so that those open
    // at the end are those open at the last such place.
    let brackets = json.open.iter().rev().map(|object| if *object { '}' } else { ']' });
    let mut closed = format!("{}{quote}", &text[..end]);
    closed.extend(brackets);
    closed
}

/// Appends `c`, escaped for a JSON string.
pub(crate) fn escape_into(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        _ => out.push(c),
    }
}

/// Returns `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    text.chars().for_each(|c| escape_into(&mut out, c));
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;
    use serde_json::Value;

    #[test]
    fn json_is_told_from_what_is_not() {
        let good =
            ["{}", " [1, -0.5e+3, \"a\\u00e9\\n\"] ", "{\"a\":{\"b\":[[],{}]}}", "null", "0"];
        let bad = ["", "{", "01", "1.", "[1,]", "{\"a\"}", "{a:1}", "\"\n\"", "nul", "{}{}", "-"];
        good.iter().for_each(|text| assert!(is_json(text), "{text}"));
        bad.iter().for_each(|text| assert!(!is_json(text), "{text}"));
    }

    #[test]
    fn objects_are_closed_after_their_last_whole_part() {
        for (text, expected) in [
            ("", "{}"),
            ("{", "{}"),
            ("{\"a", "{}"),
            ("{\"a\": ", "{}"),
            ("{\"a\": \"x\\", "{\"a\": \"x\"}"),
            ("{\"a\": \"x\\ud83d\\u", "{\"a\": \"x\"}"),
            ("{\"a\": [1, tru", "{\"a\": [1]}"),
            ("{\"a\": [1, {\"b\": -", "{\"a\": [1, {}]}"),
            ("{\"a\": 12", "{\"a\": 12}"),
            ("{\"a\": {}, \"b\"", "{\"a\": {}}"),
            ("{\"a\": null}", "{\"a\": null}"),
        ] {
            assert_eq!(closed_object(text), expected, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(is_json(&nested(MAX_DEPTH)));
        assert!(!is_json(&nested(MAX_DEPTH + 1)));
    }

    #[test]
    fn strings_come_unescaped() {
        let mut json = Json::default();
        let tokens = r#""\ud83d\ude42é\/""#.chars().map(|c| json.push(c).unwrap());
        let chars = tokens.filter_map(|t| if let Token::Char(c) = t { Some(c) } else { None });
        assert_eq!(chars.collect::<String>(), "🙂é/");
        for half in [r#""\ud83d""#, r#""\ud83dx""#, r#""\ude42""#, r#""\ud83d\n""#] {
            assert!(!is_json(half), "{half}");
        }
    }

    proptest! {
        #[test]
        fn the_checker_agrees_with_the_parser(
            words in prop::collection::vec(
                r#"[\[\]{},:"]|"[a\\"]{0,2}"|-?[0-9.eE+]{1,4}|true|null|\\u00e9| |\n"#, 0..8,
            ),
        ) {
            let text = words.concat();
            let parsed = serde_json::from_str::<IgnoredAny>(&text).is_ok();
            prop_assert_eq!(is_json(&text), parsed, "{}", text);
        }

        #[test]
        fn every_beginning_of_an_object_can_be_closed(
            keys in prop::collection::vec("[a\"\\\\é]{0,3}", 0..4), value in any::<(bool, f32, String)>(),
        ) {
            let (word, number, text) = value;
            let inner = serde_json::json!([word, number, text, {}, null, [{"k": text}]]);
            let members = keys.into_iter().map(|key| (key, inner.clone()));
            let object = Value::Object(members.collect());
            let text = object.to_string();
            for (at, _) in text.char_indices() {
                let closed = serde_json::from_str::<Value>(&closed_object(&text[..at]));
                prop_assert!(closed.is_ok_and(|value| value.is_object()), "{}", &text[..at]);
            }
            prop_assert_eq!(closed_object(&text), text);
        }

        #[test]
        fn quoted_text_is_read_back(text in any::<String>()) {
            prop_assert_eq!(serde_json::from_str::<Value>(&quoted(&text)).unwrap(), text);
        }
    }
}
