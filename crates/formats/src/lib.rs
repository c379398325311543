//! Checkpoints: GGUF and safetensors files become one [`Checkpoint`] with canonical tensor
//! names and one normalised [`ModelConfig`].
//!
//! Invariant: nothing here computes with weights. Files are untrusted: lengths are checked before
//! memory is allocated, and every error names the file, the field or tensor, what was expected and
//! what was found.

pub mod adapter;
mod bytes;
mod chat;
mod checkpoint;
pub mod config;
mod converted;
mod delta;
mod derived;
mod digest;
mod error;
mod experts;
pub mod families;
mod file_header;
mod files;
mod generation;
pub mod gguf;
mod gguf_form;
pub mod imatrix;
mod json;
pub mod layers;
mod layout;
pub mod names;
pub mod native;
mod ngrams;
pub mod pack;
mod pooling;
pub mod safetensors;
mod sentence;
mod storage;
mod stream;
mod tensor;

pub use adapter::{AdapterFile, AdapterPair, ProjectionShapes};
pub use chat::ChatRules;
pub use checkpoint::{Checkpoint, OpenOptions};
pub use config::{AssistantConfig, ChosenWords, WORD_ORDER};
pub use config::{DraftConfig, Eagle3Config, StreamNorm, WORD_IDS, WordIds};
pub use config::{ModelConfig, MtpConfig, MtpInput, MtpSpec};
pub use digest::{digest_files, known_digest};
pub use error::{Error, Result};
pub use families::HeadKind;
pub use file_header::{FileHeader, FileHeaders};
pub use files::{ModelFiles, read_header, split_files, weight_bytes};
pub use generation::GenerationDefaults;
pub use json::{MAX_CONFIG_BYTES, parse_json, read_text, serialize_path};
pub use layout::TensorEntry;
pub use pack::{PackFile, PackOrigin, PackPart, PackWriter};
pub use pooling::Pooling;
pub use sentence::SentenceConfig;
pub use stream::TensorStream;
pub use tensor::{TensorView, in_order};
