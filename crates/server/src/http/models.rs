//! The models of a server: one that is always there, or many that are loaded when a request names
//! them.

mod keep_alive;
mod live_model;
mod model_use;
mod names;
mod pool;
mod pooled_model;
mod served;

pub use keep_alive::KeepAlive;
pub(crate) use live_model::{LiveModel, ModelFolders};
pub(crate) use model_use::ModelUse;
pub(crate) use names::unknown;
pub(crate) use pool::ModelPool;
pub(crate) use pooled_model::PooledModel;
pub use served::{LoadError, LoadModel, ModelCollection, ModelEntry, RunningModel, ServedModels};
