//! The engine: loads a model, keeps the KV cache, and turns requests into tokens on one
//! synchronous thread.
//!
//! Invariant: nothing here knows text or HTTP, and no lock is held across a step
//! but the turn of engines that share the processors.
//!
//! `step` computes requests with what `load` loads, as `request` asks for; `ranks` tells other
//! ranks that share a model of each step. `disk` and `observe` are used by these and use none.

mod disk;
mod load;
mod observe;
mod ranks;
mod request;
mod step;

pub use disk::{DiskCache, DiskWrite, MIN_TOKENS};
pub use load::adapter_base::{
    AdapterBase, AdapterSource, MAX_ADAPTER_SCALE, MAX_ADAPTERS, check_count, check_scale,
};
pub use load::cache_bytes::{CacheBytes, GroupBytes};
pub use load::cache_rounding::CacheRounding;
pub use load::cache_size::KvMemory;
pub use load::disk_place::DiskPlace;
pub use load::error::Error;
pub use load::identity::identity;
pub use load::loaded_adapter::LoadedAdapter;
pub use load::open::{MAX_THREADS, kv_types};
pub use load::options::{
    BLOCK, BLOCKS, CHUNK, LoadOptions, PackChoice, STATE_EVERY, STREAMED_CHUNK,
    WEIGHTS_READ_THREADS, WeightsMemory, parse_block,
};
pub use load::pack::PACK_EXTENSION;
pub use load::packed_parts::PackedPart;
pub use load::rank_files::open_checkpoint;
pub use load::runner::Runner;
pub use load::settings::Settings;
pub use load::stream::WeightsPlan;
pub use observe::drafter::{Drafter, MAX_DRAFTED};
pub use observe::expert_profile::{ExpertProfile, ProfileUse};
pub use observe::metrics::{self, Metrics};
pub use observe::outcome::Outcome;
pub use observe::routes;
pub use request::answer_record::{AnswerRecord, RecordedChoices};
pub use request::constraint::{Allowed, Constraint, Grammar, GrammarRef, TokenSet};
pub use request::embed::Embed;
pub use request::fields::{
    Bounds, Event, Field, Finished, MAX_MARKS, Request, SamplingParams, Timings, TokenLogprobs,
    Usage,
};
pub use request::handle::{
    EngineHandle, Generation, ModelInfo, ModelTask, QueueSlot, RequestReceiver, Submission,
    SubmitError, request_channel,
};
pub use request::led::{LeadOptions, Led, LedError, Outputs, Want};
pub use request::led_turn::{LedBeginning, LedId, LedMessage, LedTurn};
pub use request::speculate::Speculate;
pub use step::draft_lengths::DraftLengths;
pub use step::engine_options::EngineOptions;
pub use step::follower::Follower;
pub use step::run::{IDLE, start};
pub use step::sequence_memory::SequenceMemory;
pub use step::single_sequence::SingleSequence;
pub use step::step_measure::MEASURE_TIME;
pub use step::token_sampler::TokenSampler;
pub use step::trace::{self, Trace};
pub use step::turns::ComputeTurns;
