//! A chat template, and rendering it.

use super::{budget, depth, environment, rewrite, source};
use crate::error::{Result, TextError};
use crate::special_tokens::SpecialTokens;
use chrono::NaiveDateTime;
use minijinja::machinery::{self, CodeGenerator};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Error, Value};
use serde_json::Value as Json;

/// Bytes of a template.
const MAX_SOURCE: usize = 1 << 20;

/// A chat template that has been checked for syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
}

impl ChatTemplate {
    /// Checks the syntax of a template.
    ///
    /// # Errors
    /// If the source is too long or has a syntax error.
    pub fn from_source(source: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            let what = format!("{} bytes long, expected at most {MAX_SOURCE}", source.len());
            return Err(TextError::Template(what));
        }
        let source = source::normalize(source)
            .map_err(|problem| TextError::Template(format!("syntax error: {problem}")))?;
        depth::on_large_stack(|| rewrite::statement(&parse(&source)?).map(drop))
            .map_err(failure)?;
        Ok(ChatTemplate { source })
    }

    /// Whether the template contains `word`, such as the name of a keyword argument.
    pub fn mentions(&self, word: &str) -> bool {
        self.source.contains(word)
    }

    /// Returns the source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders an input object: `messages`, and optionally `tools`, `documents`,
    /// `add_generation_prompt` (true by default) and any further variables. `strftime_now` sees
    /// `now`, or the local time if that is `None`.
    ///
    /// # Errors
    /// If the input is not an object, or the template fails or exceeds its budget.
    pub fn render(
        &self,
        input: &Json,
        special: &SpecialTokens,
        now: Option<NaiveDateTime>,
    ) -> Result<String> {
        let Json::Object(_) = input else {
            return Err(TextError::Template("expected the input to be an object".into()));
        };
        let budget = budget::Budget::for_input(self.source.len() + size(input));
        let context = Value::from(Serde(&context(input, special)));
        depth::on_large_stack(|| self.evaluate(&budget, context, now)).map_err(failure)
    }

    fn evaluate(
        &self,
        budget: &budget::Budget,
        context: Value,
        now: Option<NaiveDateTime>,
    ) -> std::result::Result<String, Error> {
        let env = environment::build(budget, now);
        let stmt = rewrite::statement(&parse(&self.source)?)?;
        let mut generator = CodeGenerator::new("chat", &self.source);
        generator.compile_stmt(&stmt);
        let (instructions, blocks) = generator.finish();
        let mut text = String::new();
        let mut out = machinery::make_string_output(&mut text);
        machinery::eval(&env, &instructions, context, &blocks, &mut out, AutoEscape::None)?;
        Ok(text)
    }
}

/// Reads a time such as `2026-01-02T03:04:05Z` for [`ChatTemplate::render`]; an offset is
/// dropped, the clock time stays as written.
///
/// # Errors
/// If the text is not a time.
pub fn parse_now(text: &str) -> Result<NaiveDateTime> {
    let time = chrono::DateTime::parse_from_rfc3339(text).map(|t| t.naive_local());
    time.or_else(|_| text.parse()).map_err(|e| {
        TextError::Template(format!("expected a time as in RFC 3339, found \"{text}\": {e}"))
    })
}

fn parse(source: &str) -> std::result::Result<machinery::ast::Stmt<'_>, Error> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    depth::check(source, &syntax)?;
    machinery::parse(source, "chat", syntax)
}

/// Returns the variables of a template: those of the input replace the defaults.
fn context(input: &Json, special: &SpecialTokens) -> Json {
    let mut all = serde_json::Map::new();
    for name in ["tools", "documents"] {
        all.insert(name.into(), Json::Null);
    }
    all.insert("add_generation_prompt".into(), true.into());
    for (name, token) in special.iter() {
        all.insert(name.into(), token.into());
    }
    for (name, value) in input.as_object().into_iter().flatten() {
        all.insert(name.clone(), value.clone());
    }
    Json::Object(all)
}

/// Returns about how many bytes a JSON value has.
fn size(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len() + 2,
        Json::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Json::Object(map) => map.iter().map(|(k, v)| k.len() + size(v) + 4).sum::<usize>() + 2,
        _ => 8,
    }
}

fn failure(error: Error) -> TextError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    TextError::Template(text)
}

#[cfg(test)]
mod tests;
