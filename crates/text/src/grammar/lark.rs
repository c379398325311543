//! Pieces of grammars in llguidance's dialect of Lark.

use super::vocabulary::is_marker;
use super::{GrammarError, Thinking};
use crate::tool_formats::ToolFormat;
use crate::{TokenKind, Tokenizer};
use serde_json::json;

/// MarkerTokens around reasoning.
const THINK: [[&str; 2]; 2] = [["<think>", "</think>"], ["[THINK]", "[/THINK]"]];

/// A text as a literal.
pub(super) fn literal(text: &str) -> String {
    json!(text).to_string()
}

/// Markers that are tokens of a vocabulary.
pub(super) struct MarkerTokens {
    tokens: Vec<(&'static str, u32)>,
}

impl MarkerTokens {
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let formats = ToolFormat::ALL.iter().flat_map(|format| format.markers());
        let mut tokens = Vec::new();
        for tag in formats.chain(THINK.as_flattened()) {
            // As the vocabulary of grammars has it: apart from text.
            let id = tokenizer.token_to_id(tag).filter(|id| match tokenizer.token_kind(*id) {
                Some(TokenKind::Special) => true,
                Some(TokenKind::Added) => is_marker(tag),
                _ => false,
            });
            tokens.extend(id.map(|id| (*tag, id)));
        }
        Self { tokens }
    }

    /// The first token that `text` holds: the text before it, its own, and its id.
    fn find<'a>(&self, text: &'a str) -> Option<(&'a str, &'static str, u32)> {
        let places = self.tokens.iter().filter_map(|(tag, id)| Some((text.find(tag)?, *tag, *id)));
        let (at, tag, id) = places.min_by_key(|(at, ..)| *at)?;
        Some((&text[..at], tag, id))
    }

    /// What stands before the first token in `text`, if there is one.
    pub fn first<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.find(text).map(|(lead, ..)| lead)
    }

    /// `text` with its markers as tokens.
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

    /// What stands before an answer that may be preceded by reasoning; `rules` gets what it needs.
    pub fn reasoning(&self, thinking: Thinking, rules: &mut String) -> String {
        let known = THINK.iter().find(|[open, _]| self.token(open).is_some());
        let [open, close] = *known.unwrap_or(&THINK[0]);
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

    /// The rules of messages between channels: gives that of one that is not the answer, and leaves
    /// `final` and `TEXT` for one that is.
    pub fn message_rules(&self, rules: &mut String) -> Result<&'static str, GrammarError> {
        let missing = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"];
        if let Some(tag) = missing.iter().find(|tag| self.token(tag).is_none()) {
            let what = format!("the vocabulary has no token {tag}, which messages are made of");
            return Err(GrammarError::Source { kind: "tools", what });
        }
        let [channel, message, next] =
            ["<|channel|>", "<|message|>", "<|end|><|start|>assistant"].map(|t| self.sequence(t));
        rules.push_str(&format!(
            "TEXT: /(?s:.*)/\nother: {channel} (\"analysis\" | \"commentary\") {message} TEXT {next}\n\
             final: {channel} \"final\" {message}\n"
        ));
        Ok("other")
    }
}
