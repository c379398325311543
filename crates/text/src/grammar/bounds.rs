//! Checks before compilation: sources too large or too deep, and features of Lark that are not
//! supported.

use super::error::GrammarError;
use super::source::{CallGrammar, GrammarSource};
use crate::call_reader::call::ToolSignature;

/// Bytes of a source.
const MAX_SCHEMA: usize = 512 << 10;
/// Bytes of the tools that may be called, by [`size_of_tool`].
const MAX_TOOLS: usize = 1 << 20;
/// Bytes that a tool counts in addition to its own, for the rules of its call.
const TOOL: usize = 512;
const MAX_LARK: usize = 128 << 10;
const MAX_REGEX: usize = 16 << 10;
/// Depth of brackets.
const MAX_NESTING: usize = 100;

/// Statements and attributes of Lark grammars that are not supported: schemas, which would go
/// unchecked, sampling within a rule, and ends that would take back tokens.
const UNSUPPORTED: [&str; 4] = ["%json", "temperature", "max_tokens", "stop"];

/// Checks the size, the depth and the features of `source`.
pub(super) fn check(source: &GrammarSource) -> Result<(), GrammarError> {
    check_size(source)?;
    check_nesting(source)?;
    match source {
        GrammarSource::Lark(text) => check_lark(text),
        GrammarSource::Calls(CallGrammar { answer: Some(answer), .. }) => check(answer),
        _ => Ok(()),
    }
}

/// Checks the size of tools that calls may name.
///
/// # Errors
/// If they are too large together.
pub fn check_tools(tools: &[ToolSignature]) -> Result<(), GrammarError> {
    at_most("tools", tools.iter().map(size_of_tool).sum(), MAX_TOOLS)
}

fn size_of_tool(tool: &ToolSignature) -> usize {
    TOOL + tool.name.len() + tool.parameters.to_string().len()
}

fn at_most(kind: &'static str, size: usize, most: usize) -> Result<(), GrammarError> {
    if size <= most {
        return Ok(());
    }
    let what = format!("expected at most {most} bytes, found {size}");
    Err(GrammarError::Source { kind, what })
}

fn check_size(source: &GrammarSource) -> Result<(), GrammarError> {
    let (kind, size, most) = match source {
        GrammarSource::JsonSchema(schema) | GrammarSource::LooseSchema(schema) => {
            ("schema", schema.to_string().len(), MAX_SCHEMA)
        }
        GrammarSource::JsonObject => return Ok(()),
        GrammarSource::Regex(text) => ("regex", text.len(), MAX_REGEX),
        GrammarSource::Lark(text) | GrammarSource::Gbnf(text) => ("grammar", text.len(), MAX_LARK),
        GrammarSource::Choice(texts) => ("choice", texts.iter().map(String::len).sum(), MAX_LARK),
        GrammarSource::Calls(calls) => {
            return check_tools(&calls.tools);
        }
    };
    at_most(kind, size, most)
}

/// Checks the depth of brackets: parsers of expressions recurse at each of them.
fn check_nesting(source: &GrammarSource) -> Result<(), GrammarError> {
    let (kind, text) = match source {
        GrammarSource::Regex(text) => ("regex", text),
        GrammarSource::Lark(text) => ("grammar", text),
        _ => return Ok(()),
    };
    let (mut open, mut deepest) = (0usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    if deepest <= MAX_NESTING {
        return Ok(());
    }
    let what = format!("expected at most {MAX_NESTING} nested brackets, found {deepest}");
    Err(GrammarError::Source { kind, what })
}

fn check_lark(text: &str) -> Result<(), GrammarError> {
    let bare = without_strings(text);
    let attribute = |name: &str, behind: &str| match name.starts_with('%') {
        true => true,
        false => behind.trim_start().starts_with(['=', ',', ']']),
    };
    let found = UNSUPPORTED.iter().find(|name| {
        let mut places = bare.match_indices(**name);
        places.any(|(at, _)| attribute(name, &bare[at + name.len()..]))
    });
    match found {
        None => Ok(()),
        Some(name) => {
            let what = format!("{name} is not supported");
            Err(GrammarError::Source { kind: "grammar", what })
        }
    }
}

/// Returns a Lark grammar without the text of its literals.
fn without_strings(text: &str) -> String {
    let (mut bare, mut inside, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        match (inside, escaped, c) {
            (true, true, _) => escaped = false,
            (true, false, '\\') => escaped = true,
            (_, _, '"') => inside = !inside,
            // A literal ends with its line at the latest.
            (true, false, '\n') => inside = false,
            (true, ..) => {}
            (false, ..) => bare.push(c),
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_attributes_are_found_outside_of_literals() {
        let check = |text: &str| check(&GrammarSource::Lark(text.into())).is_ok();
        assert!(check("start: \"%json stop= \\\"temperature=\" | stopped\nstopped: \"a\""));
        assert!(!check("start: %json {}"));
        assert!(!check("start[temperature=0.5]: \"a\""));
        assert!(!check("start[capture, stop = \"x\"]: /a*/"));
        assert!(!check("start: \"\\\"\" b\nb[max_tokens=3]: /.*/"));
    }
}
