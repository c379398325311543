//! The calls of DeepSeek V3, R1 and V3.1: a name and its arguments between special tokens.

use crate::call_reader::Flow;
use crate::call_reader::call::{Call, NamedCall};
use crate::call_reader::literals::{Literals, Scan};

const BEGIN: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const KIND: &str = "function";
const FENCE: &str = "```json";

/// The state of reading one.
#[derive(Clone, Debug)]
pub(crate) struct DeepSeek {
    state: DeepSeekState,
    /// Whether the arguments are fenced, as V3 and R1 have it.
    fenced: bool,
    text: String,
    literals: Literals,
}

#[derive(Clone, Debug)]
enum DeepSeekState {
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
        let state = if literal == BEGIN { DeepSeekState::Head } else { DeepSeekState::Begin };
        DeepSeek { state, fenced, text: String::new(), literals: Literals::default() }
    }

    pub fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match &mut self.state {
            DeepSeekState::Begin => self.literal(BEGIN, DeepSeekState::Head, c),
            DeepSeekState::Head => self.head(c, call),
            DeepSeekState::Line => self.line(c, call),
            DeepSeekState::Fence => {
                let name = NamedCall::new(self.text.trim());
                self.literal(FENCE, DeepSeekState::Arguments(name), c)
            }
            DeepSeekState::Arguments(named) => named.push(c, call).into(),
        }
    }

    /// White space and one literal, which leads to `next`.
    fn literal(&mut self, literal: &str, next: DeepSeekState, c: char) -> Flow {
        match self.literals.push(std::iter::once(literal), c) {
            Scan::Partial => {}
            Scan::Whole(_) => self.state = next,
            Scan::None if self.literals.is_empty() && c.is_whitespace() => {}
            Scan::None => return Flow::Refused,
        }
        Flow::More
    }

    fn head(&mut self, c: char, call: &mut Call) -> Flow {
        match self.literals.push(std::iter::once(SEPARATOR), c) {
            Scan::Partial => Flow::More,
            Scan::None if !self.literals.is_empty() => Flow::Refused,
            Scan::None => {
                self.text.push(c);
                let text = self.text.trim();
                let fits = if self.fenced { KIND.starts_with(text) } else { call.may_name(text) };
                if fits { Flow::More } else { Flow::Refused }
            }
            Scan::Whole(_) if self.fenced => {
                let fits = std::mem::take(&mut self.text).trim() == KIND;
                self.state = DeepSeekState::Line;
                if fits { Flow::More } else { Flow::Refused }
            }
            Scan::Whole(_) => {
                let name = self.text.trim();
                let known = call.tool(name).is_some();
                self.state = DeepSeekState::Arguments(NamedCall::new(name));
                if known { Flow::More } else { Flow::Refused }
            }
        }
    }

    fn line(&mut self, c: char, call: &mut Call) -> Flow {
        let fits = if c == '\n' {
            self.state = DeepSeekState::Fence;
            call.tool(self.text.trim()).is_some()
        } else {
            self.text.push(c);
            call.may_name(self.text.trim())
        };
        if fits { Flow::More } else { Flow::Refused }
    }
}
