//! Compilation of sources into grammars that sequences follow.

use super::error::GrammarError;
use super::json::{NO_TEXT, allows_anything, json_grammar, of_objects};
use super::lark::{MarkerTokens, literal};
use super::left_out::LeftOut;
use super::locate::located;
use super::matcher::Matcher;
use super::matcher::plain;
use super::schema::{Checked, Tolerance};
use super::source::{CallGrammar, GrammarSource, Thinking};
use super::vocabulary::Vocabulary;
use super::{bounds, calls, gbnf, loose, schema};
use crate::assets::TextAssets;
use crate::call_reader::call::ToolSignature;
use crate::think::THINK_OR_BRACKETS;
use crate::tokenizer::Tokenizer;
use crate::tool_formats::ToolFormat;
use crate::tool_formats::harmony::MESSAGES;
use crate::tool_formats::syntax::AnswerSyntax;
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher as Inner, ParserFactory};
use serde_json::{Value, json};
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, OnceLock};
use toktrie::{InferenceCapabilities, TokEnv};

/// Compiles grammars for one vocabulary. The trie of its tokens is built once, before the first
/// grammar.
pub struct GrammarCompiler {
    /// The tokenizer and templates of the model.
    pub assets: Arc<TextAssets>,
    /// The format of answers that a template of the model shows: it says how reasoning before them
    /// is written.
    pub format: Option<&'static ToolFormat>,
    ready: OnceLock<Result<Ready, GrammarError>>,
}

struct Ready {
    factory: ParserFactory,
    end: u32,
}

/// Bytes of the stack on which grammars of rules are compiled, of which the used part takes memory.
const STACK: usize = 512 << 20;

/// The error of a mask of no token.
const NO_TOKEN: &str = "NoExtensionBias";

/// The name of the grammar of the answer itself.
const ANSWER: &str = "answer";

/// A grammar for the sequences of a request. Clones share it.
#[derive(Clone)]
pub struct CompiledGrammar {
    start: Arc<Matcher>,
    left_out: Arc<[LeftOut]>,
}

impl GrammarCompiler {
    /// A compiler for the tokenizer of `assets`.
    pub fn new(assets: Arc<TextAssets>) -> Self {
        let format = assets.templates.sources().find_map(ToolFormat::detect);
        Self { assets, format, ready: OnceLock::new() }
    }

    /// Builds the trie of the vocabulary, unless that has been done.
    ///
    /// # Errors
    /// If the vocabulary is too large for grammars.
    pub fn prepare(&self) -> Result<(), GrammarError> {
        self.ready().map(drop)
    }

    /// Compiles `source`, which reasoning may precede, in bounded time and memory.
    ///
    /// # Errors
    /// If the source is malformed, too large, or uses features that are not supported.
    pub fn compile(
        &self,
        source: &GrammarSource,
        thinking: Thinking,
    ) -> Result<CompiledGrammar, GrammarError> {
        bounds::check(source)?;
        on_large_stack(|| self.compile_here(source, thinking))
    }

    fn compile_here(
        &self,
        source: &GrammarSource,
        thinking: Thinking,
    ) -> Result<CompiledGrammar, GrammarError> {
        let (enforced, left_out) = self.enforced(source, false)?;
        match self.compile_in_full(enforced.as_ref().unwrap_or(source), thinking) {
            Ok(start) => Ok(CompiledGrammar { start, left_out: left_out.into() }),
            Err(_) if enforced.is_some() => {
                let (enforced, left_out) = self.enforced(source, true)?;
                let start = self.compile_in_full(enforced.as_ref().unwrap_or(source), thinking)?;
                Ok(CompiledGrammar { start, left_out: left_out.into() })
            }
            Err(error) => Err(error),
        }
    }

    fn compile_in_full(
        &self,
        source: &GrammarSource,
        thinking: Thinking,
    ) -> Result<Arc<Matcher>, GrammarError> {
        let (kind, grammars) = grammars(source, (thinking, self.format), &self.assets.tokenizer)?;
        let ready = self.ready()?;
        let compiled = ready.check_answer(&grammars).and_then(|()| ready.compile(grammars));
        compiled.map_err(|what| match source {
            // The message names the part of the schema at fault: the schema may be long.
            GrammarSource::JsonSchema(schema) => match schema::checked(schema) {
                Ok(schema) => ready.located(&schema, what),
                Err(error) => error,
            },
            _ => GrammarError::Source { kind, what },
        })
    }

    /// Returns the schema of the arguments of `tool` that calls can be held to, and the parts that
    /// it leaves out: none if the tool is `strict`. The schema of a tool without one is null.
    ///
    /// # Errors
    /// If a strict schema cannot be enforced in full, or no object fits a schema.
    pub fn arguments(
        &self,
        tool: &ToolSignature,
        format: &'static ToolFormat,
        strict: bool,
    ) -> Result<(Value, Vec<LeftOut>), GrammarError> {
        if tool.parameters.is_null() {
            return Ok((Value::Null, Vec::new()));
        }
        let arguments = on_large_stack(|| self.arguments_here(tool, format, strict));
        arguments
            .map_err(|error| GrammarError::Tool { name: tool.name.clone(), error: Box::new(error) })
    }

