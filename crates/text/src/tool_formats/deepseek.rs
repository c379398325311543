//! A name and its arguments between special tokens: DeepSeek V3, R1 and V3.1.

use super::format::ToolFormat;
use super::syntax::CallSyntax;
use crate::call_reader::LiteralRole::{Close, End, Start};
use crate::call_reader::call::{Call, NamedCall};
use crate::call_reader::literals::{Literals, Scan};
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK;

const BEGIN: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const KIND: &str = "function";
const FENCE: &str = "```json";

const BLOCK: CallSyntax = CallSyntax {
    open: "<｜tool▁calls▁begin｜>",
    close: "<｜tool▁calls▁end｜>",
    ..CallSyntax::PLAIN
};

/// DeepSeek V3.1, whose arguments stand alone.
const BARE: ToolFormat = ToolFormat {
    name: "deepseek-v3.1",
    detect: |template| template.contains(SEPARATOR) && !template.contains(FENCE),
    markers: &[
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        BEGIN,
        "<｜tool▁call▁end｜>",
        SEPARATOR,
    ],
    literals: &[
        ("<｜tool▁calls▁begin｜>", Start),
        (BEGIN, Start),
        ("```", Close),
        ("<｜tool▁call▁end｜>", Close),
        ("<｜tool▁calls▁end｜>", End),
    ],
    closing: &[("```", false), ("<｜tool▁call▁end｜>", false), ("<｜tool▁calls▁end｜>", true)],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        before: "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
        after: "<｜tool▁call▁end｜>",
        ..BLOCK
    },
    reader: |literal| Box::new(DeepSeek::new(false, literal)),
    structure: None,
    suffix: None,
};

/// The format of DeepSeek V3.1.
pub static DEEPSEEK_V31: ToolFormat = BARE;

/// The format of DeepSeek V3 and R1, whose arguments stand in a fenced block.
pub static DEEPSEEK_V3: ToolFormat = ToolFormat {
    name: "deepseek-v3",
    detect: |template| template.contains(SEPARATOR) && template.contains(FENCE),
    writes: CallSyntax {
        before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
        after: "\n```<｜tool▁call▁end｜>",
        between: "\n",
        ..BLOCK
    },
    reader: |literal| Box::new(DeepSeek::new(true, literal)),
    ..BARE
};

/// Reads one call.
#[derive(Debug)]
struct DeepSeek {
    state: DeepSeekState,
    /// Whether the arguments are fenced.
    fenced: bool,
    text: String,
    literals: Literals,
}

#[derive(Debug)]
enum DeepSeekState {
    Begin,
    /// Before the separator: the kind of call where arguments are fenced, else the name.
    Head,
    /// The name, up to the end of its line.
    Line,
    Fence,
    Arguments(NamedCall),
}

impl CallReader for DeepSeek {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
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
}

impl DeepSeek {
    fn new(fenced: bool, literal: &str) -> Self {
        let state = if literal == BEGIN { DeepSeekState::Head } else { DeepSeekState::Begin };
        DeepSeek { state, fenced, text: String::new(), literals: Literals::default() }
    }

    /// Takes white space and one literal, which leads to `next`.
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
