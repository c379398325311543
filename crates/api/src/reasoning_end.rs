//! The end of reasoning on behalf of the model: the tokens of the closing tag are forced, as if the
//! model had chosen them, when a budget of tokens is used up, or when the model continues to reason
//! after calls in it, which are made only outside of reasoning.

use crate::constraint_source::{ConstraintSource, TracedCalls};
use crate::error::ApiError;
use crate::reasoning_tags::ReasoningTags;
use engine::{Allowed, Constraint, Grammar, GrammarRef, TokenSet};
use serde_json::{Value, json};
use std::sync::Arc;
use text::{EncodeOptions, ReasoningCalls, TextAssets};

/// Most tokens that the end of a character may take.
const MAX_CHARACTER_TOKENS: usize = 3;

/// What ends reasoning.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReasoningLimit {
    /// The most tokens, if there is a limit.
    pub tokens: Option<usize>,
    /// The calls after which the model may not continue to reason.
    pub calls: Option<ReasoningCalls>,
}

impl ReasoningLimit {
    /// Whether nothing ends the reasoning but the model.
    pub fn is_none(&self) -> bool {
        self.tokens.is_none() && self.calls.is_none()
    }
}

/// The end of reasoning, around an optional grammar for the answer.
#[derive(Debug)]
pub(crate) struct ReasoningEnd {
    pub limit: ReasoningLimit,
    /// The prompt has opened the reasoning.
    pub opened: bool,
    pub assets: Arc<TextAssets>,
    /// The tags that open and close reasoning.
    pub tags: Arc<[String; 2]>,
    /// The tokens that end the reasoning.
    pub closing: Arc<[u32]>,
    pub inner: Option<GrammarRef>,
}

impl ReasoningEnd {
    /// Creates the constraint that ends the reasoning between `tags` where `limit` says; `opened`
    /// if the prompt opens the reasoning.
    ///
    /// # Errors
    /// If the text that ends it cannot be encoded.
    pub fn new(
        limit: ReasoningLimit,
        opened: bool,
        (assets, tags): (&Arc<TextAssets>, ReasoningTags),
        inner: Option<GrammarRef>,
    ) -> Result<Self, ApiError> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        let closing = assets.tokenizer.encode(tags.closing, options);
        let closing = closing.map_err(|error| ApiError::Text(error.to_string()))?.into();
        let tags = Arc::new([tags.open, tags.close].map(str::to_owned));
        Ok(Self { limit, opened, assets: Arc::clone(assets), tags, closing, inner })
    }
}

impl Grammar for ReasoningEnd {
    fn start(&self) -> Box<dyn Constraint> {
        let phase = if self.opened { Phase::Reasoning } else { Phase::Start };
        let phase =
            if self.opened && self.limit.tokens == Some(0) { Phase::Closing(0) } else { phase };
        Box::new(ReasoningState {
            assets: Arc::clone(&self.assets),
            tags: Arc::clone(&self.tags),
            closing: Arc::clone(&self.closing),
            calls: self.limit.calls.clone(),
            inner: self.inner.as_ref().map(GrammarRef::start),
            text: Vec::new(),
            past: Vec::new(),
            now: Moment { phase, left: self.limit.tokens, begin: 0, end: 0 },
            after: 0,
        })
    }

