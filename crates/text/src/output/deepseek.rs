//! The calls of DeepSeek V3, R1 and V3.1: a name and its arguments between special tokens.

use super::call::{Call, NamedCall};
use super::call_reader::Flow;
use super::literals::{Found, Literals};

const BEGIN: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const KIND: &str = "function";
const FENCE: &str = "```json";

/// The state of reading one.
#[derive(Clone, Debug)]
pub(crate) struct DeepSeek {
    state: State,
    /// Whether the arguments are fenced, as V3 and R1 have it.
    fenced: bool,
    text: String,
    literals: Literals,
}

#[derive(Clone, Debug)]
enum State {
    Begin,
    /// What stands before the separator: the kind of call where arguments are fenced, else a name.
    Head,
    /// The name, up to the end of its line.
    Line,
    Fence,
    Arguments(NamedCall),
}

impl DeepSeek {
    pub fn new(fenced: bool, literal: &str) -> Self {
        let state = if literal == BEGIN { State::Head } else { State::Begin };
        DeepSeek { state, fenced, text: String::new(), literals: Literals::default() }
    }

    pub fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match &mut self.state {
            State::Begin => self.literal(BEGIN, State::Head, c),
            State::Head => self.head(c, call),
            State::Line => self.line(c, call),
            State::Fence => {
                let name = NamedCall::new(self.text.trim());
                self.literal(FENCE, State::Arguments(name), c)
            }
            State::Arguments(named) => named.push(c, call).into(),
        }
    }

    /// White space and one literal, which leads to `next`.
    fn literal(&mut self, literal: &str, next: State, c: char) -> Flow {
        match self.literals.push(std::iter::once(literal), c) {
            Found::More => {}
            Found::One(_) => self.state = next,
            Found::Nothing if self.literals.is_empty() && c.is_whitespace() => {}
            Found::Nothing => return Flow::Refused,
        }
        Flow::More
    }

    fn head(&mut self, c: char, call: &mut Call) -> Flow {
        match self.literals.push(std::iter::once(SEPARATOR), c) {
            Found::More => Flow::More,
            Found::Nothing if !self.literals.is_empty() => Flow::Refused,
            Found::Nothing => {
                self.text.push(c);
                let text = self.text.trim();
                let fits = if self.fenced { KIND.starts_with(text) } else { call.may_name(text) };
                if fits { Flow::More } else { Flow::Refused }
            }
            Found::One(_) if self.fenced => {
                let fits = std::mem::take(&mut self.text).trim() == KIND;
                self.state = State::Line;
                if fits { Flow::More } else { Flow::Refused }
            }
            Found::One(_) => {
                let name = self.text.trim();
                let known = call.tool(name).is_some();
                self.state = State::Arguments(NamedCall::new(name));
                if known { Flow::More } else { Flow::Refused }
            }
        }
    }

    fn line(&mut self, c: char, call: &mut Call) -> Flow {
        let fits = if c == '\n' {
            self.state = State::Fence;
            call.tool(self.text.trim()).is_some()
        } else {
            self.text.push(c);
            call.may_name(self.text.trim())
        };
        if fits { Flow::More } else { Flow::Refused }
    }
}
