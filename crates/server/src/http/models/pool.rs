//! Loading and unloading of models: on request, after a time without requests, and for others.
//!
//! Invariant: a model is unloaded only while no request uses it, and one is loaded at a time.

use crate::http::error::HttpError;
use crate::http::models::live_model::{LiveModel, ModelFolders};
use crate::http::models::model_use::ModelUse;
use crate::http::models::names;
use crate::http::models::pooled_model::{Attempt, Expiry, LoadStatus, PooledModel, Usable};
use crate::http::models::served::{LoadError, LoadModel, ServedModels};
use api::ModelDescription;
use axum::http::StatusCode;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The models of a server. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ModelPool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    entries: Vec<Arc<PooledModel>>,
    /// Whether every name means the only model.
    any_name: bool,
    /// Most bytes of all models that are loaded.
    memory: Option<usize>,
    folders: ModelFolders,
    /// Held while a model is loaded.
    loading: tokio::sync::Mutex<()>,
}

impl ModelPool {
    /// The models of a server with these folders.
    pub fn new(models: ServedModels, folders: ModelFolders) -> Self {
        let (entries, any_name, memory) = match models {
            ServedModels::One { service, aliases } => {
                let loaded = Arc::new(LiveModel::new(service, &folders));
                (vec![Arc::new(PooledModel::lasting(loaded, aliases))], true, None)
            }
            ServedModels::Many(many) => {
                let entry = |it| Arc::new(PooledModel::unloaded(it, many.keep_alive));
                (many.models.into_iter().map(entry).collect(), false, many.memory)
            }
        };
        let loading = tokio::sync::Mutex::new(());
        Self(Arc::new(PoolState { entries, any_name, memory, folders, loading }))
    }

    /// The models, in their order.
    pub fn list(&self) -> &[Arc<PooledModel>] {
        &self.0.entries
    }

    /// The models that are loaded.
    pub fn loaded(&self) -> Vec<Arc<LiveModel>> {
        self.0.entries.iter().filter_map(|entry| entry.loaded()).collect()
    }

    /// The only model of a server that has one for every name.
    pub fn only(&self) -> Option<&Arc<PooledModel>> {
        self.0.entries.first().filter(|_| self.0.any_name)
    }

    /// The model that a request means by `name`.
    ///
    /// # Errors
    /// 404 if there is none; 400 if there are several and the request names none.
    pub fn find(&self, name: Option<&str>) -> Result<&Arc<PooledModel>, HttpError> {
        match self.only() {
            Some(only) => Ok(only),
            None => names::find(&self.0.entries, name),
        }
    }

    /// The model of `entry`, if it can be used at once.
    pub fn ready(&self, entry: &Arc<PooledModel>) -> Option<ModelUse> {
        entry.loaded()?;
        match entry.begin_use(u64::MAX) {
            Usable::Now(loaded) => Some(ModelUse::new(loaded, Arc::clone(entry))),
            Usable::Load(attempt) => {
                // It was unloaded in between.
                self.load(entry, attempt);
                None
            }
            Usable::Changing | Usable::Failed(_) => None,
        }
    }

    /// The model of `entry`, loaded if it is not. Waits until it is; the request may be dropped
    /// meanwhile, which does not end the loading.
    ///
    /// # Errors
    /// 503 if the model cannot be loaded.
    pub async fn acquire(&self, entry: &Arc<PooledModel>) -> Result<ModelUse, HttpError> {
        let mut changed = entry.changed.subscribe();
        let since = entry.attempts();
        let _waiting = entry.wait();
        loop {
            match entry.begin_use(since) {
                Usable::Now(loaded) => return Ok(ModelUse::new(loaded, Arc::clone(entry))),
                Usable::Load(attempt) => self.load(entry, attempt),
                Usable::Failed(problem) => return Err(failed(&entry.name, &problem)),
                Usable::Changing => {}
            }
            if changed.changed().await.is_err() {
                return Err(HttpError::internal());
            }
        }
    }

