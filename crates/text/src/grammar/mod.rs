//! Grammars: constraints on answers, as masks of the tokens that may come next.
//!
//! A [`GrammarSource`] is a constraint as callers write it, a [`GrammarCompiler`] compiles sources
//! for one vocabulary, a [`CompiledGrammar`] is shared by all sequences of a request, and a
//! [`Matcher`] is the state of one sequence. Invariants: a source that is not supported in full is
//! an error, except for the parts that a caller has left out; compilation and matching take bounded
//! time and memory.

mod bounds;
mod calls;
mod compiler;
mod drafts;
mod error;
mod exact;
mod expression;
mod finite;
mod formats;
mod gbnf;
mod json;
mod lark;
mod locate;
mod loose;
mod matcher;
mod parameters;
mod pattern;
mod references;
mod schema;
mod source;
mod targets;
mod vocabulary;

pub use bounds::check_tools;
pub use compiler::{CompiledGrammar, GrammarCompiler};
pub use error::GrammarError;
pub use loose::LeftOut;
pub use matcher::Matcher;
pub use source::{CallGrammar, GrammarSource, Thinking};
