//! Grammars of `text` as constraints of `engine`.

use crate::constraint_source::ConstraintSource;
use crate::error::ApiError;
use engine::{Allowed, Constraint, Field, Grammar, GrammarRef, TokenSet};
use serde_json::{Value, json};
use text::grammar::LeftOut;
use text::{CompiledGrammar, GrammarCompiler, GrammarError, GrammarSource, Matcher, Thinking};

/// Compiles `source` to a constraint, and adds what it does not enforce to `warnings`.
pub(crate) fn compile(
    compiler: &GrammarCompiler,
    source: GrammarSource,
    thinking: Thinking,
    warnings: &mut Vec<String>,
) -> Result<GrammarRef, ApiError> {
    let compiled = compiler.compile(&source, thinking);
    let compiled = compiled.map_err(|error| wrong(Field::Constraint, &error))?;
    warn("the schema of the answer", compiled.left_out(), warnings);
    Ok(constraint(compiled, source, thinking))
}

/// Parts of a schema that one warning names.
const MAX_NAMED: usize = 8;

/// Logs which parts of a schema are not enforced, and adds the sentence to `warnings`.
pub(crate) fn warn(schema: &str, left_out: &[LeftOut], warnings: &mut Vec<String>) {
    if left_out.is_empty() {
        return;
    }
    let named: Vec<String> = left_out.iter().take(MAX_NAMED).map(LeftOut::to_string).collect();
    let more = left_out.len() - named.len();
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    let sentence = format!("{schema} is enforced without {}{rest}", named.join("; "));
    tracing::warn!("{sentence}");
    warnings.push(sentence);
}

/// The error of a grammar in a field of a request.
pub(crate) fn wrong(field: Field, error: &GrammarError) -> ApiError {
    ApiError::Invalid { field, message: error.to_string() }
}

/// A compiled grammar as an `engine::Grammar`.
#[derive(Debug)]
struct Compiled {
    grammar: CompiledGrammar,
    source: ConstraintSource,
}

/// The constraint state of one sequence.
#[derive(Debug)]
struct MatcherState(Matcher);

/// Wraps `grammar`, which was compiled from `source`, for a request to the engine.
pub(crate) fn constraint(
    grammar: CompiledGrammar,
    source: GrammarSource,
    thinking: Thinking,
) -> GrammarRef {
    let source = ConstraintSource::Grammar { source, thinking };
    GrammarRef::new(Compiled { grammar, source })
}

impl Grammar for Compiled {
    fn start(&self) -> Box<dyn Constraint> {
        Box::new(MatcherState(self.grammar.start()))
    }

    fn source(&self) -> Option<Value> {
        Some(json!(self.source))
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

    fn forced(&mut self, draft: &mut Vec<u32>) {
        self.0.forced(draft);
    }

    fn allowed_prefix(&mut self, ids: &[u32]) -> usize {
        // A match that has failed says so with its next mask.
        self.0.allowed_prefix(ids).unwrap_or(0)
    }
}
