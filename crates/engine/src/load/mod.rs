//! Loading: from a checkpoint to a [`Runner`](runner::Runner), with its weights placed and its
//! caches made.

pub(crate) mod adapter_base;
pub(crate) mod block_root;
pub(crate) mod cache_bytes;
pub(crate) mod cache_rounding;
pub(crate) mod cache_size;
pub(crate) mod error;
mod expert_routes;
pub(crate) mod identity;
mod loaded;
mod make_cache;
mod model_adapters;
pub(crate) mod pack;
pub(crate) mod runner;
mod stored;
pub(crate) mod stream;
mod texts;
