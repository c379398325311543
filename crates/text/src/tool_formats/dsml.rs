//! DeepSeek's markup of invocations and their parameters, in its three dialects: V3.2 and later.
//!
//! Arguments become JSON while they stream. In the body of a string only an escaped closing tag is
//! unescaped, because models are instructed to escape nothing else; attributes are unescaped as in
//! XML. A parameter without a type that begins with another parameter is an object.

use super::dsml_dialects::{Dialect, LITERALS, Tag, escape};
pub use super::dsml_structure::CallStructure;

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::call_reader::call::Call;
use crate::call_reader::json::{Json, Token, quoted};
use crate::call_reader::literals::{Literals, Scan};
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK;

/// The format of DeepSeek V3.2 and later.
pub static DSML: ToolFormat = ToolFormat {
    name: "dsml",
    detect: |template| template.contains("｜DSML｜"),
    markers: &["｜DSML｜"],
    literals: LITERALS,
    closing: &[
        ("</｜DSML｜tool_calls>", true),
        ("</｜DSML｜function_calls>", true),
        ("</DSML｜tool_calls>", true),
        ("</DSML｜function_calls>", true),
        ("</tool_calls>", true),
        ("</function_calls>", true),
    ],
    anywhere: true,
    thinking: THINK,
    writes: CallSyntax {
        open: "<｜DSML｜tool_calls>\n",
        before: "<｜DSML｜invoke name=\"NAME\">\n",
        after: "</｜DSML｜invoke>\n",
        close: "</｜DSML｜tool_calls>",
        parameters: Some(ParameterSyntax {
            text: "<｜DSML｜parameter name=\"KEY\" string=\"true\">",
            json: "<｜DSML｜parameter name=\"KEY\" string=\"false\">",
            close: "</｜DSML｜parameter>\n",
            end: "</｜DSML｜parameter",
            escaped_end: Some("&lt;/｜DSML｜parameter>"),
            key: |key| Some(escape(key)),
        }),
        ..CallSyntax::PLAIN
    },
    reader: |literal| Box::new(Dsml::new(literal)),
    structure: Some(CallStructure::new),
    suffix: None,
};

/// Objects that may be open within the arguments.
const MAX_NESTED: usize = 8;

/// Reads a block of calls.
#[derive(Debug)]
struct Dsml {
    dialect: &'static Dialect,
    state: DsmlState,
    literals: Literals,
    /// The name of the tool.
    tool: String,
    /// The keys of its arguments so far.
    keys: Vec<String>,
    /// Number of open objects: the arguments and those within.
    open: usize,
    /// Whether the innermost open object has no member yet.
    fresh: bool,
}

#[derive(Clone, Debug)]
enum DsmlState {
    /// After the name of an opening tag, up to its `>`.
    Opening(Tag, String),
    /// After the name of a closing tag; in a value also its body, if the tag turns out to be text.
    Closing(Tag, String, Option<ParameterBody>),
    /// Between invocations.
    Block,
    /// Between parameters.
    Members,
    /// At the start of a value without a type: white space so far.
    Untyped(String),
    Value(ParameterBody),
}

#[derive(Clone, Debug)]
enum ParameterBody {
    Text,
    /// The flag says whether anything but white space has come.
    Json(Json, bool),
}

impl CallReader for Dsml {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match self.step(c, call) {
            Some(flow) => flow,
            None => Flow::Refused,
        }
    }

    /// A call is complete if each parameter that has begun is, and, in an answer that was cut off,
    /// if no required argument is missing.
    fn finish(&mut self, truncated: bool, call: &mut Call) -> bool {
        let in_block = call.ended > 0 && !call.open;
        match &self.state {
            DsmlState::Block if in_block => self.ends_block(),
            DsmlState::Closing(Tag::Block, ..) => in_block,
            DsmlState::Members if self.literals.is_empty() => {
                let complete = !truncated || self.has_required(call);
                if complete {
                    self.close(call);
                }
                complete
            }
            _ => false,
        }
    }
}

impl Dsml {
    fn new(literal: &str) -> Self {
        let (dialect, tag) = Dialect::of(literal);
        Dsml {
            dialect,
            state: DsmlState::Opening(tag, String::new()),
            literals: Literals::default(),
            tool: String::new(),
            keys: Vec::new(),
            open: 0,
            fresh: true,
        }
    }

