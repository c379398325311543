//! Grammars of `text` as constraints of `engine`, and constraints as traces hold them.

use crate::budget::Budget;
use crate::error::ApiError;
use engine::{Allowed, Constraint, Field, Grammar, GrammarRef, TokenSet};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use text::grammar::LeftOut;
use text::{CompiledGrammar, GrammarCompiler, GrammarError, GrammarSource, Matcher, Thinking};

/// The source of a constraint, from which it can be made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConstraintSource {
    /// A grammar, which reasoning may precede.
    Grammar { source: GrammarSource, thinking: Thinking },
    /// A budget of reasoning, and the source of the constraint around which it is.
    Budget { tokens: usize, opened: bool, closing: Vec<u32>, inner: Option<Value> },
}

/// Makes the constraint of a request again from the source that its trace holds.
///
/// # Errors
/// If `source` is none, or its grammar cannot be compiled for the vocabulary of `compiler`.
pub fn constraint_of_trace(
    source: &Value,
    compiler: &GrammarCompiler,
) -> Result<GrammarRef, ApiError> {
    let invalid = |error: serde_json::Error| ApiError::Invalid {
        field: Field::Constraint,
        message: format!("expected the source of a constraint: {error}"),
    };
    match ConstraintSource::deserialize(source).map_err(invalid)? {
        ConstraintSource::Grammar { source, thinking } => compile(compiler, source, thinking),
        ConstraintSource::Budget { tokens, opened, closing, inner } => {
            let inner = inner.map(|inner| constraint_of_trace(&inner, compiler)).transpose()?;
            let (assets, closing) = (&compiler.assets, closing.into());
            Ok(GrammarRef::new(Budget { tokens, opened, assets: assets.clone(), closing, inner }))
        }
    }
}

/// Compiles `source` to a constraint.
pub(crate) fn compile(
    compiler: &GrammarCompiler,
    source: GrammarSource,
    thinking: Thinking,
) -> Result<GrammarRef, ApiError> {
    let compiled = compiler.compile(&source, thinking);
    let compiled = compiled.map_err(|error| wrong(Field::Constraint, &error))?;
    warn("the schema of the answer", compiled.left_out());
    Ok(constraint(compiled, source, thinking))
}

/// Parts of a schema that one line of the log names.
const MAX_NAMED: usize = 8;

/// Logs which parts of a schema are not enforced.
pub(crate) fn warn(schema: &str, left_out: &[LeftOut]) {
    if left_out.is_empty() {
        return;
    }
    let named: Vec<String> = left_out.iter().take(MAX_NAMED).map(LeftOut::to_string).collect();
    let more = left_out.len() - named.len();
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    tracing::warn!("{schema} is enforced without {}{rest}", named.join("; "));
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
}
