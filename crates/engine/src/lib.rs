//! The engine: loads a model, keeps the KV cache, and turns requests into tokens on one
//! synchronous thread.
//!
//! Invariant: nothing here knows text or HTTP, and no lock is held across a step.

mod active;
mod block_root;
mod cache_size;
mod constraint;
mod draft;
mod error;
mod handle;
mod identity;
mod masks;
pub mod metrics;
mod pace;
mod pool;
mod request;
mod run;
mod runner;
mod sampler;
mod session;
pub mod trace;

pub use backend::{Batch, InputSums, KvType, LayerCache, Memory, Mode};
pub use cache_size::KvMemory;
pub use constraint::{Constraint, Grammar, GrammarRef, TokenSet};
pub use draft::{Drafter, MAX_DRAFTED, PromptLookup, Speculate, Wish};
pub use error::Error;
pub use formats::Pooling;
pub use handle::{Door, EngineHandle, Generation, ModelInfo, Place, Submission, SubmitError, door};
pub use metrics::Metrics;
pub use models::Ranks;
pub use models::placement::Placement;
pub use pool::Embed;
pub use request::{
    Event, FinishReason, Finished, Request, SamplingParams, Timings, TokenLogprobs, Usage,
};
pub use run::{EngineOptions, start};
pub use runner::{BLOCK, LoadOptions, Runner, Settings};
pub use sched::SequenceId;
pub use session::Session;
pub use trace::Trace;
