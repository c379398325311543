//! A budget of reasoning tokens. When it is used up, the tokens of the closing tag are forced, as
//! if the model had chosen them.

use crate::constraint_source::ConstraintSource;
use crate::error::ApiError;
use crate::reasoning_tags::{CLOSE, THINK};
use engine::{Allowed, Constraint, Grammar, GrammarRef, TokenSet};
use serde_json::{Value, json};
use std::sync::Arc;
use text::{EncodeOptions, TextAssets};

/// Most tokens that the end of a character may take.
const MAX_CHARACTER_TOKENS: usize = 3;

/// A limit on reasoning tokens, around an optional grammar for the answer.
#[derive(Debug)]
pub(crate) struct Budget {
    pub tokens: usize,
    /// The prompt has opened the reasoning.
    pub opened: bool,
    pub assets: Arc<TextAssets>,
    /// The tokens that end the reasoning.
    pub closing: Arc<[u32]>,
    pub inner: Option<GrammarRef>,
}

impl Budget {
    /// Creates the budget, at whose end `closing` is written; `opened` if the prompt opens the
    /// reasoning.
    pub fn new(
        tokens: usize,
        opened: bool,
        (assets, closing): (&Arc<TextAssets>, &str),
        inner: Option<GrammarRef>,
    ) -> Result<Self, ApiError> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        let closing = assets.tokenizer.encode(closing, options);
        let closing = closing.map_err(|error| ApiError::Text(error.to_string()))?.into();
        Ok(Self { tokens, opened, assets: Arc::clone(assets), closing, inner })
    }
}

impl Grammar for Budget {
    fn start(&self) -> Box<dyn Constraint> {
        let phase = if self.opened { Phase::Reasoning } else { Phase::Start };
        let phase = if self.opened && self.tokens == 0 { Phase::Closing(0) } else { phase };
        Box::new(BudgetState {
            assets: Arc::clone(&self.assets),
            closing: Arc::clone(&self.closing),
            inner: self.inner.as_ref().map(GrammarRef::start),
            past: Vec::new(),
            now: Moment { phase, left: self.tokens, text: Vec::new() },
            after: 0,
        })
    }

    fn source(&self) -> Option<Value> {
        let inner = match &self.inner {
            Some(inner) => Some(inner.source()?),
            None => None,
        };
        let (tokens, opened, closing) = (self.tokens, self.opened, self.closing.to_vec());
        Some(json!(ConstraintSource::Budget { tokens, opened, closing, inner }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The answer may still open its reasoning.
    Start,
    Reasoning,
    /// The budget was used up this many tokens ago, inside a character.
    Late(usize),
    /// This many tokens of the closing tag are written.
    Closing(usize),
    /// The reasoning has ended, or the answer has none.
    Over,
}

#[derive(Clone, Debug)]
struct Moment {
    phase: Phase,
    left: usize,
    /// The end of the text, as far as a tag may begin in it.
    text: Vec<u8>,
}

#[derive(Debug)]
struct BudgetState {
    assets: Arc<TextAssets>,
    closing: Arc<[u32]>,
    inner: Option<Box<dyn Constraint>>,
    /// The state before each token, up to the end of the reasoning.
    past: Vec<Moment>,
    now: Moment,
    /// Tokens after the reasoning.
    after: usize,
}

impl BudgetState {
    fn step(&mut self, id: u32) {
        let Moment { phase, left, text } = &mut self.now;
        text.extend_from_slice(self.assets.tokenizer.token_bytes(id));
        *phase = match *phase {
            Phase::Start => started(text, *left),
            Phase::Reasoning | Phase::Late(_) if closed(text) => Phase::Over,
            Phase::Reasoning => {
                *left -= 1;
                if *left == 0 { out_of_budget(text, 0) } else { Phase::Reasoning }
            }
            Phase::Late(tokens) => out_of_budget(text, tokens + 1),
            Phase::Closing(at) if at + 1 < self.closing.len() => Phase::Closing(at + 1),
            Phase::Closing(_) | Phase::Over => Phase::Over,
        };
    }
}

/// The phase of an answer that begins with `text`.
fn started(text: &mut Vec<u8>, left: usize) -> Phase {
    let begun = text.trim_ascii_start();
    let opening = THINK.as_bytes();
    if begun.starts_with(opening) {
        text.clear();
        return if left == 0 { Phase::Closing(0) } else { Phase::Reasoning };
    }
    // Longer white space is not followed by reasoning.
    if opening.starts_with(begun) && text.len() < 64 { Phase::Start } else { Phase::Over }
}

/// Whether `text` has the closing tag. Keeps only the end of `text` in which a tag may begin.
fn closed(text: &mut Vec<u8>) -> bool {
    let closed = text.windows(CLOSE.len()).any(|window| window == CLOSE.as_bytes());
    text.drain(..text.len().saturating_sub(CLOSE.len() - 1));
    closed
}

/// The phase `late` tokens after the budget was used up. A character is completed first: part of
/// one is not text, and grammars refuse what follows it.
fn out_of_budget(text: &[u8], late: usize) -> Phase {
    let whole = text.utf8_chunks().last().is_none_or(|chunk| {
        // An incomplete character has at most three bytes.
        let rest = chunk.invalid();
        rest.is_empty() || std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_some())
    });
    if whole || late >= MAX_CHARACTER_TOKENS { Phase::Closing(0) } else { Phase::Late(late) }
}

impl Constraint for BudgetState {
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
        self.past.push(self.now.clone());
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
            self.now = self.past[at].clone();
            self.past.truncate(at);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_complete())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::compile;
    use crate::reasoning_tags::CLOSING;
    use std::path::Path;
    use text::{GrammarCompiler, GrammarSource, Thinking};

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

    fn assets() -> Arc<TextAssets> {
        Arc::new(TextAssets::from_folder(Path::new(DATA)).unwrap())
    }

    fn ids(assets: &TextAssets, text: &str) -> Vec<u32> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        assets.tokenizer.encode(text, options).unwrap()
    }

    /// Generates `text` as far as the budget allows, and returns the text of the forced tokens.
    fn forced(tokens: usize, opened: bool, text: &str) -> String {
        let assets = assets();
        let budget = Budget::new(tokens, opened, (&assets, CLOSING), None).unwrap();
        let mut state = budget.start();
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
        assert_eq!(forced(3, true, "abcdefgh"), CLOSING);
        assert_eq!(forced(3, false, "<think>abcdefgh"), CLOSING);
        assert_eq!(forced(0, true, "ab"), CLOSING);
    }

    #[test]
    fn answers_within_the_budget_are_left_alone() {
        assert_eq!(forced(30, true, "ab</think>and so on, as long as it takes to say it"), "");
        assert_eq!(forced(3, false, "no reasoning at all, just a long answer"), "");
    }

    /// The text generated by a model that reasons `text` until the closing tag is forced.
    fn written(tokens: usize, text: &str, inner: Option<GrammarRef>) -> String {
        let assets = assets();
        let mut state = Budget::new(tokens, true, (&assets, CLOSING), inner).unwrap().start();
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
        let json = compile(&compiler, GrammarSource::JsonObject, Thinking::Open).unwrap();
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
        let mut state = Budget::new(2, true, (&assets, CLOSING), None).unwrap().start();
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