    fn source(&self) -> Option<Value> {
        let inner = match &self.inner {
            Some(inner) => Some(inner.source()?),
            None => None,
        };
        let tokens = self.limit.tokens;
        let calls = self.limit.calls.as_ref().map(TracedCalls::of);
        let (opened, closing) = (self.opened, self.closing.to_vec());
        let tags = (*self.tags).clone();
        Some(json!(ConstraintSource::Budget { tokens, calls, opened, tags, closing, inner }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The answer may still open its reasoning.
    Start,
    Reasoning,
    /// The reasoning was to end this many tokens ago, inside a character.
    Late(usize),
    /// This many tokens of the closing tag are written.
    Closing(usize),
    /// The reasoning has ended, or the answer has none.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    phase: Phase,
    /// Tokens that are left of the budget, if there is one.
    left: Option<usize>,
    /// Where the reasoning begins in the text.
    begin: usize,
    /// Where the text ends.
    end: usize,
}

#[derive(Debug)]
struct ReasoningState {
    assets: Arc<TextAssets>,
    tags: Arc<[String; 2]>,
    closing: Arc<[u32]>,
    calls: Option<ReasoningCalls>,
    inner: Option<Box<dyn Constraint>>,
    /// The text up to the end of the reasoning.
    text: Vec<u8>,
    /// The state before each token, up to the end of the reasoning.
    past: Vec<Moment>,
    now: Moment,
    /// Tokens after the reasoning.
    after: usize,
}

impl ReasoningState {
    fn step(&mut self, id: u32) {
        self.text.extend_from_slice(self.assets.tokenizer.token_bytes(id));
        self.now.end = self.text.len();
        self.now.phase = match self.now.phase {
            Phase::Start => self.started(),
            Phase::Reasoning | Phase::Late(_) if self.is_closed() => Phase::Over,
            Phase::Reasoning => {
                self.now.left = self.now.left.map(|left| left - 1);
                if self.is_to_end() { self.end(0) } else { Phase::Reasoning }
            }
            Phase::Late(tokens) => self.end(tokens + 1),
            Phase::Closing(at) if at + 1 < self.closing.len() => Phase::Closing(at + 1),
            Phase::Closing(_) | Phase::Over => Phase::Over,
        };
    }

    /// The phase of an answer that begins with the text.
    fn started(&mut self) -> Phase {
        let begun = self.text.trim_ascii_start();
        let opening = self.tags[0].as_bytes();
        if begun.starts_with(opening) {
            self.now.begin = self.text.len() - begun.len() + opening.len();
            return if self.now.left == Some(0) { Phase::Closing(0) } else { Phase::Reasoning };
        }
        // Longer white space is not followed by reasoning.
        let may = opening.starts_with(begun) && self.text.len() < 64;
        if may { Phase::Start } else { Phase::Over }
    }

    /// Whether the last token has ended the reasoning.
    fn is_closed(&self) -> bool {
        let last = self.past.last().map_or(0, |moment| moment.end);
        let close = self.tags[1].as_bytes();
        let from = last.saturating_sub(close.len().saturating_sub(1)).max(self.now.begin);
        self.text[from..].windows(close.len().max(1)).any(|window| window == close)
    }

    /// Whether the model may not reason any more.
    fn is_to_end(&self) -> bool {
        let reasoning = &self.text[self.now.begin..];
        let left = self.calls.as_ref().is_some_and(|calls| calls.are_left_behind(reasoning));
        left || self.now.left == Some(0)
    }

    /// The phase `late` tokens after the reasoning was to end. A character is completed first: part
    /// of one is not text, and grammars refuse what follows it.
    fn end(&self, late: usize) -> Phase {
        // An incomplete character has at most three bytes.
        let tail = &self.text[self.text.len().saturating_sub(3)..];
        let whole = tail.utf8_chunks().last().is_none_or(|chunk| {
            let rest = chunk.invalid();
            let cut = std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            rest.is_empty() || !cut
        });
        if whole || late >= MAX_CHARACTER_TOKENS { Phase::Closing(0) } else { Phase::Late(late) }
    }
}

impl Constraint for ReasoningState {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
        if let Phase::Closing(at) = self.now.phase {
            allowed.insert(self.closing[at]);
            return Ok(Allowed::Listed { may_end: false });
        }
        self.inner.as_mut().map_or(Ok(Allowed::All), |inner| inner.mask(allowed))
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        if let Some(inner) = &mut self.inner {
            inner.accept(id)?;
        }
        if self.now.phase == Phase::Over {
            self.after += 1;
            return Ok(());
        }
        self.past.push(self.now);
        self.step(id);
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        if let Some(inner) = &mut self.inner {
            inner.rollback(tokens)?;
        }
        let late = tokens.min(self.after);
        self.after -= late;
        let early = tokens - late;
        let at = self.past.len().checked_sub(early);
        let at = at.ok_or_else(|| format!("{tokens} tokens back is before the beginning"))?;
        if early > 0 {
            self.now = self.past[at];
            self.past.truncate(at);
            self.text.truncate(self.now.end);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_complete())
    }

    fn forced(&mut self, draft: &mut Vec<u32>) {
        match (self.now.phase, &mut self.inner) {
            (Phase::Closing(at), _) => draft.extend_from_slice(&self.closing[at..]),
            (_, Some(inner)) => inner.forced(draft),
            (_, None) => {}
        }
    }

    fn allowed_prefix(&mut self, ids: &[u32]) -> usize {
        match (self.now.phase, &mut self.inner) {
            (Phase::Closing(at), _) => {
                let closing = ids.iter().zip(&self.closing[at..]);
                closing.take_while(|(id, wanted)| id == wanted).count()
            }
            (_, Some(inner)) => inner.allowed_prefix(ids),
            (_, None) => ids.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::compile;
    use crate::reasoning_tags::CLOSING;
    use std::path::Path;
    use text::tool_formats::hermes::HERMES;
    use text::{GrammarCompiler, GrammarSource, Thinking, ToolSignature};

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

    fn assets() -> Arc<TextAssets> {
        Arc::new(TextAssets::from_folder(Path::new(DATA)).unwrap())
    }

    fn ids(assets: &TextAssets, text: &str) -> Vec<u32> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        assets.tokenizer.encode(text, options).unwrap()
    }

    fn budget(tokens: usize) -> ReasoningLimit {
        ReasoningLimit { tokens: Some(tokens), calls: None }
    }

    fn state(
        assets: &Arc<TextAssets>,
        limit: ReasoningLimit,
        opened: bool,
        inner: Option<GrammarRef>,
    ) -> Box<dyn Constraint> {
        ReasoningEnd::new(limit, opened, (assets, ReasoningTags::default()), inner).unwrap().start()
    }

    /// Generates `text` as far as the limit allows, and returns the text of the forced tokens.
    fn forced(limit: ReasoningLimit, opened: bool, text: &str) -> String {
        let assets = assets();
        let mut state = state(&assets, limit, opened, None);
        let mut free = ids(&assets, text).into_iter();
        let mut forced = Vec::new();
        loop {
            let mut allowed = TokenSet::new(assets.tokenizer.vocab_size());
            let mask = state.mask(&mut allowed).unwrap();
            let only: Vec<u32> =
                (0..allowed.size() as u32).filter(|&id| allowed.contains(id)).collect();
            let id = match (&only[..], mask) {
                ([one], Allowed::Listed { may_end: false }) => {
                    forced.push(*one);
                    *one
                }
                _ => match free.next() {
                    Some(id) => id,
                    None => break,
                },
            };
            state.accept(id).unwrap();
        }
        assets.tokenizer.decode(&forced, false)
    }

    #[test]
    fn reasoning_is_closed_when_its_budget_is_used_up() {
        assert_eq!(forced(budget(3), true, "abcdefgh"), CLOSING);
        assert_eq!(forced(budget(3), false, "<think>abcdefgh"), CLOSING);
        assert_eq!(forced(budget(0), true, "ab"), CLOSING);
    }

    fn calls() -> ReasoningLimit {
        let tools = [ToolSignature { name: "f".into(), parameters: Value::Null }].into();
        let calls = ReasoningCalls::new(&HERMES, &tools);
        ReasoningLimit { tokens: None, calls: Some(calls.unwrap()) }
    }

    #[test]
    fn reasoning_that_continues_after_calls_is_closed_once() {
        const CALL: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
        let closed = |text: &str| {
            let opened = forced(calls(), true, text);
            assert_eq!(forced(calls(), false, &format!("<think>\n{text}")), opened, "{text}");
            opened
        };
        for text in ["a\n\nCALL\nso", "CALLso", "a\nCALL\nCALL\n\nso", "a\n CALL é and so on"] {
            assert_eq!(closed(&text.replace("CALL", CALL)), CLOSING, "{text}");
        }
        let other = CALL.replace("\"f\"", "\"g\"");
        assert_eq!(closed(&format!("a\n{other}\nso")), "", "no call of a tool");
        for text in [
            "a\nCALL",
            "a\nCALL\n\n",
            "a\nCALL\n</think>so\nCALL\nso",
            "a\nCALL\n<tool_call>so",
            "as CALL shows",
            "as\n```\nCALL\n```\nshows",
            "a\n<tool_call>{\"name\": \"f\" and so on",
        ] {
            assert_eq!(closed(&text.replace("CALL", CALL)), "", "{text}");
        }
    }

    #[test]
    fn answers_within_the_budget_are_left_alone() {
        assert_eq!(
            forced(budget(30), true, "ab</think>and so on, as long as it takes to say it"),
            ""
        );
        assert_eq!(forced(budget(3), false, "no reasoning at all, just a long answer"), "");
    }

    /// The text generated by a model that reasons `text` until the closing tag is forced.
    fn written(tokens: usize, text: &str, inner: Option<GrammarRef>) -> String {
        let assets = assets();
        let mut state = state(&assets, budget(tokens), true, inner);
        let (mut thought, mut written) = (ids(&assets, text).into_iter(), Vec::new());
        while !assets.tokenizer.decode(&written, false).ends_with(CLOSING) {
            let mut allowed = TokenSet::new(assets.tokenizer.vocab_size());
            state.mask(&mut allowed).unwrap();
            let mut only = (0..allowed.size() as u32).filter(|&id| allowed.contains(id));
            let id = match (only.next(), only.next()) {
                (Some(one), None) => one,
                _ => thought.next().unwrap(),
            };
            state.accept(id).unwrap();
            written.push(id);
        }
        assets.tokenizer.decode(&written, false)
    }

    #[test]
    fn no_character_is_cut_where_the_budget_ends() {
        let compiler = GrammarCompiler::new(assets());
        let json =
            compile(&compiler, GrammarSource::JsonObject, Thinking::Open, &mut Vec::new()).unwrap();
        for inner in [None, Some(json)] {
            for (tokens, thought) in [(1, "é"), (2, "é"), (3, "é😀"), (5, "é😀"), (6, "é😀")]
            {
                let expected = format!("{thought}{CLOSING}");
                assert_eq!(written(tokens, "é😀é", inner.clone()), expected, "{tokens}");
            }
        }
    }

    #[test]
    fn rollback_forgets_the_closing_too() {
        let assets = assets();
        let mut state = state(&assets, budget(2), true, None);
        let mask = |state: &mut Box<dyn Constraint>| {
            let mut allowed = TokenSet::new(assets.tokenizer.vocab_size());
            state.mask(&mut allowed).unwrap()
        };
        for id in ids(&assets, "ab") {
            state.accept(id).unwrap();
        }
        assert_eq!(mask(&mut state), Allowed::Listed { may_end: false });
        state.rollback(1).unwrap();
        assert_eq!(mask(&mut state), Allowed::All);
        assert!(state.rollback(2).is_err());
    }
}
