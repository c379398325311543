//! From a source to a grammar that sequences can follow.

use super::matcher::plain;
use super::vocabulary::Vocabulary;
use super::{GrammarError, GrammarSource, Matcher, Thinking};
use crate::{TextAssets, TokenKind, Tokenizer};
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher as Inner, ParserFactory};
use serde_json::{Value, json};
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, OnceLock};
use toktrie::{InferenceCapabilities, TokEnv};

/// Compiles grammars for one vocabulary. What the vocabulary needs is made once, when it is first
/// wanted.
pub struct GrammarCompiler {
    assets: Arc<TextAssets>,
    ready: OnceLock<Result<Ready, GrammarError>>,
}

struct Ready {
    factory: ParserFactory,
    end: u32,
}

/// The name of the grammar of the answer itself.
const ANSWER: &str = "answer";

/// A grammar for the sequences of a request. Clones share it.
#[derive(Clone)]
pub struct CompiledGrammar(Arc<Matcher>);

impl GrammarCompiler {
    /// A compiler for the tokenizer of `assets`.
    pub fn new(assets: Arc<TextAssets>) -> Self {
        Self { assets, ready: OnceLock::new() }
    }

    /// Makes what the vocabulary needs, if that has not been done.
    pub fn prepare(&self) -> Result<(), GrammarError> {
        self.ready().map(drop)
    }

    /// Compiles `source`, behind reasoning if there is any, in bounded time and memory.
    pub fn compile(
        &self,
        source: &GrammarSource,
        thinking: Thinking,
    ) -> Result<CompiledGrammar, GrammarError> {
        let (kind, answer) = grammar(source)?;
        let wrong = |what: String| GrammarError::Source { kind, what };
        let grammars = match think(thinking, &self.assets.tokenizer) {
            Some(root) => vec![GrammarWithLexer::from_lark(root), answer],
            None => vec![answer],
        };
        let Ready { factory, end } = self.ready()?;
        let parser = factory.create_parser(TopLevelGrammar { grammars, max_tokens: None });
        let mut inner = Inner::new(parser);
        if let Some(error) = inner.get_error() {
            return Err(wrong(plain(&error)));
        }
        // A warning says that the grammar is not what was asked for.
        match inner.grammar_warnings().first() {
            Some(warning) => Err(wrong(plain(warning))),
            None => Ok(CompiledGrammar(Arc::new(Matcher::new(inner, *end)))),
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
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        Ok(Self { factory, end })
    }
}

impl CompiledGrammar {
    /// The state before the first token.
    pub fn start(&self) -> Matcher {
        Matcher::clone(&self.0)
    }
}

impl Debug for CompiledGrammar {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("CompiledGrammar")
    }
}

/// What llguidance is given, and what the source is called.
fn grammar(source: &GrammarSource) -> Result<(&'static str, GrammarWithLexer), GrammarError> {
    let (kind, grammar) = match source {
        GrammarSource::JsonSchema(schema) => ("schema", json_grammar(schema.clone())),
        GrammarSource::JsonObject => ("schema", json_grammar(json!({"type": "object"}))),
        GrammarSource::Regex(regex) => ("regex", GrammarWithLexer::from_regex(regex)),
        GrammarSource::Lark(lark) => ("grammar", GrammarWithLexer::from_lark(lark.clone())),
        GrammarSource::Choice(texts) => ("choice", GrammarWithLexer::from_lark(choice(texts))),
    };
    Ok((kind, GrammarWithLexer { name: Some(ANSWER.into()), ..grammar }))
}

/// The grammar of reasoning with the answer behind it; `None` where there is no reasoning.
fn think(thinking: Thinking, tokenizer: &Tokenizer) -> Option<String> {
    let [open, close] = ["<think>", "</think>"].map(|tag| match tokenizer.token_to_id(tag) {
        Some(id) if tokenizer.token_kind(id) != Some(TokenKind::Normal) => Tag::Token(id),
        _ => Tag::Text(tag),
    });
    let (before, after) = match thinking {
        Thinking::None => return None,
        Thinking::Open => ("", ""),
        Thinking::Possible => ("(", ")?"),
    };
    let begin = match (thinking, open) {
        (Thinking::Open, _) => String::new(),
        (_, Tag::Token(id)) => format!("<[{id}]> "),
        (_, Tag::Text(tag)) => format!("\"{tag}\" "),
    };
    let (thought, end) = match close {
        Tag::Token(id) => ("thought: /(?s:.*)/".into(), format!(" <[{id}]>")),
        Tag::Text(tag) => (format!("thought[suffix=\"{tag}\"]: /(?s:.*)/"), String::new()),
    };
    let space = "SPACE: /[ \\n]{0,4}/";
    Some(format!("start: {before}{begin}thought{end} SPACE{after} @{ANSWER}\n{thought}\n{space}\n"))
}

/// How a tag is written.
enum Tag {
    /// As this token.
    Token(u32),
    /// As text.
    Text(&'static str),
}

/// One space may follow `,` and `:`, and no other white space stands between values: models that
/// may choose add line breaks without end.
fn json_grammar(mut schema: Value) -> GrammarWithLexer {
    let form =
        json!({"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": false});
    match &mut schema {
        Value::Object(object) => {
            object.insert("x-guidance".into(), form);
        }
        other => *other = json!({"allOf": [other.take()], "x-guidance": form}),
    }
    GrammarWithLexer::from_json_schema(schema)
}

fn choice(texts: &[String]) -> String {
    let literals: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
    format!("start: {}", literals.join(" | "))
}
