//! The text interface of the engine: chat templates are rendered and tokenized, requests submitted,
//! and generated tokens turned into text, reasoning, tool calls and stop strings.
//!
//! Invariant: dropping a [`TextStream`] cancels its generation and no other; the crate knows
//! nothing of HTTP.

mod answer_record;
mod arrange;
mod assemble;
mod cache_report;
mod cache_watch;
mod caller_part;
mod card;
mod constraint;
mod constraint_builder;
mod constraint_source;
mod conversation;
mod description;
mod effort;
mod embed;
mod error;
mod event;
mod ids;
mod infill;
mod length;
mod marks;
mod message;
mod message_place;
mod message_rules;
mod named_adapters;
mod options;
mod partition;
mod prediction;
mod prefill;
mod prefix;
mod probed_template;
mod prompt_history;
mod prompt_length;
mod reasoning_end;
mod reasoning_tags;
mod receipt;
mod receipt_issuer;
mod rendered_chat;
mod replay;
mod replay_turn;
mod request;
mod service;
mod service_receipts;
mod service_transcripts;
mod stream;
mod structure;
mod template_message;
mod token_positions;
mod tool_prompt;
mod traced_constraint;
mod transcript;
mod transcript_renderer;
mod turn_encoding;
mod turn_records;
mod usage_counter;

pub use cache_report::{CacheCause, CacheReport, MessagePlace, PromptDifference};
pub use card::ModelCard;
pub use description::{ModelDescription, TextParts};
pub use effort::{EFFORTS, thinking_switches};
pub use embed::{Embedding, probability};
pub use error::ApiError;
pub use event::{CallEvent, Delta, Done, Finish, TextEvent, TokenText, TopToken};
pub use ids::{derived_id, fnv1a, unique_id};
pub use infill::{Infill, InfillRequest};
pub use length::has_words;
pub use message::{Message, Part, Role, Tool, ToolCall};
pub use named_adapters::{AdapterError, Adapters, DEFAULT_ADAPTERS, NamedAdapter};
pub use options::{MAX_BIASES, SamplingOptions};
pub use partition::{CacheIsolation, CachePartition};
pub use prefix::{PrefixFile, PrefixFiles};
pub use receipt::{
    DigestedParts, IdsDigest, ModelIdentity, Receipt, ReceiptAnswer, ReceiptDifference, ReceiptKey,
    ReceiptModel, ReceiptRequest, ReceiptSignature,
};
pub use replay::arguments;
pub use request::{ChatRequest, Prepared, Prompt, RequestOptions, TextRequest, ToolChoice};
pub use service::{Service, ServiceParts};
pub use stream::TextStream;
pub use traced_constraint::constraint_of_trace;
pub use transcript::{
    AnswerOptions, SettledAnswer, Transcript, TranscriptAnswer, TranscriptMark, TurnTokens,
};
pub use transcript_renderer::TranscriptRenderer;
pub use turn_records::TurnRecords;
pub use usage_counter::Usage;
