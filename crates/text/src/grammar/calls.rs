//! Calls of tools as a grammar, in the syntax that each family of models was trained on.
//!
//! Markers that are tokens of the vocabulary must be those tokens, others are text. The root is in
//! llguidance's dialect of Lark, arguments are grammars of their own that it refers to by name.

use super::compiler::json_grammar;
use super::lark::{MarkerTokens, literal};
use super::parameters::{ParameterStyle, any_parameters, parameters};
use super::schema::checked;
use super::source::CallGrammar;
use super::{GrammarError, Thinking};
use crate::Tokenizer;
use crate::output::ToolSignature;
use crate::tool_formats::ToolFormat;
use llguidance::api::GrammarWithLexer;
use serde_json::{Value, json};

/// Tools of a request.
const MAX_TOOLS: usize = 128;
/// Bytes of the name of a tool.
const MAX_NAME: usize = 128;

/// How a format writes a block of calls. `NAME` stands for the tool's name.
#[derive(Clone, Copy)]
struct Layout {
    open: &'static str,
    /// The text that begins a call where no token does.
    begin: &'static str,
    before: &'static str,
    after: &'static str,
    between: &'static str,
    close: &'static str,
    /// How arguments are written where they are not one JSON object.
    style: Option<ParameterStyle>,
    /// More than one call may be made.
    many: bool,
}

const PLAIN: Layout = Layout {
    open: "",
    begin: "",
    before: "",
    after: "",
    between: "",
    close: "",
    style: None,
    many: true,
};

const HERMES: Layout = Layout {
    begin: "<tool_call>",
    before: "\n{\"name\": \"NAME\", \"arguments\": ",
    after: "}\n</tool_call>",
    between: "\n",
    ..PLAIN
};
const CODER: Layout = Layout {
    begin: "<tool_call>",
    before: "\n<function=NAME>\n",
    after: "</function>\n</tool_call>",
    between: "\n",
    style: Some(ParameterStyle::Coder),
    ..PLAIN
};
const LLAMA: Layout =
    Layout { before: "{\"name\": \"NAME\", \"parameters\": ", after: "}", many: false, ..PLAIN };
const MISTRAL_LIST: Layout = Layout {
    open: "[TOOL_CALLS][",
    before: "{\"name\": \"NAME\", \"arguments\": ",
    after: "}",
    between: ", ",
    close: "]",
    ..PLAIN
};
const MISTRAL_NAMED: Layout = Layout { before: "[TOOL_CALLS]NAME[ARGS]", ..PLAIN };
const DEEPSEEK_V3: Layout = Layout {
    open: "<｜tool▁calls▁begin｜>",
    before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
    after: "\n```<｜tool▁call▁end｜>",
    between: "\n",
    close: "<｜tool▁calls▁end｜>",
    ..PLAIN
};
const DEEPSEEK_V31: Layout = Layout {
    open: "<｜tool▁calls▁begin｜>",
    before: "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
    after: "<｜tool▁call▁end｜>",
    close: "<｜tool▁calls▁end｜>",
    ..PLAIN
};
const DSML: Layout = Layout {
    open: "<｜DSML｜tool_calls>\n",
    before: "<｜DSML｜invoke name=\"NAME\">\n",
    after: "</｜DSML｜invoke>\n",
    close: "</｜DSML｜tool_calls>",
    style: Some(ParameterStyle::Dsml),
    ..PLAIN
};
const HARMONY: Layout = Layout {
    before: "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
    many: false,
    ..PLAIN
};

/// The grammars of `calls`, the root first.
pub(super) fn grammars(
    calls: &CallGrammar,
    thinking: Thinking,
    tokenizer: &Tokenizer,
) -> Result<Vec<GrammarWithLexer>, GrammarError> {
    check(calls)?;
    let mut writer = Writer {
        tags: MarkerTokens::new(tokenizer),
        layout: layout(calls.format, tokenizer),
        grammars: vec![GrammarWithLexer::default()],
        rules: String::new(),
    };
    let mut tools = Vec::new();
    for (at, tool) in calls.tools.iter().enumerate() {
        tools.push(writer.call(at, tool)?);
    }
    writer.rules.push_str(&format!("body: {}\n", tools.join(" | ")));
    let many = calls.parallel && writer.layout.many;
    let answer = match calls.format {
        ToolFormat::Harmony => writer.harmony(calls.required)?,
        _ if calls.required => writer.block(many),
        ToolFormat::Llama => writer.bare(many),
        _ => writer.on_demand(many)?,
    };
    let before = match calls.format {
        ToolFormat::Harmony => String::new(),
        _ => writer.tags.reasoning(thinking, &mut writer.rules),
    };
    let root = format!("start: {before}{answer}\n{}", writer.rules);
    writer.grammars[0] = GrammarWithLexer::from_lark(root);
    Ok(writer.grammars)
}