    /// Has the model of this name unloaded when its requests have ended; waits for it. One that is
    /// being loaded is loaded first.
    ///
    /// # Errors
    /// As [`find`](Self::find); 409 if the model is pinned.
    pub async fn unload(&self, name: Option<&str>) -> Result<(), HttpError> {
        let entry = self.find(name)?;
        if entry.pinned {
            let message = format!("{} stays loaded: it is pinned, or the only model", entry.name);
            return Err(HttpError::request(StatusCode::CONFLICT, message));
        }
        let mut changed = entry.changed.subscribe();
        while entry.status() == LoadStatus::Loading && changed.changed().await.is_ok() {}
        gone(entry).await;
        Ok(())
    }

    /// Loads the pinned models.
    ///
    /// # Errors
    /// If one of them cannot be loaded.
    pub async fn load_pinned(&self) -> Result<(), LoadError> {
        for entry in self.0.entries.iter().filter(|entry| entry.pinned) {
            self.acquire(entry)
                .await
                .map_err(|error| LoadError { message: error.message, needs_memory: false })?;
        }
        Ok(())
    }

    /// Unloads all models at the end of the server.
    pub async fn close(&self) {
        for entry in self.0.entries.iter().filter(|entry| entry.loader.is_some()) {
            gone(entry).await;
        }
    }

    /// Reads descriptions of all models whose files were not read yet.
    pub async fn describe_all(&self) {
        for entry in &self.0.entries {
            if entry.loader.as_ref().is_some_and(|loader| loader.needs_download()) {
                tracing::info!("{}: is downloaded when a request names it", entry.name);
            } else if let Err(error) = self.described(entry).await {
                tracing::warn!("{}", error.message);
            }
        }
    }

    /// What is known of the model of `entry`, read from its files if they were not read yet.
    ///
    /// # Errors
    /// 503 if the files cannot be read.
    pub async fn described<'a>(
        &self,
        entry: &'a PooledModel,
    ) -> Result<&'a ModelDescription, HttpError> {
        if let (None, Some(loader)) = (entry.description(), entry.loader.clone()) {
            let described = tokio::task::spawn_blocking(move || loader.describe()).await;
            let described = described.map_err(|_| HttpError::internal())?;
            entry.describe(described.map_err(|error| failed(&entry.name, &error.message))?);
        }
        entry.description().ok_or_else(HttpError::internal)
    }

    /// Samples the counts of the only model; of many, reads the descriptions. For ever.
    pub async fn attend(&self) -> Infallible {
        match self.only().and_then(|only| only.loaded()) {
            Some(loaded) => loaded.observability.sample().await,
            None => {
                self.describe_all().await;
                std::future::pending().await
            }
        }
    }

    /// Waits until the engine of the only model has ended.
    pub async fn stopped(&self) {
        match self.only().and_then(|only| only.loaded()) {
            Some(loaded) => loaded.service.engine.stopped().await,
            None => std::future::pending().await,
        }
    }

    /// Begins to load the model of `entry`, independent of who asked for it.
    fn load(&self, entry: &Arc<PooledModel>, attempt: u64) {
        let (pool, entry) = (Arc::clone(&self.0), Arc::clone(entry));
        tokio::spawn(async move {
            let loaded = pool.loaded_from_files(&entry).await;
            let loaded = loaded.map_err(|error| Arc::from(error.message));
            let is_loaded = loaded.is_ok();
            if let Err(problem) = &loaded {
                tracing::error!("{}: cannot be loaded: {problem}", entry.name);
            }
            entry.end_loading(attempt, loaded);
            let pool = Arc::downgrade(&pool);
            if is_loaded {
                keep(pool, entry, attempt).await;
            }
        });
    }
}

