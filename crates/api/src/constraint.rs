//! Grammars of `text` as constraints of `engine`.

use engine::{Allowed, Constraint, Grammar, GrammarRef, TokenSet};
use text::{CompiledGrammar, Matcher};

/// A compiled grammar as an `engine::Grammar`.
#[derive(Debug)]
struct Compiled(CompiledGrammar);

/// The constraint state of one sequence.
#[derive(Debug)]
struct MatcherState(Matcher);

/// Wraps `grammar` for a request to the engine.
pub(crate) fn constraint(grammar: CompiledGrammar) -> GrammarRef {
    GrammarRef::new(Compiled(grammar))
}

impl Grammar for Compiled {
    fn start(&self) -> Box<dyn Constraint> {
        Box::new(MatcherState(self.0.start()))
    }
}

impl Constraint for MatcherState {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
        let may_end = self.0.mask(|words| allowed.insert_words(words));
        may_end.map(|may_end| Allowed::Listed { may_end }).map_err(|error| error.to_string())
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        self.0.accept(id).map_err(|error| error.to_string())
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        self.0.rollback(tokens).map_err(|error| error.to_string())
    }

    fn is_complete(&self) -> bool {
        self.0.is_complete()
    }
}
