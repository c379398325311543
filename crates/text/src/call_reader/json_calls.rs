//! Calls that are JSON objects, alone or in an array: `{"name": .., "arguments": {..}}`.
//!
//! The keys come in any order; arguments before the name are held until the name is known.
//! Arguments may be called `parameters`, and may be a JSON string that holds the object.

use super::call::Call;
use super::json::{Json, JsonObject, NotJson, Span, Token};
use super::reader::{CallReader, Flow};

/// Characters of a key that are compared with the known keys.
const MAX_KEY: usize = 16;

/// What may come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JsonStart {
    /// The object after its brace.
    Inside,
    /// The object.
    #[default]
    Object,
    /// The object, or an array of such objects.
    List,
}

/// Reads a call that is a JSON object.
#[derive(Debug, Default)]
pub(crate) struct JsonCalls {
    start: JsonStart,
    json: Json,
    role: EnvelopePart,
    /// Whether unknown keys are let pass.
    lenient: bool,
    key: String,
    name: String,
    named: bool,
    arguments: ArgumentProgress,
    /// Arguments before the name.
    held: String,
}

/// The part of the object that the next character belongs to.
#[derive(Debug, Default)]
enum EnvelopePart {
    #[default]
    Outside,
    Key,
    /// The key is complete, its value has not begun.
    Keyed,
    Name,
    Arguments,
    ArgumentText(JsonObject),
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ArgumentProgress {
    #[default]
    None,
    Begun,
    Whole,
}

impl CallReader for JsonCalls {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match self.start {
            JsonStart::Object | JsonStart::List if c.is_whitespace() => return Flow::More,
            JsonStart::List if c == '[' => {
                self.start = JsonStart::Object;
                return Flow::More;
            }
            _ => self.start = JsonStart::Inside,
        }
        self.read(c, call).into()
    }

    /// The call may be complete although its object is not.
    fn finish(&mut self, _truncated: bool, call: &mut Call) -> bool {
        let whole = call.open && self.arguments == ArgumentProgress::Whole;
        if whole {
            call.end();
        }
        whole
    }
}

impl JsonCalls {
    /// A reader that lets unknown keys pass if `lenient`.
    pub fn new(start: JsonStart, lenient: bool) -> Self {
        let mut calls = JsonCalls { start, lenient, ..Self::default() };
        if start == JsonStart::Inside && calls.json.push('{').is_ok() {
            calls.role = EnvelopePart::Other;
        }
        calls
    }

    /// Takes the next character and returns whether the object, and with it the call, is complete.
    fn read(&mut self, c: char, call: &mut Call) -> Result<bool, NotJson> {
        let token = self.json.push(c)?;
        match &mut self.role {
            EnvelopePart::Outside if token == Token::Space => {}
            EnvelopePart::Outside if c == '{' => self.role = EnvelopePart::Other,
            EnvelopePart::Outside => return Err(NotJson),
            EnvelopePart::Key => self.key(token)?,
            EnvelopePart::Keyed => self.value(c, token, call)?,
            EnvelopePart::Name => self.name(token, call)?,
            EnvelopePart::Arguments => self.argument(c, token, call),
            EnvelopePart::ArgumentText(_) => self.argument_text(token, call)?,
            EnvelopePart::Other => return self.other(token, call),
        }
        Ok(false)
    }

    /// Takes a token between members, or in a value of an unknown key.
    fn other(&mut self, token: Token, call: &mut Call) -> Result<bool, NotJson> {
        match (token, self.json.depth()) {
            (Token::KeyStart, 1) => {
                self.key.clear();
                self.role = EnvelopePart::Key;
            }
            (Token::Close, 0) => {
                self.start(call);
                return if self.finish(false, call) { Ok(true) } else { Err(NotJson) };
            }
            _ => {}
        }
        Ok(false)
    }

    fn key(&mut self, token: Token) -> Result<(), NotJson> {
        match token {
            Token::Char(c) if self.key.len() <= MAX_KEY => self.key.push(c),
            Token::TextEnd => self.role = EnvelopePart::Keyed,
            _ => {}
        }
        let known = ["name", "arguments", "parameters", "id", "type"];
        let can_be = |known: &&str| match self.role {
            EnvelopePart::Key => known.starts_with(&self.key),
            _ => *known == self.key,
        };
        if self.lenient || known.iter().any(can_be) { Ok(()) } else { Err(NotJson) }
    }

    /// Takes the first character of a value, or a separator before it.
    fn value(&mut self, c: char, token: Token, call: &mut Call) -> Result<(), NotJson> {
        if matches!(token, Token::Space | Token::Separator) {
            return Ok(());
        }
        let arguments = matches!(self.key.as_str(), "arguments" | "parameters");
        self.role = match (self.key.as_str(), token) {
            ("name", Token::TextStart) if !self.named => EnvelopePart::Name,
            _ if arguments && self.arguments != ArgumentProgress::None => return Err(NotJson),
            _ if arguments && c == '{' => EnvelopePart::Arguments,
            _ if arguments && c == '"' => EnvelopePart::ArgumentText(JsonObject::default()),
            ("name" | "arguments" | "parameters", _) => return Err(NotJson),
            _ => EnvelopePart::Other,
        };
        if c == '{' && arguments {
            self.give(c, call);
        }
        Ok(())
    }

    fn name(&mut self, token: Token, call: &mut Call) -> Result<(), NotJson> {
        match token {
            Token::Char(c) => {
                self.name.push(c);
                if !call.may_name(&self.name) {
                    return Err(NotJson);
                }
            }
            Token::TextEnd if call.tool(&self.name).is_none() => return Err(NotJson),
            Token::TextEnd => {
                self.named = true;
                self.role = EnvelopePart::Other;
                self.start(call);
            }
            _ => {}
        }
        Ok(())
    }

    fn argument(&mut self, c: char, token: Token, call: &mut Call) {
        self.give(c, call);
        if token == Token::Close && self.json.depth() == 1 {
            self.arguments = ArgumentProgress::Whole;
            self.role = EnvelopePart::Other;
        }
    }

    fn argument_text(&mut self, token: Token, call: &mut Call) -> Result<(), NotJson> {
        let EnvelopePart::ArgumentText(object) = &mut self.role else { return Ok(()) };
        match token {
            Token::Char(c) => {
                let span = object.push(c)?;
                if span != Span::Outside {
                    self.give(c, call);
                }
            }
            Token::TextEnd if object.is_whole() => {
                self.arguments = ArgumentProgress::Whole;
                self.role = EnvelopePart::Other;
            }
            Token::TextEnd => return Err(NotJson),
            _ => {}
        }
        Ok(())
    }

    /// Writes a character of the arguments.
    fn give(&mut self, c: char, call: &mut Call) {
        if self.arguments == ArgumentProgress::None {
            self.arguments = ArgumentProgress::Begun;
        }
        self.start(call);
        match self.named {
            true => call.argument_char(c),
            false => self.held.push(c),
        }
    }

    /// Starts the call once its name is known and its arguments have begun.
    fn start(&mut self, call: &mut Call) {
        if self.named && self.arguments != ArgumentProgress::None && !call.open {
            call.start(&self.name);
            call.arguments(&std::mem::take(&mut self.held));
        }
    }
}
