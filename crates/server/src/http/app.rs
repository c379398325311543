//! What handlers and middleware of all routes can reach.

use crate::http::error::HttpError;
use crate::http::limits::Limits;
use crate::http::models::{ModelFolders, ModelPool, ServedModels};
use crate::http::observability::Observability;
use crate::http::options::ServerOptions;
use crate::http::shutdown::Life;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, oneshot};

/// State of the server that all routes share.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub models: ModelPool,
    pub options: Arc<ServerOptions>,
    pub life: Life,
    pub observability: Arc<Observability>,
    pub limits: Limits,
    preparing: Preparing,
    /// Whether the server listens on this machine's own addresses alone, besides a Unix socket.
    pub loopback: bool,
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
            preparing: Preparing::new(cores),
            loopback: false,
            started: unix_now(),
            models,
        }
    }
}

/// Bounds the bodies that are decoded, parsed and tokenized at one time.
#[derive(Clone, Debug)]
struct Preparing {
    small: Arc<Semaphore>,
    /// One at a time: it takes memory in proportion, and others need not wait for it.
    large: Arc<Semaphore>,
}

/// Bytes above which a body is large.
const LARGE: usize = 256 << 10;
/// Bytes above which what a body took is given back at once: the allocator may keep much of it.
const HUGE: usize = 4 << 20;

impl Preparing {
    fn new(cores: usize) -> Self {
        Self { small: Arc::new(Semaphore::new(cores)), large: Arc::new(Semaphore::new(1)) }
    }
}

impl App {
    /// Runs `work` with a body of `bytes` on a thread that may block, as soon as there are not too
    /// many.
    ///
    /// # Errors
    /// If `work` fails or panics, or the server ends.
    pub async fn prepare<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (sender, mut result) = oneshot::channel();
        let work = move || {
            let _ = sender.send(work());
        };
        self.block(bytes, Box::new(work)).await?;
        // A panic has dropped the sender.
        result.try_recv().map_err(|_| HttpError::internal())?
    }

    /// The same for work of any result, so that its code exists once.
    async fn block(&self, bytes: usize, work: Box<dyn FnOnce() + Send>) -> Result<(), HttpError> {
        let Preparing { small, large } = &self.preparing;
        let permits = Arc::clone(if bytes > LARGE { large } else { small });
        let permit = permits.acquire_owned().await.map_err(|_| HttpError::shutting_down())?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work();
            if bytes > HUGE {
                base::give_back_free_memory();
            }
        });
        done.await.map_err(|_| HttpError::internal())
    }
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
