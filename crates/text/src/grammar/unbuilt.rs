//! Grammars in a build without them: compiling one is an error that names the feature.

use super::bounds;
use super::error::GrammarError;
use super::left_out::LeftOut;
use super::source::{GrammarSource, Thinking};
use crate::assets::TextAssets;
use crate::call_reader::call::ToolSignature;
use crate::tool_formats::ToolFormat;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;

/// The compiler of a build without grammars.
#[derive(Debug)]
pub struct GrammarCompiler {
    /// The tokenizer and templates of the model.
    pub assets: Arc<TextAssets>,
    /// The format of answers that a template of the model shows.
    pub format: Option<&'static ToolFormat>,
}

/// A compiled grammar, of which this build has none.
#[derive(Clone, Debug)]
pub enum CompiledGrammar {}

/// The state of one sequence, of which this build has none.
#[derive(Clone, Debug)]
pub struct Matcher {
    never: Infallible,
}

impl GrammarCompiler {
    /// A compiler for the tokenizer of `assets`.
    pub fn new(assets: Arc<TextAssets>) -> Self {
        let format = assets.templates.sources().find_map(ToolFormat::detect);
        Self { assets, format }
    }

    /// Prepares nothing.
    ///
    /// # Errors
    /// Always.
    pub fn prepare(&self) -> Result<(), GrammarError> {
        Err(unbuilt("grammar"))
    }

    /// Compiles nothing.
    ///
    /// # Errors
    /// Always; that of a source that is too large is the same as in other builds.
    pub fn compile(
        &self,
        source: &GrammarSource,
        _thinking: Thinking,
    ) -> Result<CompiledGrammar, GrammarError> {
        bounds::check(source)?;
        Err(unbuilt("grammar"))
    }

    /// Returns the schema of the arguments of `tool`: null for a tool without one.
    ///
    /// # Errors
    /// If the tool has a schema.
    pub fn arguments(
        &self,
        tool: &ToolSignature,
        _format: &'static ToolFormat,
        _strict: bool,
    ) -> Result<(Value, Vec<LeftOut>), GrammarError> {
        match tool.parameters.is_null() {
            true => Ok((Value::Null, Vec::new())),
            false => Err(unbuilt("tools")),
        }
    }
}

impl CompiledGrammar {
    /// Returns the state before the first token.
    pub fn start(&self) -> Matcher {
        match *self {}
    }

    /// The parts of a loose schema that are not enforced.
    pub fn left_out(&self) -> &[LeftOut] {
        match *self {}
    }
}

impl Matcher {
    /// Calls `allow` with the mask of allowed tokens.
    ///
    /// # Errors
    /// None.
    pub fn mask(&mut self, _allow: impl FnOnce(&[u32])) -> Result<bool, GrammarError> {
        match self.never {}
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// None.
    pub fn accept(&mut self, _id: u32) -> Result<(), GrammarError> {
        match self.never {}
    }

    /// Takes back the last tokens.
    ///
    /// # Errors
    /// None.
    pub fn rollback(&mut self, _tokens: usize) -> Result<(), GrammarError> {
        match self.never {}
    }

    /// Adds the tokens that come next.
    pub fn forced(&mut self, _tokens: &mut Vec<u32>) {
        match self.never {}
    }

    /// Number of the first tokens that are allowed.
    ///
    /// # Errors
    /// None.
    pub fn allowed_prefix(&mut self, _ids: &[u32]) -> Result<usize, GrammarError> {
        match self.never {}
    }

    /// Whether the text ends here and nothing may follow.
    pub fn is_complete(&self) -> bool {
        match self.never {}
    }
}

/// The error of every source of this kind.
fn unbuilt(kind: &'static str) -> GrammarError {
    let what = "this build has no grammars: build with --features grammar".into();
    GrammarError::Source { kind, what }
}
