//! Loading: from a checkpoint to a [`Runner`](runner::Runner), with its weights placed and its
//! caches made.

pub(crate) mod adapter_base;
mod agreed_options;
pub(crate) mod block_root;
pub(crate) mod cache_bytes;
pub(crate) mod cache_rounding;
pub(crate) mod cache_size;
pub(crate) mod disk_place;
mod draft_layers;
pub(crate) mod draft_model;
pub(crate) mod error;
mod expert_routes;
pub(crate) mod identity;
mod loaded;
pub(crate) mod loaded_adapter;
mod make_cache;
mod model_adapters;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod pack;
pub(crate) mod packed_parts;
pub(crate) mod rank_adapters;
mod rank_agreement;
mod rank_card;
mod rank_exchange;
pub(crate) mod rank_files;
pub(crate) mod runner;
pub(crate) mod settings;
mod stored;
pub(crate) mod stream;
pub(crate) mod texts;
pub(crate) mod trace_settings;
