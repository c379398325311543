//! The markup of calls, which is generated greedily: the model chooses the values freely, and the
//! tags around them as at temperature 0.

use engine::{Allowed, Constraint, Grammar, GrammarRef, MAX_DRAFTED, TokenSet};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use text::{CallStructure, EncodeOptions, TextAssets};

/// Greedy markup, around an optional grammar of the answer.
#[derive(Debug)]
pub(crate) struct GreedyMarkup {
    /// The state before the answer.
    pub start: CallStructure,
    pub assets: Arc<TextAssets>,
    pub inner: Option<GrammarRef>,
}

impl Grammar for GreedyMarkup {
    fn start(&self) -> Box<dyn Constraint> {
        Box::new(MarkupState {
            now: self.start.clone(),
            past: VecDeque::with_capacity(MAX_DRAFTED),
            assets: Arc::clone(&self.assets),
            inner: self.inner.as_ref().map(GrammarRef::start),
        })
    }

    fn excludes(&self) -> bool {
        self.inner.as_ref().is_some_and(GrammarRef::excludes)
    }

    fn source(&self) -> Option<Value> {
        self.inner.as_ref().and_then(GrammarRef::source)
    }
}

#[derive(Debug)]
struct MarkupState {
    now: CallStructure,
    /// The states before the last tokens, as many as may be undone.
    past: VecDeque<CallStructure>,
    assets: Arc<TextAssets>,
    inner: Option<Box<dyn Constraint>>,
}

impl Constraint for MarkupState {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
        self.inner.as_mut().map_or(Ok(Allowed::All), |inner| inner.mask(allowed))
    }

    fn greedy(&self) -> bool {
        self.now.is_structural() || self.inner.as_ref().is_some_and(|inner| inner.greedy())
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        if let Some(inner) = &mut self.inner {
            inner.accept(id)?;
        }
        if self.past.len() == MAX_DRAFTED {
            self.past.pop_front();
        }
        self.past.push_back(self.now.clone());
        self.now.push(self.assets.tokenizer.token_bytes(id));
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        if let Some(inner) = &mut self.inner {
            inner.rollback(tokens)?;
        }
        let kept = self.past.len().checked_sub(tokens);
        let kept = kept.ok_or_else(|| format!("{tokens} tokens back is too far"))?;
        if let Some(then) = self.past.drain(kept..).next() {
            self.now = then;
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_complete())
    }

    fn forced(&mut self, draft: &mut Vec<u32>) {
        if let Some(inner) = &mut self.inner {
            inner.forced(draft);
        }
        let rest = if draft.is_empty() { self.now.rest() } else { String::new() };
        if !rest.is_empty() {
            let options = EncodeOptions { add_special: false, parse_special: true };
            draft.extend(self.assets.tokenizer.encode(&rest, options).unwrap_or_default());
        }
    }

    fn allowed_prefix(&mut self, ids: &[u32]) -> usize {
        self.inner.as_mut().map_or(ids.len(), |inner| inner.allowed_prefix(ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::compile;
    use std::path::Path;
    use text::tool_formats::dsml::DSML;
    use text::{GrammarCompiler, GrammarSource, Reasoning, Thinking};

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    const TEXT: &str = "ab <｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\
        <｜DSML｜parameter name=\"s\" string=\"true\">x < y</b";

    fn assets() -> Arc<TextAssets> {
        Arc::new(TextAssets::from_folder(Path::new(DATA)).unwrap())
    }

    fn state(assets: &Arc<TextAssets>, inner: Option<GrammarRef>) -> Box<dyn Constraint> {
        let start = DSML.structure(Reasoning::Possible).unwrap();
        GreedyMarkup { start, assets: Arc::clone(assets), inner }.start()
    }

    fn ids(assets: &TextAssets, text: &str) -> Vec<u32> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        assets.tokenizer.encode(text, options).unwrap()
    }

    /// Whether each token of the text, and the one after it, is greedy.
    fn greedy(state: &mut dyn Constraint, ids: &[u32]) -> Vec<bool> {
        let mut all = vec![state.greedy()];
        for id in ids {
            state.accept(*id).unwrap();
            all.push(state.greedy());
        }
        all
    }

    #[test]
    fn guesses_are_undone_as_far_as_they_reach() {
        let assets = assets();
        let ids = ids(&assets, TEXT);
        let mut state = state(&assets, None);
        let straight = greedy(&mut *state, &ids);
        assert!(straight.contains(&true) && straight.contains(&false));
        for back in 0..=MAX_DRAFTED {
            state.rollback(back).unwrap();
            let again = greedy(&mut *state, &ids[ids.len() - back..]);
            assert_eq!(again, straight[straight.len() - back - 1..], "{back}");
            // Other guesses change nothing.
            for wrong in self::ids(&assets, "\"</｜").iter().take(MAX_DRAFTED) {
                state.accept(*wrong).unwrap();
            }
            state.rollback(self::ids(&assets, "\"</｜").len().min(MAX_DRAFTED)).unwrap();
            assert_eq!(state.greedy(), *straight.last().unwrap());
            // As far as may be undone again.
            state = self::state(&assets, None);
            greedy(&mut *state, &ids);
        }
        assert!(state.rollback(MAX_DRAFTED + 1).is_err());
    }

    #[test]
    fn masks_are_those_of_the_grammar() {
        let assets = assets();
        let mut free = state(&assets, None);
        let mut set = TokenSet::new(0);
        assert_eq!(free.mask(&mut set), Ok(Allowed::All));
        assert!(!free.is_complete());
        let compiler = GrammarCompiler::new(Arc::clone(&assets));
        let source = GrammarSource::Choice(vec![TEXT.into()]);
        let inner = compile(&compiler, source, Thinking::None, &mut Vec::new()).unwrap();
        let mut alone = inner.start();
        let mut joined = state(&assets, Some(inner));
        for id in ids(&assets, TEXT) {
            let [mut one, mut other] = [0, 1].map(|_| TokenSet::new(assets.tokenizer.vocab_size()));
            assert_eq!(joined.mask(&mut one), alone.mask(&mut other));
            assert_eq!(one, other);
            joined.accept(id).unwrap();
            alone.accept(id).unwrap();
        }
        assert!(joined.is_complete() && !joined.greedy());
    }
}
