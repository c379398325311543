//! A model of the server, and where it is between its files and the memory.

use super::keep_alive::KeepAlive;
use crate::http::models::live_model::LiveModel;
use crate::http::models::served::{LoadModel, ModelEntry, RunningModel};
use api::{ModelDescription, NamedAdapter};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The tag that Ollama's clients put behind a name without one.
pub(super) const LATEST: &str = ":latest";

/// A model of the server.
#[derive(Debug)]
pub(crate) struct PooledModel {
    pub name: String,
    pub aliases: Vec<String>,
    pub pinned: bool,
    /// How long it stays loaded, unless requests say otherwise.
    keep_alive: KeepAlive,
    /// `None` for the only model of a server, which is always loaded.
    pub loader: Option<Arc<dyn LoadModel>>,
    description: OnceLock<ModelDescription>,
    state: Mutex<PooledState>,
    /// Changes with the state.
    pub changed: watch::Sender<()>,
}

#[derive(Debug)]
struct PooledState {
    phase: Residence,
    /// Requests that use the model.
    users: usize,
    /// Requests that wait for it.
    waiting: usize,
    /// End of the last use, or of loading.
    idle_since: Instant,
    /// The time that requests have asked for, while the model is loaded.
    keep_alive: Option<KeepAlive>,
    /// Whether the model takes no more requests until it is unloaded.
    leaves: bool,
    /// Whether a request has used the model since it was loaded.
    served: bool,
    /// Attempts to load so far.
    attempts: u64,
    /// The problem of the last attempt that failed, with its number.
    failed: Option<(u64, Arc<str>)>,
}

#[derive(Debug)]
enum Residence {
    Unloaded,
    Loading,
    Loaded(Arc<LiveModel>, Option<Box<dyn RunningModel>>),
    /// Takes this many bytes until it is gone.
    Unloading(usize),
}

/// Where a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadStatus {
    Unloaded,
    Loading,
    Loaded,
    Unloading,
}

/// What an attempt to load has led to.
pub(super) type Attempt<E> = Result<(Arc<LiveModel>, Box<dyn RunningModel>), E>;

/// The answer to a request that wants to use a model.
pub(super) enum Usable {
    Now(Arc<LiveModel>),
    /// The model is on its way into memory, or out of it.
    Changing,
    /// The model must be loaded, which is the attempt of this number.
    Load(u64),
    /// An attempt to load has failed.
    Failed(Arc<str>),
}

/// When a loaded model is to be unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Not before something changes.
    Never,
    In(Duration),
    /// It is no longer loaded, or was loaded again.
    Gone,
}

/// A request that waits for a model.
pub(super) struct PoolWait<'a>(&'a PooledModel);

impl Drop for PoolWait<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.waiting -= 1);
    }
}

impl LoadStatus {
    /// Its name, as in llama.cpp's server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Unloading => "unloading",
        }
    }
}

impl PooledModel {
    /// A model that is not loaded.
    pub fn unloaded(entry: ModelEntry, keep_alive: KeepAlive) -> Self {
        let ModelEntry { name, aliases, pinned, keep_alive: own, loader } = entry;
        let keep_alive = if pinned { KeepAlive::Forever } else { own.unwrap_or(keep_alive) };
        Self::new(name, aliases, pinned, keep_alive, Some(loader), Residence::Unloaded)
    }

    /// A model that is always loaded.
    pub fn lasting(loaded: Arc<LiveModel>, aliases: Vec<String>) -> Self {
        let name = loaded.service.info().name.clone();
        let description = loaded.service.description();
        let phase = Residence::Loaded(loaded, None);
        let entry = Self::new(name, aliases, true, KeepAlive::Forever, None, phase);
        entry.describe(description);
        entry
    }

    fn new(
        name: String,
        aliases: Vec<String>,
        pinned: bool,
        keep_alive: KeepAlive,
        loader: Option<Arc<dyn LoadModel>>,
        phase: Residence,
    ) -> Self {
        let state = PooledState {
            phase,
            users: 0,
            waiting: 0,
            idle_since: Instant::now(),
            keep_alive: None,
            leaves: false,
            served: false,
            attempts: 0,
            failed: None,
        };
        let mut others: Vec<String> = Vec::new();
        for alias in aliases {
            if alias != name && !others.contains(&alias) {
                others.push(alias);
            }
        }
        Self {
            name,
            aliases: others,
            pinned,
            keep_alive,
            loader,
            description: OnceLock::new(),
            state: Mutex::new(state),
            changed: watch::channel(()).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PooledState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut PooledState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.send_replace(());
        changed
    }

    /// All its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases.iter().map(|name| &**name))
    }

