//! What an answer is held to: the grammar that a caller gives, calls that it forces, schemas of
//! strict tools, and the budget of reasoning before any of them.

use crate::budget::Budget;
use crate::constraint::constraint;
use crate::error::ApiError;
use crate::request::ChatRequest;
use engine::GrammarRef;
use text::{GrammarCompiler, GrammarError, GrammarSource, Thinking, ToolFormat, ToolSignature};

/// Makes the constraints of one model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restraint<'a> {
    pub compiler: &'a GrammarCompiler,
    pub format: Option<ToolFormat>,
    pub thinking: Thinking,
}

/// The constraint that follows `source`.
pub(crate) fn held_to(
    compiler: &GrammarCompiler,
    source: &GrammarSource,
    thinking: Thinking,
) -> Result<GrammarRef, ApiError> {
    let compiled = compiler.compile(source, thinking);
    Ok(constraint(compiled.map_err(|error| wrong("response_format", &error))?))
}

impl Restraint<'_> {
    /// The constraint of an answer that may call `tools`, if there is any.
    pub fn of(
        &self,
        request: &ChatRequest,
        tools: &[ToolSignature],
    ) -> Result<Option<GrammarRef>, ApiError> {
        let _ = tools;
        let inner = match &request.grammar {
            None => None,
            Some(source) => Some(held_to(self.compiler, source, self.thinking)?),
        };
        let budgeted = request
            .reasoning_budget
            .filter(|_| matches!(self.thinking, Thinking::Open | Thinking::Possible));
        let Some(tokens) = budgeted else { return Ok(inner) };
        let opened = self.thinking == Thinking::Open;
        Ok(Some(GrammarRef::new(Budget::new(tokens, opened, self.compiler.assets(), inner)?)))
    }
}

fn wrong(param: &'static str, error: &GrammarError) -> ApiError {
    ApiError::invalid(param, error.to_string())
}