    fn arguments_here(
        &self,
        tool: &ToolSignature,
        format: &'static ToolFormat,
        strict: bool,
    ) -> Result<(Value, Vec<LeftOut>), GrammarError> {
        let tolerance = if strict { Tolerance::None } else { Tolerance::Malformed };
        let mut checked = schema::tolerant(&tool.parameters, tolerance)?;
        let ready = self.ready()?;
        if allows_anything(&checked.schema) {
            return Ok((Value::Null, checked.left_out));
        }
        checked.schema = of_objects(checked.schema)?;
        let error_of = |schema: &Value| {
            let parameters = schema.clone();
            ready.error_of(schema).or_else(|| {
                calls::check_arguments(format, &ToolSignature { parameters, ..tool.clone() }).err()
            })
        };
        if strict {
            return match error_of(&checked.schema) {
                Some(error) => Err(error),
                None => Ok((checked.schema, checked.left_out)),
            };
        }
        let (schema, left_out) = loose::loosened(checked.schema, checked.left_out, error_of)?;
        match allows_anything(&schema) {
            true => Ok((Value::Null, left_out)),
            false => Ok((schema, left_out)),
        }
    }

    /// Returns a source in which a loose schema, also beside calls, is without what cannot be
    /// enforced, and what that is; `None` if `source` has no loose schema. Parts that are only
    /// found by compiling are left out if `compiles`.
    fn enforced(
        &self,
        source: &GrammarSource,
        compiles: bool,
    ) -> Result<(Option<GrammarSource>, Vec<LeftOut>), GrammarError> {
        match source {
            GrammarSource::LooseSchema(schema) => {
                let Checked { mut schema, mut left_out } =
                    schema::tolerant(schema, Tolerance::Unsupported)?;
                if compiles {
                    let ready = self.ready()?;
                    let error_of = |schema: &Value| ready.error_of(schema);
                    (schema, left_out) = loose::loosened(schema, left_out, error_of)?;
                }
                Ok((Some(GrammarSource::JsonSchema(schema)), left_out))
            }
            GrammarSource::Calls(calls) if !calls.required => {
                let Some(answer) = &calls.answer else { return Ok((None, Vec::new())) };
                let (answer, left_out) = self.enforced(answer, compiles)?;
                let with = |answer| CallGrammar { answer: Some(Box::new(answer)), ..calls.clone() };
                Ok((answer.map(|answer| GrammarSource::Calls(with(answer))), left_out))
            }
            _ => Ok((None, Vec::new())),
        }
    }

    fn ready(&self) -> Result<&Ready, GrammarError> {
        let ready = self.ready.get_or_init(|| Ready::new(Arc::clone(&self.assets)));
        ready.as_ref().map_err(Clone::clone)
    }
}

impl Debug for GrammarCompiler {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let ready = self.ready.get().is_some();
        f.debug_struct("GrammarCompiler").field("ready", &ready).finish_non_exhaustive()
    }
}

impl Ready {
    fn new(assets: Arc<TextAssets>) -> Result<Self, GrammarError> {
        let vocabulary = Vocabulary::new(assets)?;
        let end = vocabulary.end();
        let env: TokEnv = Arc::new(vocabulary);
        let slices = SlicedBiasComputer::json_slices();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices);
        let wrong = |what: String| GrammarError::Source { kind: "vocabulary", what };
        let mut factory = factory.map_err(|error| wrong(plain(&error.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory, end })
    }

    fn compile(&self, grammars: Vec<GrammarWithLexer>) -> Result<Arc<Matcher>, String> {
        let parser = self.factory.create_parser(TopLevelGrammar { grammars, max_tokens: None });
        let mut inner = Inner::new(parser);
        if let Some(error) = inner.get_error() {
            return Err(plain(&error));
        }
        // A warning says that part of the grammar is ignored.
        if let Some(warning) = inner.grammar_warnings().first() {
            return Err(plain(warning));
        }
        // Expressions are compiled when they are first met: one that is too complex fails here.
        inner.compute_mask().map_err(|error| match plain(&error.to_string()) {
            what if what == NO_TOKEN => NO_TEXT.to_owned(),
            what => what,
        })?;
        Ok(Arc::new(Matcher { inner, end: self.end }))
    }

