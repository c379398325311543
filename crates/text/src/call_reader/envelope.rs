//! A call as one JSON object: `{"name": .., "arguments": {..}}`, its keys in any order.
//!
//! Arguments that come before the name are held until it is known. They may also be a JSON string
//! that holds the object, and be called `parameters`.

use super::call::Call;
use super::json::{Json, JsonObject, NotJson, Span, Token};

/// Longer keys are none that matter.
const MAX_KEY: usize = 16;

/// The state of reading one.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    json: Json,
    role: EnvelopePart,
    /// Whether keys without a meaning are let pass.
    lenient: bool,
    key: String,
    name: String,
    named: bool,
    arguments: ArgumentProgress,
    /// Arguments that wait for the name.
    held: String,
}

/// What the text belongs to.
#[derive(Clone, Debug)]
enum EnvelopePart {
    Outside,
    Key,
    /// The key is complete, its value has not begun.
    Keyed,
    Name,
    Arguments,
    ArgumentText(JsonObject),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentProgress {
    None,
    Begun,
    Whole,
}

impl Envelope {
    pub fn new(lenient: bool) -> Self {
        Envelope {
            json: Json::new(),
            role: EnvelopePart::Outside,
            lenient,
            key: String::new(),
            name: String::new(),
            named: false,
            arguments: ArgumentProgress::None,
            held: String::new(),
        }
    }

    /// Begins with the brace.
    pub fn open(&mut self) {
        if self.json.push('{').is_ok() {
            self.role = EnvelopePart::Other;
        }
    }

    /// Takes the next character; whether the object, and with it the call, is complete.
    pub fn push(&mut self, c: char, call: &mut Call) -> Result<bool, NotJson> {
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

    /// The end of the answer; whether the call is complete though its object is not.
    pub fn finish(&mut self, call: &mut Call) -> bool {
        let whole = call.is_open() && self.arguments == ArgumentProgress::Whole;
        if whole {
            call.end();
        }
        whole
    }

    /// Between members, and in values without a meaning.
    fn other(&mut self, token: Token, call: &mut Call) -> Result<bool, NotJson> {
        match (token, self.json.depth()) {
            (Token::KeyStart, 1) => {
                self.key.clear();
                self.role = EnvelopePart::Key;
            }
            (Token::Close, 0) => {
                self.start(call);
                return if self.finish(call) { Ok(true) } else { Err(NotJson) };
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

    /// The first character of a value, or what stands before it.
    fn value(&mut self, c: char, token: Token, call: &mut Call) -> Result<(), NotJson> {
        if matches!(token, Token::Space | Token::Separator) {
            return Ok(());
        }
        let arguments = matches!(self.key.as_str(), "arguments" | "parameters");
        self.role = match (self.key.as_str(), token) {
            ("name", Token::TextStart) if !self.named => EnvelopePart::Name,
            _ if arguments && self.arguments != ArgumentProgress::None => return Err(NotJson),
            _ if arguments && c == '{' => EnvelopePart::Arguments,
            _ if arguments && c == '"' => EnvelopePart::ArgumentText(JsonObject::new()),
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

    /// One more character of the arguments.
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

    /// Starts the call as soon as its name is known and its arguments have begun.
    fn start(&mut self, call: &mut Call) {
        if self.named && self.arguments != ArgumentProgress::None && !call.is_open() {
            call.start(&self.name);
            call.arguments(&std::mem::take(&mut self.held));
        }
    }
}
