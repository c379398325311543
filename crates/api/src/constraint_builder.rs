//! The constraint of an answer: the grammar of the request, forced calls, schemas of strict tools,
//! and what ends the reasoning before them.

use crate::constraint::{compile, constraint, warn, wrong};
use crate::error::ApiError;
use crate::reasoning_end::{ReasoningEnd, ReasoningLimit};
use crate::reasoning_tags::ReasoningTags;
use crate::request::{ChatRequest, ToolChoice};
use engine::{Field, GrammarRef};
use serde_json::Value;
use std::collections::HashSet;
use text::grammar::check_tools;
use text::{
    CallGrammar, GrammarCompiler, GrammarSource, ReasoningCalls, Thinking, ToolFormat,
    ToolSignature,
};

/// Builds the constraints of one model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConstraintBuilder<'a> {
    pub compiler: &'a GrammarCompiler,
    pub format: Option<&'static ToolFormat>,
    pub thinking: Thinking,
    /// Whether the answer may contain reasoning; the reasoning is not constrained by the grammar.
    pub may_reason: bool,
    /// The tags of reasoning.
    pub tags: ReasoningTags,
}

impl ConstraintBuilder<'_> {
    /// The constraint of an answer that may call `tools`; `None` if the answer is free. Adds what
    /// it does not enforce to `warnings`.
    ///
    /// An answer with a format is calls or text in that format, unless a call is required: then the
    /// format does not apply.
    ///
    /// # Errors
    /// If a grammar or a tool's schema cannot be compiled, or the end of the reasoning cannot be
    /// tokenized.
    pub fn of(
        &self,
        request: &ChatRequest,
        tools: &[ToolSignature],
        warnings: &mut Vec<String>,
    ) -> Result<Option<GrammarRef>, ApiError> {
        let inner = match (self.calls(request, tools)?, &request.grammar) {
            (Some(calls), _) => Some(self.compiled(calls, &strict(request), warnings)?),
            (None, Some(source)) => {
                Some(compile(self.compiler, source.clone(), self.thinking, warnings)?)
            }
            (None, None) => None,
        };
        let limit = self.reasoning_limit(request, tools);
        if limit.is_none() {
            return Ok(inner);
        }
        let opened = self.thinking == Thinking::Open;
        let text = (&self.compiler.assets, self.tags);
        Ok(Some(GrammarRef::new(ReasoningEnd::new(limit, opened, text, inner)?)))
    }

    /// What ends the reasoning on behalf of the model.
    fn reasoning_limit(&self, request: &ChatRequest, tools: &[ToolSignature]) -> ReasoningLimit {
        if !self.may_reason {
            return ReasoningLimit::default();
        }
        let called = self.format.filter(|_| self.thinking != Thinking::None);
        let calls = called.and_then(|format| ReasoningCalls::new(format, &tools.into()));
        ReasoningLimit { tokens: request.reasoning_budget, calls }
    }

    /// The grammar of calls, if calls are required, a tool is strict, or an answer without calls
    /// has a format.
    fn calls(
        &self,
        request: &ChatRequest,
        tools: &[ToolSignature],
    ) -> Result<Option<CallGrammar>, ApiError> {
        let forced = match &request.tool_choice {
            ToolChoice::None => return Ok(None),
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(tools.to_vec()),
            ToolChoice::Named(name) => {
                Some(tools.iter().filter(|tool| tool.name == *name).cloned().collect::<Vec<_>>())
            }
        };
        let required = forced.is_some();
        let strict = strict(request);
        let any = tools.iter().any(|tool| strict.contains(&*tool.name));
        // Calls of a format that is not known are not read either.
        let beside = !tools.is_empty() && self.format.is_some() && request.grammar.is_some();
        if !required && !any && !beside {
            return Ok(None);
        }
        let tools = forced.unwrap_or_else(|| tools.to_vec());
        if tools.is_empty() {
            return Err(ApiError::invalid("tool_choice", "tool_choice names none of the tools"));
        }
        // Before any of them is compiled.
        check_tools(&tools).map_err(|error| wrong(Field::Parameter("tools"), &error))?;
        let Some(format) = self.format else {
            let message = "calls cannot be forced: it is not known how the model writes them \
                           (--tool-format says it)";
            return Err(ApiError::invalid("tool_choice", message));
        };
        let parallel = request.parallel_calls;
        let answer = request.grammar.clone().map(Box::new);
        Ok(Some(CallGrammar { format, tools, required, parallel, answer }))
    }

    /// Compiles the grammar of calls. A part of a schema that cannot be enforced is an error for
    /// strict tools and is left out for others.
    fn compiled(
        &self,
        mut grammar: CallGrammar,
        strict: &HashSet<&str>,
        warnings: &mut Vec<String>,
    ) -> Result<GrammarRef, ApiError> {
        for tool in &mut grammar.tools {
            let strict = strict.contains(&*tool.name);
            if !grammar.required && !strict {
                tool.parameters = Value::Null;
                continue;
            }
            let arguments = self.compiler.arguments(tool, grammar.format, strict);
            let (schema, left_out) =
                arguments.map_err(|error| wrong(Field::Parameter("tools"), &error))?;
            warn(&format!("the schema of tool {}", tool.name), &left_out, warnings);
            tool.parameters = schema;
        }
        let answer = grammar.answer.clone().filter(|_| !grammar.required);
        let source = GrammarSource::Calls(grammar);
        let compiled = self.compiler.compile(&source, self.thinking).map_err(|error| {
            let alone = |answer: &GrammarSource| self.compiler.compile(answer, self.thinking).err();
            match answer.as_deref().and_then(alone) {
                Some(error) => wrong(Field::Constraint, &error),
                None => wrong(Field::Parameter("tools"), &error),
            }
        })?;
        warn("the schema of the answer", compiled.left_out(), warnings);
        Ok(constraint(compiled, source, self.thinking))
    }
}

/// The names of strict tools.
fn strict(request: &ChatRequest) -> HashSet<&str> {
    request.tools.iter().filter(|tool| tool.strict).map(|tool| &*tool.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Tool;
    use serde_json::json;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use text::TextAssets;

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

    #[test]
    fn tools_of_more_bytes_than_can_be_forced_are_refused_before_any_is_compiled() {
        let compiler =
            GrammarCompiler::new(Arc::new(TextAssets::from_folder(Path::new(DATA)).unwrap()));
        let tool = |at: usize| {
            let parameters = json!({"type": "object", "properties": {format!("p{at}"): {}}});
            Tool { name: format!("f{at}"), parameters, ..Tool::default() }
        };
        let request = ChatRequest {
            tools: (0..10_000).map(tool).collect(),
            tool_choice: ToolChoice::Required,
            ..ChatRequest::default()
        };
        let tools = request.signatures();
        let format = Some(&text::tool_formats::hermes::HERMES);
        let (thinking, may_reason) = (Thinking::None, false);
        let tags = ReasoningTags::default();
        let restraint =
            ConstraintBuilder { compiler: &compiler, format, thinking, may_reason, tags };
        let start = Instant::now();
        let error = restraint.of(&request, &tools, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("tools: expected at most 1048576 bytes"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}
