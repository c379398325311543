//! Large language model inference on the CPU, in the process of the caller: a folder of safetensors
//! or a GGUF file becomes an [`Engine`].
//!
//! # A batch, in ten lines
//!
//! Every line of a file is a question. Answers come as they finish, each with the index of its
//! question; the engine computes many at a time.
//!
//! ```
//! use gannet::{Engine, Request};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let folder = tempfile::tempdir()?;
//! #   std::fs::write(folder.path().join("prompts.txt"), "Hello!\nWhat is 3 + 4?\n")?;
//! #   std::env::set_current_dir(folder.path())?;
//! #   let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
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
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
//! # let engine = gannet::Engine::load(path)?;
//! let answer = engine.chat("What is the capital of France?")?;
//! assert_eq!(answer.text, "The capital of France is Paris.");
//! assert_eq!(answer.finish_reason.reason(), "stop");
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! A conversation is a list of [`Message`]s; the engine answers the last one.
//! [`Engine::complete`] continues a text without a chat template.
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
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
//! # Streaming
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
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
//! # Embeddings, relevances and logits
//!
//! [`Engine::embed`] turns texts into vectors, [`Engine::rerank`] tells how relevant documents are
//! for a query, and [`Engine::logits`] gives the logits after each token of a prompt.
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
//! # let engine = gannet::Engine::load(path)?;
//! let vectors = engine.embed(&["What is water?", "Is water wet?"])?;
//! assert_eq!(vectors[0].len(), vectors[1].len());
//!
//! let ids = engine.service().tokenizer().encode("Hello", Default::default()).unwrap();
//! assert_eq!(engine.logits(&ids[..])?.len(), ids.len());
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! # Sequences that the caller leads
//!
//! [`Engine::lead`] gives a sequence to which the caller pushes tokens, and whose logits it reads,
//! for searches, guidance and evaluations: see [`Led`].
//!
//! # Options
//!
//! [`Engine::builder`] sets threads, context, compute mode and the number of answers computed at a
//! time. The sampling options of a [`Request`] override the recommendations in the files of the
//! model. A [`ChatRequest`] or a [`TextRequest`] has more options than the short forms of this
//! crate, and the [`Service`] below has async streams.
//!
//! # Threads
//!
//! An [`Engine`] is a handle: clones share one model, threads may use it at the same time, and
//! their requests are batched. The last handle frees the model. The same request with the same seed
//! gets the same answer, independent of the other requests of a batch.
//!
//! All methods block the calling thread and must not be called from async code: use
//! `spawn_blocking` or the [`Service`] there. Nothing is printed.
//!
//! # What is stable
//!
//! What this page shows is stable, and nothing else of the crates it comes from: as long as the
//! version is `0.x.y`, only a new `x` breaks it. Structs gain fields with any version, and enums
//! that are `non_exhaustive` gain variants. So options are made from their defaults or by a
//! constructor, and patterns of structs end with `..`:
//!
//! ```
//! use gannet::{Prompt, Sampling, TextRequest};
//!
//! let sampling = Sampling { max_tokens: Some(20), ..Sampling::default() };
//! let request = TextRequest { sampling, ..TextRequest::new("The capital of France is") };
//! assert_eq!(request.prompt, Prompt::Text("The capital of France is".to_owned()));
//! ```

mod answer;
mod batch;
mod builder;
mod draft_model;
mod engine;
mod error;
mod kv_dir;
mod outputs;
mod prefixes;
#[cfg(feature = "quantize")]
mod quantize;
mod request;
mod setters;

pub use crate::answer::{Answer, Delta, Stream, ToolCall};
pub use crate::batch::Batch;
pub use crate::builder::Builder;
pub use crate::engine::Engine;
pub use crate::error::Error;
pub use crate::kv_dir::KvDir;
pub use crate::prefixes::{ExportedPrefix, remove_unfinished};
#[cfg(feature = "quantize")]
pub use crate::quantize::quantize;
pub use crate::request::{Messages, Request};
#[doc(inline)]
pub use ::api::{
    ApiError, ChatRequest, Finish as FinishReason, Message, ModelDescription, Part, Prompt,
    Receipt, ReceiptKey, Role, SamplingOptions as Sampling, Service, TextRequest, TokenText, Tool,
    ToolCall as PastCall, ToolChoice, TopToken, Usage,
};
#[doc(inline)]
pub use ::backend::{Bits, DeviceChoice, Memory, Mode};
#[doc(inline)]
pub use ::devices::choose as device;
#[doc(inline)]
pub use ::engine::{
    AdapterSource, DiskWrite, Field, KvMemory, LeadOptions, Led, LedError, ModelInfo, Outputs,
    PackChoice, ProfileUse, SamplingParams, Speculate, Timings, TokenSampler, Want, WeightsMemory,
};
#[doc(inline)]
pub use ::kernels::kv::KvType;
#[doc(inline)]
pub use ::models::placement::Placement;
#[doc(inline)]
pub use ::store::StoreKey;
#[doc(inline)]
pub use ::text::{GrammarSource, ToolFormat};

/// The examples of the README are compiled too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
