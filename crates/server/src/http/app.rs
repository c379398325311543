//! What handlers and middleware of all routes can reach.

use crate::http::limits::Limits;
use crate::http::models::{ModelFolders, ModelPool, ServedModels};
use crate::http::observability::Observability;
use crate::http::options::ServerOptions;
use crate::http::shutdown::Life;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// State of the server that all routes share.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub models: ModelPool,
    pub options: Arc<ServerOptions>,
    pub life: Life,
    pub observability: Arc<Observability>,
    pub limits: Limits,
    /// Bounds the prompts that are parsed and tokenized at one time.
    pub preparing: Arc<Semaphore>,
    /// Seconds since 1970.
    pub started: u64,
}

impl App {
    pub fn new(models: ServedModels, options: ServerOptions, life: Life) -> Self {
        let (state, slot_files) = (options.state.clone(), options.slot_files.clone());
        let models = ModelPool::new(models, ModelFolders { state, slot_files });
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let only = models.only().map(|entry| &*entry.name);
        Self {
            limits: Limits::new(options.rates),
            options: Arc::new(options),
            life,
            observability: Arc::new(Observability::new(only)),
            preparing: Arc::new(Semaphore::new(cores)),
            started: unix_now(),
            models,
        }
    }
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