    /// Whether the text since the last tag is the start of the closing tag of the block.
    fn ends_block(&self) -> bool {
        let ends = self.dialect.in_block.iter().filter(|(_, tag, _)| *tag == Tag::Block);
        ends.into_iter().any(|(text, ..)| self.literals.may_become(text))
    }

    fn has_required(&self, call: &Call) -> bool {
        let required = call.tool(&self.tool).map(|tool| &tool.parameters["required"]);
        let names = required.and_then(|required| required.as_array()).into_iter().flatten();
        names.into_iter().all(|name| self.keys.iter().any(|key| name == key))
    }

    /// Takes the next character; `None` if it cannot follow.
    fn step(&mut self, c: char, call: &mut Call) -> Option<Flow> {
        match &mut self.state {
            DsmlState::Opening(tag, text) => {
                let tag = *tag;
                if c == '>' {
                    let text = std::mem::take(text);
                    self.opened(tag, &text, call)?;
                } else if text.is_empty() && !c.is_ascii_whitespace() {
                    return None;
                } else {
                    text.push(c);
                }
            }
            DsmlState::Closing(..) => return self.closing(c, call),
            DsmlState::Block | DsmlState::Members => self.between(c)?,
            DsmlState::Untyped(_) => self.untyped(c, call)?,
            DsmlState::Value(_) => self.value(c, call)?,
        }
        Some(Flow::More)
    }

    /// Takes the end of an opening tag.
    fn opened(&mut self, tag: Tag, text: &str, call: &mut Call) -> Option<()> {
        self.state = match tag {
            Tag::Block => DsmlState::Block,
            Tag::Invoke => {
                self.tool = Dialect::attribute(text, "name")?;
                call.tool(&self.tool)?;
                call.start(&self.tool);
                (self.open, self.fresh) = (0, true);
                self.keys.clear();
                self.object(call)?;
                DsmlState::Members
            }
            Tag::Parameter => self.parameter(text, call)?,
        };
        Some(())
    }

    /// Begins a parameter and returns the state of its value.
    fn parameter(&mut self, text: &str, call: &mut Call) -> Option<DsmlState> {
        let key = Dialect::attribute(text, "name")?;
        let separator = if std::mem::take(&mut self.fresh) { "" } else { "," };
        call.arguments(&format!("{separator}{}:", quoted(&key)));
        if self.open == 1 {
            self.keys.push(key);
        }
        Some(match Dialect::attribute(text, "string").as_deref() {
            None => DsmlState::Untyped(String::new()),
            Some("false") => DsmlState::Value(ParameterBody::Json(Json::default(), false)),
            Some(_) => {
                call.arguments("\"");
                DsmlState::Value(ParameterBody::Text)
            }
        })
    }

    fn object(&mut self, call: &mut Call) -> Option<()> {
        call.arguments("{");
        self.open += 1;
        self.fresh = true;
        (self.open <= 1 + MAX_NESTED).then_some(())
    }

    /// Takes white space or a tag.
    fn between(&mut self, c: char) -> Option<()> {
        let tags = self.tags();
        match self.literals.push(tags.iter().map(|(text, ..)| *text), c) {
            Scan::Partial => Some(()),
            Scan::Whole(index) => {
                let (_, tag, opens) = tags[index];
                self.state = match opens {
                    true => DsmlState::Opening(tag, String::new()),
                    false => DsmlState::Closing(tag, String::new(), None),
                };
                Some(())
            }
            Scan::None => (self.literals.is_empty() && c.is_whitespace()).then_some(()),
        }
    }

