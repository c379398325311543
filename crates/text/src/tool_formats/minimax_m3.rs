//! MiniMax-M3: `<tool_call>` around `<invoke name="NAME">`, each with an element for each argument,
//! whose name is that of the element. All tags have a prefix that occurs in no text.
//!
//! Objects and lists are elements within elements; those of a list are called `item`. Values are
//! plain text, and of the type that the schema states. Grammars write objects and lists as JSON,
//! which is read too.

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use crate::call_reader::LiteralRole::{End, Start};
use crate::call_reader::call::{Call, schema_types};
use crate::call_reader::json::quoted;
use crate::call_reader::literals::Literals;
use crate::call_reader::text_arguments::TextValue;
use crate::call_reader::{CallReader, Flow};
use crate::think::MM_THINK;
use serde_json::Value;

/// Before each tag.
const PREFIX: &str = "]<]minimax[>[";
const BLOCK: &str = "]<]minimax[>[<tool_call>";
const BLOCK_END: &str = "]<]minimax[>[</tool_call>";

/// The format of MiniMax-M3.
pub static MINIMAX_M3: ToolFormat = ToolFormat {
    name: "minimax-m3",
    detect: |template| template.contains(PREFIX),
    markers: &[PREFIX],
    literals: &[(BLOCK, Start), (BLOCK_END, End)],
    closing: &[(BLOCK_END, true)],
    anywhere: true,
    thinking: MM_THINK,
    writes: CallSyntax {
        open: "]<]minimax[>[<tool_call>\n",
        before: "]<]minimax[>[<invoke name=\"NAME\">",
        after: "]<]minimax[>[</invoke>\n",
        close: BLOCK_END,
        parameters: Some(ParameterSyntax {
            text: "]<]minimax[>[<KEY>",
            json: "]<]minimax[>[<KEY>",
            close: "]<]minimax[>[</KEY>",
            end: PREFIX,
            escaped_end: None,
            key: |key| {
                let fits = |c: char| c.is_alphanumeric() || "_-.:$".contains(c);
                (!key.is_empty() && key.chars().all(fits)).then(|| key.to_owned())
            },
        }),
        ..CallSyntax::PLAIN
    },
    reader: |_| Box::new(Elements::default()),
    structure: None,
    suffix: None,
};

/// Elements that may be open within a call.
const MAX_NESTED: usize = 16;
/// Bytes of a tag besides the name of a tool.
const MAX_TAG: usize = 256;
/// The name of the elements of a list.
const ITEM: &str = "item";

/// Reads a block of calls.
#[derive(Debug, Default)]
struct Elements {
    literals: Literals,
    /// The text of a tag so far, from its `<` on; `None` outside of tags.
    tag: Option<String>,
    /// The name of the tool.
    tool: String,
    /// The open elements of a call; the first one is the call itself.
    open: Vec<OpenElement>,
    /// Whether a call of the block has ended.
    called: bool,
}

/// An open element.
#[derive(Debug)]
struct OpenElement {
    /// The name of the argument or member.
    name: String,
    body: Body,
    /// Whether it has an element.
    begun: bool,
}

#[derive(Debug)]
enum Body {
    /// Text. The flag says whether anything but white space has come.
    Text(TextValue, bool),
    Object,
    List,
}

impl CallReader for Elements {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        self.step(c, call).unwrap_or(Flow::Refused)
    }

    /// The end of a block may be cut off or left out.
    fn finish(&mut self, _truncated: bool, _call: &mut Call) -> bool {
        let tag = self.tag.as_deref().unwrap_or_default();
        self.called && self.open.is_empty() && BLOCK_END[PREFIX.len()..].starts_with(tag)
    }
}

impl Elements {
    /// Takes the next character; `None` if it cannot follow.
    fn step(&mut self, c: char, call: &mut Call) -> Option<Flow> {
        if let Some(tag) = &mut self.tag {
            tag.push(c);
            let most = MAX_TAG + call.max_name();
            if c == '>' {
                let tag = self.tag.take()?;
                return self.tagged(tag.strip_prefix('<')?.strip_suffix('>')?, call);
            }
            let fits = tag.starts_with('<') && tag.len() <= most && c != '\n';
            return fits.then_some(Flow::More);
        }
        let (text, prefix) = self.literals.feed([PREFIX].into_iter(), c);
        text.chars().try_for_each(|c| self.text(c, call))?;
        if prefix.is_some() {
            self.tag = Some(String::new());
        }
        Some(Flow::More)
    }

