//! Model configurations: their schema, and how both kinds of files are read and written.
//!
//! Invariant: a module knows those before it in this list and no family: `schema` and `encoder`;
//! `fields`, `names` and `yarn`; `parts` and `rows`; `family`, the descriptor that readers and
//! writers take; `model`; `check`, `compressed`, `delta` and `mamba`; `hf`, `gguf` and `write`.

pub(crate) mod assistant;
pub(crate) mod check;
mod compressed;
mod delta;
pub(crate) mod drafting;
pub(crate) mod eagle3;
pub(crate) mod encoder;
pub(crate) mod family;
pub(crate) mod fields;
pub(crate) mod gguf;
pub(crate) mod hf;
mod mamba;
mod model;
pub(crate) mod mtp;
pub(crate) mod names;
mod ngrams;
pub(crate) mod parts;
mod resize;
pub(crate) mod rows;
mod schema;
pub(crate) mod write;
mod yarn;

pub use assistant::{AssistantConfig, ChosenWords, WORD_ORDER};
pub use drafting::DraftConfig;
pub use eagle3::{Eagle3Config, StreamNorm, WORD_IDS, WordIds};
pub use encoder::EncoderConfig;
pub use model::ModelConfig;
pub use mtp::{MtpConfig, MtpInput, MtpSpec};
pub use rows::{KnownField, known_fields};
pub use schema::*;
pub use write::RowFactors;
