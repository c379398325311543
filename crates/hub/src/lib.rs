//! Downloads models from a hub: `owner/name` becomes a local folder or GGUF file.
//!
//! Implements the protocol of the Hugging Face hub and shares the cache of `huggingface_hub`.
//! Invariant: responses are untrusted: names are checked before they become paths, lengths and
//! hashes before content is used, and the token is sent to the endpoint only.

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
