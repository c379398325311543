//! Text: tokenizers, chat templates, incremental decoding, stop strings, reasoning.
//!
//! The crate turns messages into token ids and token ids into events of an answer, without the
//! engine and HTTP. All input is hostile: files, templates and texts give errors, never panics, and
//! cost time and memory in proportion to their size.
// What only grammars use.
#![cfg_attr(not(feature = "grammar"), allow(dead_code))]

mod added;
mod affixes;
mod assets;
mod byte_level;
mod call_reader;
mod charsmap;
mod config_tokens;
mod decoder;
mod difference;
mod error;
mod files;
mod gguf;
pub mod grammar;
mod guard;
mod infill;
mod long_words;
mod output;
mod parts;
mod pipeline;
pub mod pre_types;
pub mod raw_json;
mod spaced_json;
mod special_tokens;
mod spm;
mod stop;
mod stream;
mod template;
mod think;
mod tokenizer;
mod tokenizer_json;
pub mod tool_formats;
mod vocab;

pub use assets::{Templates, TextAssets};
pub use call_reader::call::{OutputEvent, ToolSignature};
pub use call_reader::json::closed_object;
pub use chrono::NaiveDateTime;
pub use error::{Result, TextError};
pub use gguf::GgufOptions;
pub use grammar::{
    CallGrammar, CompiledGrammar, GrammarCompiler, GrammarError, GrammarSource, Matcher, Thinking,
};
pub use guard::{MAX_POINTS, PointedPrompt, RenderedPrompt};
pub use infill::InfillTokens;
pub use output::{OutputForm, OutputParser, ReasoningCalls};
pub use spaced_json::spaced_json;
pub use special_tokens::{SpecialIds, SpecialTokens};
pub use stop::{StopStep, StopStrings};
pub use stream::IncrementalDecoder;
pub use template::{ChatTemplate, parse_now};
pub use think::Reasoning;
pub use tokenizer::{EncodeOptions, EncodedPair, EncodedText, Tokenizer};
pub use tool_formats::dsml::CallStructure;
pub use tool_formats::{ToolFormat, UnknownFormat};
pub use vocab::TokenKind;
