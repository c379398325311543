//! The adapters of a rank after the first: some the model was loaded with, and rank 0 has it read
//! others.

use crate::load::adapter_base::AdapterBase;
use crate::load::error::Error;
use crate::load::loaded_adapter::LoadedAdapter;
use crate::load::rank_adapters::RankAdapter;
use backend::Adapter;
use dist::Comm;
use models::Ranks;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The adapters of a rank after the first.
pub(super) struct FollowedAdapters {
    base: AdapterBase,
    host: String,
    /// All ranks, of which the first waits for answers.
    ranks: Option<Arc<dyn Comm>>,
    /// Adapters that the model was loaded with, and others after them.
    known: Arc<Mutex<Vec<Arc<Adapter>>>>,
    /// Number of adapters that the model was loaded with.
    kept: usize,
    /// The thread that reads an adapter, or has read one.
    opening: Option<JoinHandle<()>>,
}

impl FollowedAdapters {
    /// For one of `ranks` whose model was loaded with these adapters.
    pub fn new(ranks: &Ranks, base: AdapterBase, loaded: &[(LoadedAdapter, f32)]) -> Self {
        let known: Vec<_> = loaded.iter().map(|(it, _)| Arc::clone(&it.adapter)).collect();
        Self {
            base,
            host: ranks.host().to_owned(),
            ranks: ranks.adapters().cloned(),
            kept: known.len(),
            known: Arc::new(Mutex::new(known)),
            opening: None,
        }
    }

    /// The adapters that requests may name.
    pub fn known(&self) -> MutexGuard<'_, Vec<Arc<Adapter>>> {
        locked(&self.known)
    }

    /// Reads the adapter at `path` in a thread, which answers rank 0.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn open(&mut self, path: PathBuf) -> Result<(), Error> {
        // Rank 0 asks for one after the other.
        self.finish();
        let Some(ranks) = self.ranks.clone() else { return Ok(()) };
        let (base, host, known) = (self.base.clone(), self.host.clone(), Arc::clone(&self.known));
        let open = move || {
            let read = base.open(&path).map(|loaded| loaded.adapter);
            let digest = read.map_err(|error| error.with_causes()).map(|adapter| {
                let digest = adapter.digest().to_owned();
                let mut known = locked(&known);
                if known.iter().all(|it| it.digest() != digest) {
                    known.push(adapter);
                }
                digest
            });
            // Where rank 0 has ended, the next message says so.
            let _ = ranks.send_bytes(0, &RankAdapter { host, digest }.bytes());
        };
        let thread = std::thread::Builder::new().name("adapter".to_owned()).spawn(open);
        self.opening = Some(thread.map_err(|error| Error::Ranks(error.to_string()))?);
        Ok(())
    }

    /// Forgets the adapter of a digest, unless the model was loaded with it.
    pub fn forget(&mut self, digest: &str) {
        let mut known = locked(&self.known);
        let place = known.iter().position(|it| it.digest() == digest);
        if let Some(place) = place.filter(|place| *place >= self.kept) {
            known.remove(place);
        }
    }

    /// Waits until the last adapter has been read.
    pub fn finish(&mut self) {
        if let Some(opening) = self.opening.take() {
            let _ = opening.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::Mode;
    use formats::ModelConfig;
    use models::Projections;

    #[test]
    fn adapters_that_the_model_was_loaded_with_are_not_forgotten() {
        let adapter = |digest: &str| Arc::new(Adapter::new(digest.to_owned(), Vec::new()));
        let loaded = |digest: &str| {
            let (name, path) = (digest.to_owned(), PathBuf::from(digest));
            (LoadedAdapter { name, path, adapter: adapter(digest) }, 1.0)
        };
        let config = ModelConfig::tiny("llama", 1).unwrap();
        let base = AdapterBase::new(&config, Projections::default(), Mode::Exact, None);
        let mut adapters = FollowedAdapters::new(&Ranks::default(), base, &[loaded("a")]);
        adapters.known().extend(["b", "c"].map(adapter));
        for digest in ["a", "b", "none"] {
            adapters.forget(digest);
        }
        let digests: Vec<_> = adapters.known().iter().map(|it| it.digest().to_owned()).collect();
        assert_eq!(digests, ["a", "c"]);
    }
}