/// 503: a model cannot be loaded.
fn failed(name: &str, problem: &str) -> HttpError {
    let message = format!("the model {name} cannot be loaded: {problem}");
    HttpError::server(StatusCode::SERVICE_UNAVAILABLE, message).with_code("model_load_failed")
}

/// Has the model of `entry` unloaded when its requests have ended, if it is loaded; waits for it.
async fn gone(entry: &PooledModel) {
    let mut changed = entry.changed.subscribe();
    let Some(attempt) = entry.leave() else { return };
    while !entry.is_gone(attempt) && changed.changed().await.is_ok() {}
}

impl PoolState {
    /// Loads the model of `entry`; others are unloaded for it.
    async fn loaded_from_files(&self, entry: &PooledModel) -> Attempt<LoadError> {
        let _one = self.loading.lock().await;
        let Some(loader) = &entry.loader else {
            return Err(LoadError::new("the model is not loaded"));
        };
        let bytes = usize::try_from(loader.file_bytes()).unwrap_or(usize::MAX);
        // What a model needs beside its weights is not known before.
        let needed = bytes.saturating_add(bytes / 4);
        while self.left().is_some_and(|left| left < needed) && self.unload_oldest(entry).await {}
        loop {
            match self.load(entry, Arc::clone(loader)).await {
                Err(error) if error.needs_memory && self.unload_oldest(entry).await => {}
                ended => return ended,
            }
        }
    }

    async fn load(&self, entry: &PooledModel, loader: Arc<dyn LoadModel>) -> Attempt<LoadError> {
        let memory = self.left();
        tracing::info!(model = entry.name, "loading");
        let running = tokio::task::spawn_blocking(move || loader.load(memory)).await;
        let running = running.map_err(|_| LoadError::new("the model could not be loaded"))??;
        let loaded = LiveModel::new(running.service().clone(), &self.folders);
        entry.describe(loaded.service.description());
        Ok((Arc::new(loaded), running))
    }

    /// Bytes of memory that models may still take.
    fn left(&self) -> Option<usize> {
        let used = self.entries.iter().map(|entry| entry.bytes()).sum();
        self.memory.map(|memory| memory.saturating_sub(used))
    }

    /// Has the model that was used longest ago unloaded, those in use last. Returns whether there
    /// was one.
    async fn unload_oldest(&self, but: &PooledModel) -> bool {
        let others = self.entries.iter().filter(|entry| !std::ptr::eq(&***entry, but));
        let oldest = others.filter_map(|entry| Some((entry.last_use()?, entry)));
        let Some((_, entry)) = oldest.min_by_key(|(used, _)| *used) else { return false };
        tracing::info!(model = entry.name, "is unloaded for another");
        gone(entry).await;
        true
    }
}

impl LoadError {
    fn new(message: &str) -> Self {
        Self { message: message.to_owned(), needs_memory: false }
    }
}

/// Samples the counts of a loaded model, and unloads it when its time has come. Ends with it.
async fn keep(pool: Weak<PoolState>, entry: Arc<PooledModel>, attempt: u64) {
    let mut changed = entry.changed.subscribe();
    let Some(observability) = entry.loaded().map(|loaded| Arc::clone(&loaded.observability)) else {
        return;
    };
    let mut sampling = pin!(observability.sample());
    while pool.strong_count() > 0 {
        let wait = match entry.expiry(attempt) {
            Expiry::Gone => return,
            Expiry::Never => Duration::MAX,
            Expiry::In(time) => time,
        };
        if let Some(running) = entry.begin_unloading(attempt) {
            tracing::info!(model = entry.name, "unloading");
            if tokio::task::spawn_blocking(move || running.unload()).await.is_err() {
                tracing::error!("{}: could not be unloaded", entry.name);
            }
            return entry.end_unloading();
        }
        tokio::select! {
            ended = changed.changed() => if ended.is_err() { return },
            () = tokio::time::sleep(wait) => {}
            never = &mut sampling => match never {},
        }
    }
}
