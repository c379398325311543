//! Grammars: constraints on answers, as masks of the tokens that may come next.
//!
//! A [`GrammarSource`] is a constraint as callers write it, a [`GrammarCompiler`] compiles sources
//! for one vocabulary, a [`CompiledGrammar`] is shared by all sequences of a request, and a
//! [`Matcher`] is the state of one sequence. Invariants: a source that is not supported in full is
//! an error; compilation and matching take bounded time and memory.

mod bounds;
mod calls;
mod compiler;
mod error;
mod gbnf;
mod lark;
mod locate;
mod matcher;
mod parameters;
mod schema;
mod source;
mod vocabulary;

pub use calls::MAX_TOOLS;
pub use compiler::{CompiledGrammar, GrammarCompiler};
pub use error::GrammarError;
pub use matcher::Matcher;
pub use source::{CallGrammar, GrammarSource, Thinking};
