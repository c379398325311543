//! Constraints that are made again from traces.

use crate::budget::Budget;
use crate::constraint::compile;
use crate::constraint_source::ConstraintSource;
use crate::error::ApiError;
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
