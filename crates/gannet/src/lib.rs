//! Large language models on the CPU of the machine that this is part of: a folder of safetensors
//! or a GGUF file becomes an [`Engine`] that answers.
//!
//! # A batch, in ten lines
//!
//! Every line of a file is a question. Answers come as they are finished, each with the place of
//! its question; meanwhile the engine computes as many at a time as it has room for.
//!
//! ```
//! use gannet::{Engine, Request};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let folder = tempfile::tempdir()?;
//! #   std::fs::write(folder.path().join("prompts.txt"), "Hello!\nWhat is 3 + 4?\n")?;
//! #   std::env::set_current_dir(folder.path())?;
//! #   let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
//! #   /*
//!     let engine = Engine::load("Qwen3-0.6B")?;
//! #   */
//! #   let engine = Engine::load(model)?;
//!     let prompts = std::fs::read_to_string("prompts.txt")?;
//!     let requests = prompts.lines().map(|line| Request::chat(line).max_tokens(200));
//!     for (line, answer) in engine.batch(requests) {
//!         println!("{line}: {}", answer?.text);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # One answer
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
//! # let engine = gannet::Engine::load(path)?;
//! let answer = engine.chat("What is the capital of France?")?;
//! assert_eq!(answer.text, "The capital of France is Paris.");
//! assert_eq!(answer.finish_reason.reason(), "stop");
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! A conversation is a list of [`Message`]s, the last of which is answered. A text that is to be
//! continued as it is goes to [`Engine::complete`].
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
//! # let engine = gannet::Engine::load(path)?;
//! use gannet::Message;
//!
//! let mut talk = vec![Message::user("My name is Tom.")];
//! talk.push(engine.chat(talk.clone())?.into());
//! talk.push(Message::user("What is my name?"));
//! assert_eq!(engine.chat(talk)?.text, "Your name is Tom.");
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! # As it is written
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
//! # let engine = gannet::Engine::load(path)?;
//! use gannet::Request;
//!
//! let mut stream = engine.stream(Request::chat("Tell me a story.").temperature(0.7).seed(7))?;
//! for delta in &mut stream {
//!     print!("{}", delta?.text);
//! }
//! println!("{} tokens", stream.finish()?.usage.completion_tokens);
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! # Choices
//!
//! [`Engine::builder`] chooses threads, context, arithmetic and how many answers are computed at
//! a time. What a [`Request`] says of sampling stands over what the model's makers recommend,
//! which is in the model's files. Whoever needs more than the short forms of this crate passes a
//! [`ChatRequest`] or a [`TextRequest`], or talks to the [`Service`] below, which has async
//! streams.
//!
//! # Threads
//!
//! An [`Engine`] is a handle: clones share one model, threads may use it at the same time, and
//! what they ask is computed together. The model is given up with the last handle. The same
//! request with the same seed gets the same answer, whatever is computed beside it.
//!
//! Everything here blocks the calling thread and must not be called from async code, where
//! `spawn_blocking` or the [`Service`] is the way. Nothing is printed.

mod answer;
mod batch;
mod builder;
mod engine;
mod error;
mod request;

pub use crate::answer::{Answer, Delta, Stream, ToolCall};
pub use crate::batch::Batch;
pub use crate::builder::Builder;
pub use crate::engine::Engine;
pub use crate::error::Error;
pub use crate::request::{Messages, Request};
#[doc(inline)]
pub use ::api::{
    ApiError, ChatRequest, Field, Finish as FinishReason, GrammarSource, Message, Part, Prompt,
    Role, SamplingOptions as Sampling, Service, TextRequest, Timings, TokenText, Tool,
    ToolCall as PastCall, ToolChoice, TopToken, Usage,
};
#[doc(inline)]
pub use ::engine::{
    EngineOptions, KvMemory, KvType, LoadOptions, Memory, Mode, ModelInfo, Placement, Speculate,
};

/// The examples of the README are compiled too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