    /// Whether `name` is one of its names.
    pub fn is_named(&self, name: &str) -> bool {
        self.names().any(|own| own == name)
    }

    /// Whether `name` means the model itself and none of its adapters: one of its names, with or
    /// without the tag `latest`. The only model of a server answers to every name.
    pub fn answers_to(&self, name: &str) -> bool {
        let short = name.strip_suffix(LATEST);
        self.loader.is_none() || self.is_named(name) || short.is_some_and(|it| self.is_named(it))
    }

    /// Whether it is loaded with an adapter of this name.
    pub fn has_adapter(&self, name: &str) -> bool {
        let loaded = self.loaded();
        let found = loaded.map(|it| it.service.adapters.of_model(name));
        matches!(found, Some(Ok(Some(_))))
    }

    /// The adapters of the model, where it is loaded.
    pub fn adapters(&self) -> Vec<NamedAdapter> {
        self.loaded().map(|it| it.service.adapters.list()).unwrap_or_default()
    }

    /// What is known of it.
    pub fn description(&self) -> Option<&ModelDescription> {
        self.description.get()
    }

    /// Notes what is known of it.
    pub fn describe(&self, description: ModelDescription) {
        let _ = self.description.set(description);
    }

    /// The model, where it is loaded.
    pub fn loaded(&self) -> Option<Arc<LiveModel>> {
        match &self.lock().phase {
            Residence::Loaded(loaded, _) => Some(Arc::clone(loaded)),
            _ => None,
        }
    }

    /// Where the model is.
    pub fn status(&self) -> LoadStatus {
        match self.lock().phase {
            Residence::Unloaded => LoadStatus::Unloaded,
            Residence::Loading => LoadStatus::Loading,
            Residence::Loaded(..) => LoadStatus::Loaded,
            Residence::Unloading(_) => LoadStatus::Unloading,
        }
    }

    /// The problem of the last attempt to load, where the model is not loaded for it.
    pub fn problem(&self) -> Option<Arc<str>> {
        let state = self.lock();
        let failed = state.failed.as_ref().filter(|_| matches!(state.phase, Residence::Unloaded));
        failed.map(|(_, problem)| Arc::clone(problem))
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        match &self.lock().phase {
            Residence::Loaded(_, Some(running)) => running.bytes(),
            Residence::Unloading(bytes) => *bytes,
            _ => 0,
        }
    }

    /// End of its last use, of a model that is loaded and may be unloaded.
    pub fn last_use(&self) -> Option<Instant> {
        let state = self.lock();
        match &state.phase {
            Residence::Loaded(_, Some(_)) if !self.pinned => {
                // Models in use come last.
                Some(if state.users > 0 { Instant::now() } else { state.idle_since })
            }
            _ => None,
        }
    }

    /// Begins to use the model, or says what is to be done before. `since` is the number of
    /// attempts that had been made when the request came: one that fails later fails the request.
    pub(super) fn begin_use(&self, since: u64) -> Usable {
        let mut state = self.lock();
        match &state.phase {
            Residence::Loaded(loaded, _) => {
                let (loaded, has_ended) = (Arc::clone(loaded), !loaded.service.engine.is_alive());
                if self.loader.is_some() && has_ended && !state.leaves {
                    (state.leaves, state.served) = (true, true);
                    self.changed.send_replace(());
                }
                if state.leaves && state.served {
                    return Usable::Changing;
                }
                state.users += 1;
                state.served = true;
                drop(state);
                Usable::Now(loaded)
            }
            Residence::Loading | Residence::Unloading(_) => Usable::Changing,
            Residence::Unloaded => match &state.failed {
                Some((attempt, problem)) if *attempt > since => Usable::Failed(Arc::clone(problem)),
                _ => {
                    state.attempts += 1;
                    (state.phase, state.keep_alive, state.leaves) =
                        (Residence::Loading, None, false);
                    Usable::Load(state.attempts)
                }
            },
        }
    }

