//! The engine: loads a model, keeps the KV cache, and turns requests into tokens on one
//! synchronous thread.
//!
//! Invariant: nothing here knows text or HTTP, and no lock is held across a step.

mod error;
mod handle;
pub mod metrics;
mod request;
mod run;
mod runner;
mod sampler;
mod session;

pub use backend::{Batch, InputSums, KvType, LayerCache, Memory, Mode};
pub use error::Error;
pub use handle::{Door, EngineHandle, Generation, ModelInfo, Submission, SubmitError, door};
pub use metrics::Metrics;
pub use request::{
    Event, FinishReason, Finished, Request, SamplingParams, Timings, TokenLogprobs, Usage,
};
pub use run::{EngineOptions, start};
pub use runner::{BLOCK, LoadOptions, Runner};
pub use session::Session;
