//! The engine: loads a model, keeps the KV cache, and turns requests into tokens on one
//! synchronous thread.
//!
//! Invariant: nothing here knows text or HTTP, and no lock is held across a step.

mod handle;
mod request;

pub use handle::{Door, EngineHandle, Generation, ModelInfo, Submission, SubmitError, door};
pub use request::{
    Event, FinishReason, Finished, Request, SamplingParams, Timings, TokenLogprobs, Usage,
};
