//! Grammars: what an answer may look like, as sets of tokens that may come next.
//!
//! A [`GrammarSource`] says what a caller wants, a [`GrammarCompiler`] holds what a vocabulary needs
//! once, a [`CompiledGrammar`] is shared by all sequences of a request, and a [`Matcher`] is the
//! state of one of them. Invariant: what cannot be honoured to the letter is refused, and no source
//! makes compiling or matching take more than bounded time and memory.

mod compiler;
mod error;
mod matcher;
mod source;
mod vocabulary;

pub use compiler::{CompiledGrammar, GrammarCompiler};
pub use error::GrammarError;
pub use matcher::Matcher;
pub use source::{GrammarSource, Thinking};
