//! Parts of grammars in llguidance's dialect of Lark.

use super::error::GrammarError;
use super::source::Thinking;
use super::vocabulary::is_marker;
use crate::think::{THINK_OR_BRACKETS, ThinkTags};
use crate::tokenizer::Tokenizer;
use crate::tool_formats::ToolFormat;
use crate::tool_formats::syntax::MessageSyntax;
use crate::vocab::TokenKind;
use serde_json::{Value, json};

/// Returns a text as a literal.
pub(super) fn literal(text: &str) -> String {
    // JSON leaves this character as it is, literals may not hold it.
    json!(text).to_string().replace('\u{7f}', "\\x7f")
}

/// Returns a schema with the form of its JSON. One space may follow `,` and `:`, and no other white
/// space stands between values: models that are free to add line breaks add them without end.
pub(super) fn with_form(mut schema: Value) -> Value {
    let form =
        json!({"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": false});
    match &mut schema {
        Value::Object(object) => {
            object.insert("x-guidance".into(), form);
        }
        other => *other = json!({"allOf": [other.take()], "x-guidance": form}),
    }
    schema
}

/// Markers that are tokens of a vocabulary, with their ids; by default none are.
#[derive(Default)]
pub(super) struct MarkerTokens {
    tokens: Vec<(&'static str, u32)>,
}

impl MarkerTokens {
    /// The markers of all formats, and those of `format`.
    pub fn new(tokenizer: &Tokenizer, format: Option<&'static ToolFormat>) -> Self {
        let formats = ToolFormat::ALL.iter().copied().chain(format);
        let tags = |format: &'static ToolFormat| {
            format.markers.iter().chain(format.thinking.as_flattened())
        };
        let mut tokens = Vec::new();
        for tag in formats.flat_map(tags).chain(THINK_OR_BRACKETS.as_flattened()) {
            // The vocabulary of grammars keeps such tokens apart from text.
            let id = tokenizer.token_to_id(tag).filter(|id| match tokenizer.token_kind(*id) {
                Some(TokenKind::Special) => true,
                Some(TokenKind::Added) => is_marker(tag),
                _ => false,
            });
            tokens.extend(id.map(|id| (*tag, id)));
        }
        Self { tokens }
    }

    /// Returns the first marker in `text`: the text before it, its own text and its id.
    fn find<'a>(&self, text: &'a str) -> Option<(&'a str, &'static str, u32)> {
        let places = self.tokens.iter().filter_map(|(tag, id)| Some((text.find(tag)?, *tag, *id)));
        let (at, tag, id) = places.min_by_key(|(at, ..)| *at)?;
        Some((&text[..at], tag, id))
    }

    /// Returns the text before the first marker in `text`, if there is a marker.
    pub fn first<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.find(text).map(|(lead, ..)| lead)
    }

    /// Returns `text` as a sequence of literals and tokens.
    pub fn sequence(&self, text: &str) -> String {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((lead, tag, id)) = self.find(rest) {
            if !lead.is_empty() {
                parts.push(literal(lead));
            }
            parts.push(format!("<[{id}]>"));
            rest = &rest[lead.len() + tag.len()..];
        }
        if !rest.is_empty() {
            parts.push(literal(rest));
        }
        parts.join(" ")
    }

    fn token(&self, tag: &str) -> Option<u32> {
        self.tokens.iter().find(|(text, _)| *text == tag).map(|(_, id)| *id)
    }

    /// Adds the rules of reasoning to `rules` and returns the sequence that precedes the answer.
    /// Of `tags`, the first ones that the vocabulary has count.
    pub fn reasoning(&self, thinking: Thinking, tags: ThinkTags, rules: &mut String) -> String {
        let known = tags.iter().find(|[open, _]| self.token(open).is_some());
        let [open, close] = *known.unwrap_or(&tags[0]);
        let begin = match thinking {
            Thinking::None | Thinking::Channels => return String::new(),
            Thinking::Open => String::new(),
            Thinking::Possible => self.sequence(open),
        };
        let end = match self.token(close) {
            Some(id) => {
                rules.push_str("thought: /(?s:.*)/\n");
                format!("<[{id}]>")
            }
            None => {
                rules.push_str(&format!("thought[suffix={}]: /(?s:.*)/\n", literal(close)));
                String::new()
            }
        };
        rules.push_str("SPACE: /[ \\n]{0,4}/\n");
        let optional = if thinking == Thinking::Open { "" } else { "?" };
        format!("({begin} thought {end} SPACE){optional} ")
    }

    /// Adds the rules of messages: `other` is one that is not the answer, `final` and `TEXT` make
    /// one that is.
    ///
    /// # Errors
    /// If the vocabulary lacks a token that messages are made of.
    pub fn message_rules(
        &self,
        syntax: &MessageSyntax,
        rules: &mut String,
    ) -> Result<(), GrammarError> {
        if let Some(tag) = syntax.tokens.iter().find(|tag| self.token(tag).is_none()) {
            let what = format!("the vocabulary has no token {tag}, which messages are made of");
            return Err(GrammarError::Source { kind: "tools", what });
        }
        let [header, message, next] =
            [syntax.header, syntax.message, syntax.next].map(|text| self.sequence(text));
        let before: Vec<String> = syntax.before.iter().map(|name| literal(name)).collect();
        let (before, answer) = (before.join(" | "), literal(syntax.answer));
        rules.push_str(&format!(
            "TEXT: /(?s:.*)/\nother: {header} ({before}) {message} TEXT {next}\n\
             final: {header} {answer} {message}\n"
        ));
        Ok(())
    }
}
