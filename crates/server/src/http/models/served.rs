//! What a server serves: its models, and how they are loaded.

use super::keep_alive::KeepAlive;
use api::{ModelDescription, Service};
use std::fmt::Debug;
use std::sync::Arc;

/// What a server serves.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a server has one value")]
pub enum ServedModels {
    /// One model, which answers to every name.
    One {
        /// The model.
        service: Service,
        /// Names that are listed besides its own.
        aliases: Vec<String>,
    },
    /// Models by their names.
    Many(ModelCollection),
}

/// Models that are loaded when they are asked for.
#[derive(Clone, Debug)]
pub struct ModelCollection {
    /// The models, with different names.
    pub models: Vec<ModelEntry>,
    /// Most bytes of all models that are loaded; the least recently used are unloaded for others.
    pub memory: Option<usize>,
    /// How long a model without requests stays loaded, unless its entry or a request says
    /// otherwise.
    pub keep_alive: KeepAlive,
}

/// A model that can be loaded.
#[derive(Clone, Debug)]
pub struct ModelEntry {
    /// Its name for clients.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// Whether it is loaded at the start and stays so.
    pub pinned: bool,
    /// How long it stays loaded without requests; `None` for the time of the collection.
    pub keep_alive: Option<KeepAlive>,
    /// Loads it.
    pub loader: Arc<dyn LoadModel>,
}

/// Loads one model.
pub trait LoadModel: Debug + Send + Sync {
    /// Returns the bytes of its weights in their files, without opening them.
    fn file_bytes(&self) -> u64;

    /// Whether the files are not on this machine yet, and loading the model downloads them.
    fn needs_download(&self) -> bool {
        false
    }

    /// Describes the model as far as its files do. Blocks.
    ///
    /// # Errors
    /// If a file is missing or malformed.
    fn describe(&self) -> Result<ModelDescription, LoadError>;

    /// Loads the model into at most `memory` bytes, if there is a limit. Blocks, maybe for long.
    ///
    /// # Errors
    /// If a file is missing or malformed, or the memory does not suffice.
    fn load(&self, memory: Option<usize>) -> Result<Box<dyn RunningModel>, LoadError>;
}

/// A model that was loaded.
pub trait RunningModel: Debug + Send + Sync {
    /// Returns the service.
    fn service(&self) -> &Service;

    /// Returns the bytes of memory that it takes.
    fn bytes(&self) -> usize;

    /// Frees the model, and waits for what it writes to disk at its end. All clones of its service
    /// have been dropped before. Blocks.
    fn unload(self: Box<Self>);
}

/// Why a model was not loaded.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LoadError {
    /// The file and the problem.
    pub message: String,
    /// Whether the model might be loaded with more memory.
    pub needs_memory: bool,
}

impl From<Service> for ServedModels {
    fn from(service: Service) -> Self {
        Self::One { service, aliases: Vec::new() }
    }
}

impl From<ModelCollection> for ServedModels {
    fn from(models: ModelCollection) -> Self {
        Self::Many(models)
    }
}
