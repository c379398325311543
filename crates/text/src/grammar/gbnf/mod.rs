//! Grammars in GBNF, the notation of llama.cpp, as grammars in llguidance's dialect of Lark.
//!
//! The notation is that of llama.cpp's `grammars/README.md`: rules `name ::= ...` with literals,
//! classes of characters, groups, choices, repetitions, references, tokens and comments, from the
//! rule `root`. A sequence may continue on the next line. A grammar in GBNF is one of characters,
//! and Lark has lexemes, of which the longest is taken: [`lexemes`] says how the language is kept.

mod automaton;
mod char_set;
mod graph;
mod lexemes;
mod syntax;

use super::error::GrammarError;
use crate::tokenizer::Tokenizer;
use graph::{GraphPart, PartGraph, PartId};
use lexemes::LexemeTable;
use std::collections::BTreeSet;
use std::fmt::Write;
use syntax::{Fault, TokenName};

/// Translates a grammar in GBNF to Lark.
///
/// # Errors
/// If the grammar is malformed, too large, matches no text, or names a token that the vocabulary
/// lacks. The message has the line and the column.
pub(super) fn lark(text: &str, tokenizer: &Tokenizer) -> Result<String, GrammarError> {
    let wrong = |what: String| GrammarError::Source { kind: "grammar", what };
    let translate = || {
        let rules = syntax::parse(text)?;
        let graph = PartGraph::build(&rules, &|name, negated| token(tokenizer, name, negated))?;
        let at = rules.places[rules.root];
        let table = lexemes::lexemes(&graph, rules.root).map_err(|what| Fault { at, what })?;
        Ok(write(&graph, &table, rules.root))
    };
    translate().map_err(|fault: Fault| wrong(fault.message(text)))
}

/// Returns a token, or any but that, by its id.
fn token(tokenizer: &Tokenizer, name: &TokenName, negated: bool) -> Result<String, Fault> {
    let count = tokenizer.vocab_size() as u32;
    let (id, at) = match name {
        TokenName::Id(id, at) => (Some(*id).filter(|id| *id < count), *at),
        TokenName::Text(text, at) => (tokenizer.token_to_id(text), *at),
    };
    let Some(id) = id else {
        return Err(Fault { at, what: "the vocabulary has no such token".into() });
    };
    if !negated {
        return Ok(format!("<[{id}]>"));
    }
    let below = id.checked_sub(1).map(|last| format!("0-{last}"));
    let above = (id + 1 < count).then(|| format!("{}-{}", id + 1, count - 1));
    let ranges: Vec<String> = [below, above].into_iter().flatten().collect();
    Ok(format!("<[{}]>", ranges.join(",")))
}

fn write(graph: &PartGraph, table: &LexemeTable, root: usize) -> String {
    let mut lark = format!("start: r{root}\n");
    for rule in &table.rules {
        let _ = write!(lark, "r{rule}: ");
        write_part(graph, table, graph.body(*rule), &mut lark);
        lark.push('\n');
    }
    let used: BTreeSet<usize> = table.of_part.values().copied().collect();
    for at in used {
        let regex = &table.regexes[at];
        let rest = if table.nullable[at] { " & /(?s:.+)/" } else { "" };
        let _ = writeln!(lark, "T{at}: /{regex}/{rest}");
    }
    lark
}

fn write_part(graph: &PartGraph, table: &LexemeTable, part: PartId, lark: &mut String) {
    if graph.is_empty(part) {
        lark.push_str("\"\"");
    } else if let Some(lexeme) = table.of_part.get(&part) {
        let optional = if table.nullable[*lexeme] { "?" } else { "" };
        let _ = write!(lark, "T{lexeme}{optional}");
    } else {
        match &graph.parts[part] {
            GraphPart::Token(token) => lark.push_str(token),
            GraphPart::Rule(rule) => drop(write!(lark, "r{rule}")),
            GraphPart::Seq(parts) => group(graph, table, parts, " ", lark),
            GraphPart::Alt(parts) => group(graph, table, parts, " | ", lark),
            GraphPart::Repeat { part, least, most } => {
                group(graph, table, &[*part], "", lark);
                lark.push_str(&lexemes::counts(*least, *most));
            }
            GraphPart::Chars(_) => unreachable!("characters are lexemes"),
        }
    }
}

fn group(
    graph: &PartGraph,
    table: &LexemeTable,
    parts: &[PartId],
    between: &str,
    lark: &mut String,
) {
    for (at, part) in parts.iter().enumerate() {
        lark.push_str(if at == 0 { "(" } else { between });
        write_part(graph, table, *part, lark);
    }
    lark.push(')');
}
