//! The engine: loads a model, keeps the KV cache, and turns requests into tokens on one
//! synchronous thread.
//!
//! Invariant: nothing here knows text or HTTP, and no lock is held across a step
//! but the turn of engines that share the processors.

mod adapters;
mod block_root;
mod cache_bytes;
mod cache_rounding;
mod cache_size;
mod constraint;
mod disk;
mod draft;
mod embedding_pooler;
mod engine_options;
mod error;
mod expert_profile;
mod handle;
mod identity;
mod masks;
pub mod metrics;
mod outcome;
mod prefill_budget;
mod request;
pub mod routes;
mod run;
mod runner;
mod running_request;
mod sampler;
mod sequence_memory;
mod single_sequence;
mod step_sampler;
pub mod trace;
mod turns;

pub use adapters::{
    AdapterBase, AdapterSource, LoadedAdapter, MAX_ADAPTER_SCALE, MAX_ADAPTERS, check_count,
    check_scale,
};
pub use backend::available_memory;
pub use backend::{Adapter, AdapterSet, ScaledAdapter};
pub use backend::{Batch, Device, DeviceChoice, Heat, InputSums, KvType, LayerCache, Memory, Mode};
pub use cache_bytes::{CacheBytes, GroupBytes};
pub use cache_rounding::CacheRounding;
pub use cache_size::KvMemory;
pub use constraint::{Allowed, Constraint, Grammar, GrammarRef, TokenSet};
pub use disk::{DiskCache, DiskPlace, DiskWrite, MIN_TOKENS};
pub use draft::{MAX_DRAFTED, Speculate};
pub use embedding_pooler::Embed;
pub use engine_options::EngineOptions;
pub use error::Error;
pub use expert_profile::{ExpertProfile, ProfileUse};
pub use formats::Pooling;
pub use formats::adapter::MAX_RANK as MAX_ADAPTER_RANK;
pub use handle::{
    EngineHandle, Generation, ModelInfo, ModelTask, QueueSlot, RequestReceiver, Submission,
    SubmitError, request_channel,
};
pub use identity::identity;
pub use metrics::Metrics;
pub use models::Ranks;
pub use models::placement::Placement;
pub use outcome::Outcome;
pub use request::{
    Bounds, Event, Field, Finished, MAX_MARKS, Request, SamplingParams, Timings, TokenLogprobs,
    Usage,
};
pub use run::{IDLE, start};
pub use runner::{
    BLOCK, CHUNK, LoadOptions, MAX_THREADS, PACK_EXTENSION, PackChoice, PackedPart, Runner,
    STATE_EVERY, STREAMED_CHUNK, Settings, WEIGHTS_READ_THREADS, WeightsMemory, WeightsPlan,
    kv_types,
};
pub use sched::{CacheLookup, Slot, Unreached};
pub use sequence_memory::SequenceMemory;
pub use single_sequence::SingleSequence;
pub use trace::Trace;
pub use turns::ComputeTurns;