    /// Compiles the answer among `grammars` on its own: reasoning or calls before it would hide
    /// that it has no beginning.
    fn check_answer(&self, grammars: &[GrammarWithLexer]) -> Result<(), String> {
        let mut others = grammars.iter().skip(1);
        match others.find(|grammar| grammar.name.as_deref() == Some(ANSWER)) {
            Some(answer) => self.compile(vec![answer.clone()]).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the error of compiling a checked schema, with the part at fault.
    fn error_of(&self, schema: &Value) -> Option<GrammarError> {
        match json_grammar(schema.clone()) {
            Ok(grammar) => self.compile(vec![grammar]).err().map(|what| self.located(schema, what)),
            Err(error) => Some(error),
        }
    }

    fn located(&self, schema: &Value, what: String) -> GrammarError {
        located(schema, what, |part| match json_grammar(part) {
            Ok(grammar) => self.compile(vec![grammar]).err(),
            Err(GrammarError::Schema { what, .. }) => Some(what),
            Err(error) => Some(error.to_string()),
        })
    }
}

impl CompiledGrammar {
    /// Returns the state before the first token.
    pub fn start(&self) -> Matcher {
        Matcher::clone(&self.start)
    }

    /// The parts of a loose schema that are not enforced.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

impl Debug for CompiledGrammar {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("CompiledGrammar")
    }
}

/// Returns the limits of a grammar. Each sequence keeps its states, about a kilobyte each.
fn limits() -> ParserLimits {
    ParserLimits { max_lexer_states: 30_000, verbose_errors: false, ..ParserLimits::default() }
}

/// Returns the kind of a source and its grammars for llguidance, the root first.
fn grammars(
    source: &GrammarSource,
    (thinking, format): (Thinking, Option<&'static ToolFormat>),
    tokenizer: &Tokenizer,
) -> Result<(&'static str, Vec<GrammarWithLexer>), GrammarError> {
    let (kind, answer) = match source {
        GrammarSource::Calls(calls) => {
            let answer = calls.answer.as_deref().filter(|_| !calls.required);
            let answer = answer.map(|answer| answer_grammar(answer, tokenizer));
            let answer = answer.transpose()?.map(|(_, grammar)| grammar);
            return Ok(("tools", calls::grammars(calls, answer, thinking, tokenizer)?));
        }
        source => answer_grammar(source, tokenizer)?,
    };
    let (tags, mut rules) = (MarkerTokens::new(tokenizer, format), String::new());
    let before = match (thinking, format.map(|format| format.writes.answer)) {
        (Thinking::None, _) => return Ok((kind, vec![answer])),
        (Thinking::Channels, syntax) => {
            let syntax = match syntax {
                Some(AnswerSyntax::Messages(syntax)) => syntax,
                _ => &MESSAGES,
            };
            tags.message_rules(syntax, &mut rules)?;
            "other* final".to_owned()
        }
        (other, _) => {
            let known = format.map_or(THINK_OR_BRACKETS, |format| format.thinking);
            tags.reasoning(other, known, &mut rules)
        }
    };
    let root = GrammarWithLexer::from_lark(format!("start: {before} @{ANSWER}\n{rules}"));
    Ok((kind, vec![root, answer]))
}

/// Returns the kind of a source and the grammar of a text, which is named [`ANSWER`].
fn answer_grammar(
    source: &GrammarSource,
    tokenizer: &Tokenizer,
) -> Result<(&'static str, GrammarWithLexer), GrammarError> {
    let (kind, answer) = match source {
        GrammarSource::JsonSchema(schema) => ("schema", json_grammar(schema::checked(schema)?)?),
        GrammarSource::JsonObject => ("schema", json_grammar(json!({"type": "object"}))?),
        GrammarSource::Regex(text) => ("regex", GrammarWithLexer::from_regex(text)),
        GrammarSource::Lark(text) => ("grammar", GrammarWithLexer::from_lark(text.clone())),
        GrammarSource::Gbnf(text) => {
            ("grammar", GrammarWithLexer::from_lark(gbnf::lark(text, tokenizer)?))
        }
        GrammarSource::Choice(texts) => ("choice", GrammarWithLexer::from_lark(choice(texts)?)),
        // A loose schema has become one that is enforced in full.
        GrammarSource::Calls(_) | GrammarSource::LooseSchema(_) => {
            let what =
                "expected a schema, regex, grammar or choice beside calls, found calls".into();
            return Err(GrammarError::Source { kind: "tools", what });
        }
    };
    Ok((kind, GrammarWithLexer { name: Some(ANSWER.into()), ..answer }))
}

/// Runs `work` on a stack that is large enough for the longest chain of rules or references,
/// through which the compiler of grammars recurses.
fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, GrammarError> + Send,
) -> Result<T, GrammarError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
        let running = thread.spawn_scoped(scope, work).map_err(|error| GrammarError::Source {
            kind: "grammar",
            what: format!("no thread to compile it: {error}"),
        })?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn choice(texts: &[String]) -> Result<String, GrammarError> {
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        let what = "expected one or more texts, none of them empty".into();
        return Err(GrammarError::Source { kind: "choice", what });
    }
    let literals: Vec<String> = texts.iter().map(|text| literal(text)).collect();
    Ok(format!("start: {}", literals.join(" | ")))
}
