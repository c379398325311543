//! Constraints that are made again from traces.

use crate::constraint::compile;
use crate::constraint_source::{ConstraintSource, TracedCalls};
use crate::error::ApiError;
use crate::reasoning_end::{ReasoningEnd, ReasoningLimit};
use engine::{Field, GrammarRef};
use serde::Deserialize;
use serde_json::Value;
use text::GrammarCompiler;

/// Makes the constraint of a request again from the source that its trace holds.
///
/// # Errors
/// If `source` is none, or its grammar cannot be compiled for the vocabulary of `compiler`.
pub fn constraint_of_trace(
    source: &Value,
    compiler: &GrammarCompiler,
) -> Result<GrammarRef, ApiError> {
    match ConstraintSource::deserialize(source).map_err(wrong_source)? {
        ConstraintSource::Grammar { source, thinking } => {
            compile(compiler, source, thinking, &mut Vec::new())
        }
        ConstraintSource::Budget { tokens, calls, opened, tags, closing, inner } => {
            let calls = calls.map(TracedCalls::finder).transpose().map_err(wrong_source)?;
            let limit = ReasoningLimit { tokens, calls };
            let inner = inner.map(|inner| constraint_of_trace(&inner, compiler)).transpose()?;
            let (assets, tags) = (compiler.assets.clone(), tags.into());
            let closing = closing.into();
            Ok(GrammarRef::new(ReasoningEnd { limit, opened, assets, tags, closing, inner }))
        }
    }
}

fn wrong_source(error: impl std::fmt::Display) -> ApiError {
    let message = format!("expected the source of a constraint: {error}");
    ApiError::Invalid { field: Field::Constraint, message }
}
