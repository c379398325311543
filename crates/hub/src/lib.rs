//! Models from a hub: `owner/name` becomes a folder or a GGUF file on this machine.
//!
//! Speaks the protocol of the Hugging Face hub and shares its cache with the tools that use
//! `huggingface_hub`. Invariant: what a hub sends is hostile: names are checked before they
//! become paths, lengths and hashes before content is used, and the token leaves for the
//! endpoint alone.

mod cache;
mod download;
mod error;
mod fetch;
mod http;
mod reference;
mod select;
mod settings;

pub use download::Progress;
pub use error::Error;
pub use fetch::{Fetched, fetch};
pub use reference::ModelRef;
pub use settings::HubSettings;
