//! Calls of tools as a grammar, in the syntax that each family of models was trained on.
//!
//! Markers that are tokens of the vocabulary must be those tokens, others are text. The root is in
//! llguidance's dialect of Lark; arguments are separate grammars, to which the root refers by name.

use super::error::GrammarError;
use super::json::{allows_anything, json_grammar, of_objects};
use super::lark::{MarkerTokens, literal};
use super::parameters::{any_parameters, parameters};
use super::schema::checked;
use super::source::CallGrammar;
use super::source::Thinking;
use crate::call_reader::call::ToolSignature;
use crate::tokenizer::Tokenizer;
use crate::tool_formats::ToolFormat;
use crate::tool_formats::syntax::{AnswerSyntax, CallSyntax, MessageSyntax};
use llguidance::api::GrammarWithLexer;
use serde_json::{Value, json};

/// Bytes of the name of a tool.
const MAX_NAME: usize = 128;

/// Returns the grammars of `calls`, the root first; `answer` is the grammar of an answer without
/// calls, if it is not free.
///
/// # Errors
/// If a tool's name or schema cannot be used, or the vocabulary lacks a token of the format.
pub(super) fn grammars(
    calls: &CallGrammar,
    answer: Option<GrammarWithLexer>,
    thinking: Thinking,
    tokenizer: &Tokenizer,
) -> Result<Vec<GrammarWithLexer>, GrammarError> {
    check(calls)?;
    let mut writer = Writer {
        tags: MarkerTokens::new(tokenizer, Some(calls.format)),
        syntax: syntax(calls.format, tokenizer),
        grammars: vec![GrammarWithLexer::default()],
        rules: String::new(),
    };
    let mut tools = Vec::new();
    for (at, tool) in calls.tools.iter().enumerate() {
        tools.push(writer.call(at, tool)?);
    }
    writer.rules.push_str(&format!("body: {}\n", tools.join(" | ")));
    let many = calls.parallel && writer.syntax.many;
    let answer = answer.map(|grammar| {
        let reference = format!("@{}", grammar.name.as_deref().unwrap_or_default());
        writer.grammars.push(grammar);
        reference
    });
    let answer = match (writer.syntax.answer, answer) {
        (AnswerSyntax::Messages(messages), answer) => {
            let text = answer.as_deref().unwrap_or("TEXT");
            writer.messages(messages, many, (!calls.required).then_some(text))?
        }
        _ if calls.required => writer.block(many),
        (_, Some(answer)) => format!("({} | {answer})", writer.block(many)),
        (AnswerSyntax::TextOrCall, None) => writer.text_or_call(many),
        (AnswerSyntax::TextThenCalls, None) => writer.text_then_calls(many)?,
    };
    let before = match writer.syntax.answer {
        AnswerSyntax::Messages(_) => String::new(),
        _ => writer.tags.reasoning(thinking, calls.format.thinking, &mut writer.rules),
    };
    let root = format!("start: {before}{answer}\n{}", writer.rules);
    writer.grammars[0] = GrammarWithLexer::from_lark(root);
    Ok(writer.grammars)
}

fn check(calls: &CallGrammar) -> Result<(), GrammarError> {
    let wrong = |what: String| Err(GrammarError::Source { kind: "tools", what });
    if calls.tools.is_empty() {
        return wrong("expected one or more tools, found none".into());
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

/// Checks that calls in `format` can write the arguments of `tool`, whose schema is one of objects.
///
/// # Errors
/// If they cannot.
pub(super) fn check_arguments(
    format: &'static ToolFormat,
    tool: &ToolSignature,
) -> Result<(), GrammarError> {
    let Some(syntax) = format.writes.parameters else { return Ok(()) };
    parameters(syntax, 0, &tool.parameters, &MarkerTokens::default()).map(drop)
}

/// Returns the syntax of a format that fits a vocabulary.
fn syntax(format: &'static ToolFormat, tokenizer: &Tokenizer) -> &'static CallSyntax {
    match format.writes.without {
        Some((token, other)) if tokenizer.token_to_id(token).is_none() => other,
        _ => &format.writes,
    }
}

/// Writes the rules.
struct Writer {
    tags: MarkerTokens,
    syntax: &'static CallSyntax,
    grammars: Vec<GrammarWithLexer>,
    rules: String,
}

impl Writer {
    /// Adds the rule of a call of `tool` and returns its name.
    fn call(&mut self, at: usize, tool: &ToolSignature) -> Result<String, GrammarError> {
        let CallSyntax { before, after, parameters: one_by_one, .. } = *self.syntax;
        let schema = match &tool.parameters {
            Value::Null => json!(true),
            schema => checked(schema)?,
        };
        let arguments = match one_by_one {
            None => {
                let name = format!("arguments-{at}");
                let reference = format!("@{name}");
                let grammar = json_grammar(of_objects(schema)?)?;
                self.grammars.push(GrammarWithLexer { name: Some(name), ..grammar });
                reference
            }
            Some(syntax) => {
                let written = match allows_anything(&schema) {
                    true => any_parameters(syntax, at, &self.tags),
                    false => parameters(syntax, at, &of_objects(schema)?, &self.tags)?,
                };
                self.grammars.extend(written.values);
                self.rules.push_str(&written.rules);
                written.sequence
            }
        };
        let before = self.tags.sequence(&before.replace("NAME", &tool.name));
        let after = self.tags.sequence(after);
        self.rules.push_str(&format!("body-{at}: {before} {arguments} {after}\n"));
        Ok(format!("body-{at}"))
    }

    /// One call or several, with the texts around them.
    fn block(&mut self, many: bool) -> String {
        let begin = self.tags.sequence(self.syntax.begin);
        format!("{} {begin} {}", self.tags.sequence(self.syntax.open), self.rest(many))
    }

    /// A block from the body of its first call on.
    fn rest(&mut self, many: bool) -> String {
        let CallSyntax { begin, between, close, .. } = *self.syntax;
        let [next, close] =
            [&[between, begin].concat(), close].map(|text| self.tags.sequence(text));
        let more = if many { format!("({next} body)*") } else { String::new() };
        format!("body {more} {close}")
    }

    /// Free text, after which calls may begin.
    fn text_then_calls(&mut self, many: bool) -> Result<String, GrammarError> {
        let CallSyntax { open, begin, before, .. } = *self.syntax;
        let first = [open, begin, before].concat();
        self.rules.push_str("TEXT: /(?s:.*)/\n");
        match self.tags.first(&first) {
            Some("") => Ok(format!("TEXT ({})?", self.block(many))),
            // The literal before the token belongs to the text, in which no lexeme ends.
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

    /// A call, or text that cannot be taken for one.
    fn text_or_call(&mut self, many: bool) -> String {
        self.rules.push_str("TEXT: /([^{ \\n](?s:.*))?/\n");
        format!("(TEXT | {})", self.block(many))
    }

    /// Messages before the answer, then a message to a tool, several of them if `many`, or the
    /// answer, which is of the rule `answer`; without `answer`, messages to tools.
    fn messages(
        &mut self,
        syntax: &MessageSyntax,
        many: bool,
        answer: Option<&str>,
    ) -> Result<String, GrammarError> {
        self.tags.message_rules(syntax, &mut self.rules)?;
        let call = self.block(many);
        let end = answer.map(|answer| format!("({call} | final {answer})")).unwrap_or(call);
        Ok(format!("other* {end}"))
    }
}