    /// Returns the tags that can come here, and whether they open.
    fn tags(&self) -> &'static [(&'static str, Tag, bool)] {
        match (&self.state, self.open) {
            (DsmlState::Block, _) => &self.dialect.in_block,
            (_, 1) => &self.dialect.in_object[..2],
            _ => &self.dialect.in_object,
        }
    }

    /// Takes a character after the name of a closing tag: white space and one more bar pass.
    fn closing(&mut self, c: char, call: &mut Call) -> Option<Flow> {
        let DsmlState::Closing(tag, text, body) = &mut self.state else { return None };
        let (tag, body) = (*tag, body.clone());
        if c == '>' {
            return self.closed(tag, body, call);
        }
        if c.is_ascii_whitespace() || (c == '｜' && !text.contains('｜')) {
            text.push(c);
            return Some(Flow::More);
        }
        let text = self.dialect.in_text[0].to_owned() + text;
        self.state = DsmlState::Value(body?);
        text.chars().try_for_each(|c| self.body(c, call))?;
        self.value(c, call)?;
        Some(Flow::More)
    }

    /// Takes the end of a closing tag.
    fn closed(&mut self, tag: Tag, body: Option<ParameterBody>, call: &mut Call) -> Option<Flow> {
        match (tag, body) {
            (Tag::Block, _) => return Some(Flow::Complete),
            (Tag::Invoke, _) => {
                self.close(call);
                self.state = DsmlState::Block;
                return Some(Flow::More);
            }
            (Tag::Parameter, Some(ParameterBody::Text)) => call.arguments("\""),
            (Tag::Parameter, Some(ParameterBody::Json(_, false))) => call.arguments("null"),
            (Tag::Parameter, Some(ParameterBody::Json(json, true))) => {
                json.is_whole().then_some(())?
            }
            (Tag::Parameter, None) => {
                call.arguments("}");
                self.open -= 1;
            }
        }
        self.fresh = false;
        self.state = DsmlState::Members;
        Some(Flow::More)
    }

    /// Ends the call and all objects in it.
    fn close(&mut self, call: &mut Call) {
        call.arguments(&"}".repeat(self.open));
        self.open = 0;
        call.end();
    }

    /// Takes the start of a value without a type: an object if a parameter comes, else a string.
    fn untyped(&mut self, c: char, call: &mut Call) -> Option<()> {
        let DsmlState::Untyped(space) = &mut self.state else { return None };
        let [end, escaped] = self.dialect.in_text;
        let options = [self.dialect.in_object[0].0, end, escaped];
        let held = match self.literals.push(options.into_iter(), c) {
            Scan::Partial => return Some(()),
            Scan::Whole(0) => {
                self.state = DsmlState::Opening(Tag::Parameter, String::new());
                return self.object(call);
            }
            Scan::Whole(index) => options[index].to_owned(),
            Scan::None if self.literals.is_empty() && c.is_whitespace() => {
                space.push(c);
                return Some(());
            }
            Scan::None => self.literals.take() + c.encode_utf8(&mut [0; 4]),
        };
        // A string: the text held is read again as its body.
        let held = std::mem::take(space) + &held;
        call.arguments("\"");
        self.state = DsmlState::Value(ParameterBody::Text);
        held.chars().try_for_each(|c| self.value(c, call))
    }

    /// Takes a character of a value or of its closing tag.
    fn value(&mut self, c: char, call: &mut Call) -> Option<()> {
        let DsmlState::Value(body) = &self.state else { return None };
        let text = matches!(body, ParameterBody::Text);
        let options = if text { &self.dialect.in_text[..] } else { &self.dialect.in_text[..1] };
        let (read, tag) = self.literals.feed(options.iter().copied(), c);
        read.chars().try_for_each(|c| self.body(c, call))?;
        match (tag, &self.state) {
            (Some(0), DsmlState::Value(body)) => {
                let body = Some(body.clone());
                self.state = DsmlState::Closing(Tag::Parameter, String::new(), body);
            }
            (Some(_), _) => {
                let mut escaped = self.dialect.in_text[0].chars().chain(['>']);
                escaped.try_for_each(|c| self.body(c, call))?;
            }
            _ => {}
        }
        Some(())
    }

    /// Writes a character of a value.
    fn body(&mut self, c: char, call: &mut Call) -> Option<()> {
        match &mut self.state {
            DsmlState::Value(ParameterBody::Text) => call.text_char(c),
            DsmlState::Value(ParameterBody::Json(json, begun)) => {
                if json.push(c).ok()? != Token::Space {
                    *begun = true;
                    call.argument_char(c);
                }
            }
            _ => return None,
        }
        Some(())
    }
}