    /// Takes a character outside of tags. Where no text can be, tags may be without their prefix.
    fn text(&mut self, c: char, call: &mut Call) -> Option<()> {
        match self.open.last_mut() {
            Some(OpenElement { body: Body::Text(value, begun), .. }) => {
                *begun |= !c.is_whitespace();
                value.push(c.encode_utf8(&mut [0; 4]), call);
            }
            _ if c == '<' => self.tag = Some("<".into()),
            _ => return c.is_whitespace().then_some(()),
        }
        Some(())
    }

    /// Takes a whole tag without its brackets.
    fn tagged(&mut self, tag: &str, call: &mut Call) -> Option<Flow> {
        match (self.open.len(), tag.strip_prefix('/')) {
            (0, Some("tool_call")) => return self.called.then_some(Flow::Complete),
            // The tag of the block may come again.
            (0, None) if tag == "tool_call" => {}
            (0, _) => self.start(tag, call)?,
            (_, None) => self.element(tag, call)?,
            (1, Some(name)) => {
                (name == "invoke").then_some(())?;
                self.open.clear();
                call.arguments("}");
                call.end();
                self.called = true;
            }
            (_, Some(_)) => self.close(call)?,
        }
        Some(Flow::More)
    }

    /// Begins a call.
    fn start(&mut self, tag: &str, call: &mut Call) -> Option<()> {
        let name = tag.strip_prefix("invoke name=\"")?.strip_suffix('"')?;
        call.tool(name)?;
        self.tool = name.to_owned();
        call.start(name);
        call.arguments("{");
        self.open.push(OpenElement { name: String::new(), body: Body::Object, begun: false });
        Some(())
    }

    /// Begins an element in the innermost one.
    fn element(&mut self, name: &str, call: &mut Call) -> Option<()> {
        let is_list = match &self.types(call)[..] {
            ["array"] => true,
            ["object"] => false,
            _ => name == ITEM,
        };
        let last = self.open.last_mut()?;
        if let Body::Text(value, begun) = &last.body {
            (!begun && !value.is_text()).then_some(())?;
            last.body = if is_list { Body::List } else { Body::Object };
            call.arguments(if is_list { "[" } else { "{" });
        }
        if std::mem::replace(&mut last.begun, true) {
            call.arguments(",");
        }
        if matches!(last.body, Body::Object) {
            call.arguments(&format!("{}:", quoted(name)));
        }
        let body = Body::Text(TextValue::default(), false);
        self.open.push(OpenElement { name: name.to_owned(), body, begun: false });
        let value = TextValue::of(&self.types(call));
        value.begin(call);
        self.open.last_mut()?.body = Body::Text(value, false);
        (self.open.len() <= MAX_NESTED).then_some(())
    }

    /// Ends the innermost element.
    fn close(&mut self, call: &mut Call) -> Option<()> {
        let empty = match &self.types(call)[..] {
            ["array"] => Some("[]"),
            ["object"] => Some("{}"),
            _ => None,
        };
        match (self.open.pop()?.body, empty) {
            (Body::Text(_, false), Some(empty)) => call.arguments(empty),
            (Body::Text(mut value, _), _) => value.close(call),
            (Body::Object, _) => call.arguments("}"),
            (Body::List, _) => call.arguments("]"),
        }
        Some(())
    }

    /// The types of the innermost element, where the schema of the tool states them.
    fn types<'a>(&self, call: &'a Call) -> Vec<&'a str> {
        self.schema(call).map(schema_types).unwrap_or_default()
    }

    /// The schema of the innermost element, where that of the tool states it.
    fn schema<'a>(&self, call: &'a Call) -> Option<&'a Value> {
        let mut schema = &call.tool(&self.tool)?.parameters;
        for pair in self.open.windows(2) {
            schema = match pair[0].body {
                Body::List => &schema["items"],
                _ => &schema["properties"][&*pair[1].name],
            };
        }
        Some(schema)
    }
}