fn check(calls: &CallGrammar) -> Result<(), GrammarError> {
    let wrong = |what: String| Err(GrammarError::Source { kind: "tools", what });
    let count = calls.tools.len();
    if !(1..=MAX_TOOLS).contains(&count) {
        return wrong(format!("expected 1 to {MAX_TOOLS} tools, found {count}"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    for ToolSignature { name, .. } in &calls.tools {
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            return wrong(format!(
                "expected a name of up to {MAX_NAME} letters, digits, _, - and ., found {name:?}"
            ));
        }
    }
    Ok(())
}

fn layout(format: ToolFormat, tokenizer: &Tokenizer) -> Layout {
    match format {
        ToolFormat::Hermes => HERMES,
        ToolFormat::QwenCoder => CODER,
        ToolFormat::Llama => LLAMA,
        ToolFormat::Mistral if tokenizer.token_to_id("[ARGS]").is_some() => MISTRAL_NAMED,
        ToolFormat::Mistral => MISTRAL_LIST,
        ToolFormat::DeepSeekV3 => DEEPSEEK_V3,
        ToolFormat::DeepSeekV31 => DEEPSEEK_V31,
        ToolFormat::Dsml => DSML,
        ToolFormat::Harmony => HARMONY,
    }
}

/// Writes the rules.
struct Writer {
    tags: MarkerTokens,
    layout: Layout,
    grammars: Vec<GrammarWithLexer>,
    rules: String,
}

impl Writer {
    /// The rule of a call of `tool`, by name.
    fn call(&mut self, at: usize, tool: &ToolSignature) -> Result<String, GrammarError> {
        let Layout { before, after, style, .. } = self.layout;
        let schema = match &tool.parameters {
            Value::Null => json!({"type": "object"}),
            schema => checked(schema)?,
        };
        let arguments = match style {
            None => self.json(format!("arguments-{at}"), schema),
            Some(style) => {
                let written = match &tool.parameters {
                    Value::Null => any_parameters(style, at, &self.tags),
                    _ => parameters(style, at, &schema, &self.tags)?,
                };
                for (name, schema) in written.values {
                    self.json(name, schema);
                }
                self.rules.push_str(&written.rules);
                written.sequence
            }
        };
        let before = self.tags.sequence(&before.replace("NAME", &tool.name));
        let after = self.tags.sequence(after);
        self.rules.push_str(&format!("body-{at}: {before} {arguments} {after}\n"));
        Ok(format!("body-{at}"))
    }

    /// Adds the grammar of a JSON value, and gives the reference to it.
    fn json(&mut self, name: String, schema: Value) -> String {
        let reference = format!("@{name}");
        self.grammars.push(GrammarWithLexer { name: Some(name), ..json_grammar(schema) });
        reference
    }

    /// One call or several, with what stands around them.
    fn block(&mut self, many: bool) -> String {
        let begin = self.tags.sequence(self.layout.begin);
        format!("{} {begin} {}", self.tags.sequence(self.layout.open), self.rest(many))
    }

    /// A block from the body of its first call on.
    fn rest(&mut self, many: bool) -> String {
        let Layout { begin, between, close, .. } = self.layout;
        let [next, close] =
            [&[between, begin].concat(), close].map(|text| self.tags.sequence(text));
        let more = if many { format!("({next} body)*") } else { String::new() };
        format!("body {more} {close}")
    }

    /// Free text, behind which calls may begin.
    fn on_demand(&mut self, many: bool) -> Result<String, GrammarError> {
        let Layout { open, begin, before, .. } = self.layout;
        let first = [open, begin, before].concat();
        self.rules.push_str("TEXT: /(?s:.*)/\n");
        match self.tags.first(&first) {
            Some("") => Ok(format!("TEXT ({})?", self.block(many))),
            // What stands before the token belongs to the text, in which no lexeme ends.
            Some(lead) => {
                let lead = lead.to_owned();
                self.rules.push_str(&format!("LEAD: TEXT {}\n", literal(&lead)));
                let block = self.block(many);
                let block = block.trim_start();
                let rest = block.strip_prefix(&literal(&lead)).unwrap_or(block);
                Ok(format!("(TEXT | LEAD {rest})"))
            }
            None if begin.is_empty() => Err(GrammarError::Source {
                kind: "tools",
                what: "the vocabulary has no token with which calls of this format begin".into(),
            }),
            None => {
                let begin = literal(begin);
                self.rules.push_str(&format!(
                    "FREE: TEXT & ~(TEXT {begin} TEXT)\nhead[lazy]: TEXT {begin}\n"
                ));
                Ok(format!("(FREE | head {})", self.rest(many)))
            }
        }
    }

    /// The whole answer is a call, or text that cannot be taken for one.
    fn bare(&mut self, many: bool) -> String {
        self.rules.push_str("TEXT: /([^{ \\n](?s:.*))?/\n");
        format!("(TEXT | {})", self.block(many))
    }

    /// A message to a tool, or one to the reader; messages of other channels may stand before it.
    fn harmony(&mut self, required: bool) -> Result<String, GrammarError> {
        let message = self.tags.message_rules(&mut self.rules)?;
        let call = self.block(false);
        let end = if required { call } else { format!("({call} | final TEXT)") };
        Ok(format!("{message}* {end}"))
    }
}
