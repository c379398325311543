//! Grammars: constraints on answers, as masks of the tokens that may come next.
//!
//! A [`GrammarSource`] is a constraint as callers write it, a [`GrammarCompiler`] compiles sources
//! for one vocabulary, a [`CompiledGrammar`] is shared by all sequences of a request, and a
//! [`Matcher`] is the state of one sequence. Invariants: a source that is not supported in full is
//! an error, except for the parts that a caller has left out; compilation and matching take bounded
//! time and memory.

mod bounds;
#[cfg(feature = "grammar")]
mod calls;
#[cfg(feature = "grammar")]
mod compiler;
#[cfg(feature = "grammar")]
mod drafts;
mod error;
#[cfg(feature = "grammar")]
mod exact;
#[cfg(feature = "grammar")]
mod expression;
#[cfg(feature = "grammar")]
mod finite;
#[cfg(feature = "grammar")]
mod formats;
#[cfg(feature = "grammar")]
mod gbnf;
#[cfg(feature = "grammar")]
mod json;
#[cfg(feature = "grammar")]
mod lark;
mod left_out;
#[cfg(feature = "grammar")]
mod locate;
#[cfg(feature = "grammar")]
mod loose;
#[cfg(feature = "grammar")]
mod matcher;
#[cfg(feature = "grammar")]
mod parameters;
#[cfg(feature = "grammar")]
mod pattern;
#[cfg(feature = "grammar")]
mod references;
#[cfg(feature = "grammar")]
mod schema;
mod source;
#[cfg(feature = "grammar")]
mod targets;
#[cfg(not(feature = "grammar"))]
mod unbuilt;
#[cfg(feature = "grammar")]
mod vocabulary;

pub use bounds::check_tools;
#[cfg(feature = "grammar")]
pub use compiler::{CompiledGrammar, GrammarCompiler};
pub use error::GrammarError;
pub use left_out::LeftOut;
#[cfg(feature = "grammar")]
pub use matcher::Matcher;
pub use source::{CallGrammar, GrammarSource, Thinking};
#[cfg(not(feature = "grammar"))]
pub use unbuilt::{CompiledGrammar, GrammarCompiler, Matcher};