    /// Attempts to load so far; one that is under way is not counted.
    pub fn attempts(&self) -> u64 {
        let state = self.lock();
        state.attempts - u64::from(matches!(state.phase, Residence::Loading))
    }

    /// Counts a request that waits for the model, until what it returns is dropped.
    pub(super) fn wait(&self) -> PoolWait<'_> {
        self.lock().waiting += 1;
        PoolWait(self)
    }

    /// Ends a use.
    pub fn end_use(&self) {
        self.change(|state| {
            state.users = state.users.saturating_sub(1);
            state.idle_since = Instant::now();
        });
    }

    /// Notes how an attempt to load has ended.
    pub(super) fn end_loading(&self, attempt: u64, loaded: Attempt<Arc<str>>) {
        self.change(|state| match loaded {
            Ok((loaded, running)) => {
                state.idle_since = Instant::now();
                state.failed = None;
                state.served = false;
                state.phase = Residence::Loaded(loaded, Some(running));
            }
            Err(problem) => {
                state.failed = Some((attempt, problem));
                state.phase = Residence::Unloaded;
            }
        });
    }

    /// Sets how long the model stays loaded after requests. A pinned one stays.
    pub fn keep(&self, time: KeepAlive) {
        if !self.pinned {
            self.change(|state| state.keep_alive = Some(time));
        }
    }

    /// Has a loaded model take no more requests, and be unloaded when running ones have ended.
    /// Returns the number of the attempt that has loaded it; `None` if it is not loaded.
    pub fn leave(&self) -> Option<u64> {
        self.change(|state| {
            state.leaves = matches!(state.phase, Residence::Loaded(..));
            state.leaves.then_some(state.attempts)
        })
    }

    /// Whether the model that the attempt of this number has loaded is gone.
    pub fn is_gone(&self, attempt: u64) -> bool {
        let state = self.lock();
        state.attempts != attempt || matches!(state.phase, Residence::Unloaded)
    }

    /// When the model that the attempt of this number has loaded is to be unloaded.
    pub(super) fn expiry(&self, attempt: u64) -> Expiry {
        self.expiry_in(&self.lock(), attempt)
    }

    fn expiry_in(&self, state: &PooledState, attempt: u64) -> Expiry {
        if state.attempts != attempt || !matches!(state.phase, Residence::Loaded(..)) {
            return Expiry::Gone;
        }
        match state.keep_alive.unwrap_or(self.keep_alive) {
            _ if state.users > 0 => Expiry::Never,
            // A request that it was loaded for uses it before it goes: models that make way for
            // each other might never be used otherwise.
            _ if state.leaves && (state.served || state.waiting == 0) => Expiry::In(Duration::ZERO),
            _ if state.waiting > 0 => Expiry::Never,
            KeepAlive::Forever => Expiry::Never,
            KeepAlive::For(time) => Expiry::In(time.saturating_sub(state.idle_since.elapsed())),
        }
    }

    /// When an idle model is unloaded; `None` for one that is in use or stays.
    pub fn expires_in(&self) -> Option<Duration> {
        let state = self.lock();
        match state.keep_alive.unwrap_or(self.keep_alive) {
            KeepAlive::For(time) if state.users == 0 => {
                Some(time.saturating_sub(state.idle_since.elapsed()))
            }
            KeepAlive::For(time) => Some(time),
            KeepAlive::Forever => None,
        }
    }

    /// Takes the model that is to be freed, if it is due.
    pub(super) fn begin_unloading(&self, attempt: u64) -> Option<Box<dyn RunningModel>> {
        let mut state = self.lock();
        if self.expiry_in(&state, attempt) != Expiry::In(Duration::ZERO) {
            return None;
        }
        let Residence::Loaded(_, running) = &mut state.phase else { return None };
        let running = running.take()?;
        state.phase = Residence::Unloading(running.bytes());
        drop(state);
        self.changed.send_replace(());
        Some(running)
    }

    /// Notes that the model is gone.
    pub(super) fn end_unloading(&self) {
        self.change(|state| (state.phase, state.leaves) = (Residence::Unloaded, false));
    }
}
