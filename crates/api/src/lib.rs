//! Text in, text out: renders chat templates, tokenizes, submits to the engine, and turns its
//! tokens back into text with stop strings and reasoning handled.
//!
//! Invariant: dropping a [`TextStream`] cancels its generation, and only that. The crate knows no
//! HTTP.

mod assemble;
mod budget;
mod card;
mod constraint;
mod constraint_builder;
mod conversation;
mod embed;
mod error;
mod ids;
mod infill;
mod message;
mod options;
mod replay;
mod request;
mod service;
mod stream;
mod usage_counter;

pub use assemble::{Delta, TokenText, TopToken};
pub use card::ModelCard;
pub use embed::Embedding;
pub use engine::{Embed, Field, ModelInfo, Pooling, SamplingParams, Speculate, metrics};
pub use error::ApiError;
pub use ids::{fnv1a, unique_id};
pub use infill::{Infill, InfillRequest};
pub use message::{Message, Part, Role, Tool, ToolCall};
pub use options::SamplingOptions;
pub use replay::arguments;
pub use request::{ChatRequest, Prepared, Prompt, RequestOptions, TextRequest, ToolChoice};
pub use service::{Service, ServiceParts};
pub use stream::{CallEvent, Done, Finish, TextEvent, TextStream};
pub use text::{EncodeOptions, GrammarSource};
pub use usage_counter::{Timings, Usage};
