//! Files that may change while the server runs: looked at from time to time, and on SIGHUP.

use std::convert::Infallible;
use std::error::Error;
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What is made of files, and can be made of them again.
pub(crate) trait Reload: Send + Sync {
    /// The files.
    fn files(&self) -> Vec<&Path>;
    /// Reads them again and says what is in use now. Where that fails, nothing changes.
    fn reload(&self) -> Result<String, Box<dyn Error>>;
}

/// What tells a file from the one that was there before.
type Stamp = Option<(Option<SystemTime>, u64, u64)>;

/// One thing to be kept up to date.
struct Watched {
    what: Arc<dyn Reload>,
    stamps: Vec<Stamp>,
}

/// Keeps `all` up to date for ever. SIGHUP ends a process whose server has no such files, as ever.
pub(crate) async fn watch(all: Vec<Arc<dyn Reload>>, period: Duration) -> Infallible {
    let watched = all.into_iter().filter(|what| !what.files().is_empty()).map(Watched::new);
    let mut watched: Vec<Watched> = watched.collect();
    if watched.is_empty() {
        return std::future::pending().await;
    }
    let mut hangups = Hangups::install();
    loop {
        let asked = tokio::select! {
            () = tokio::time::sleep(period) => false,
            () = hangups.next() => true,
        };
        // The files may lie on a slow disk.
        let look = tokio::task::spawn_blocking(move || {
            watched.iter_mut().for_each(|one| one.look(asked));
            watched
        });
        let Ok(same) = look.await else { return std::future::pending().await };
        watched = same;
    }
}

impl Watched {
    /// Loading a model takes time, in which files may have changed: the first look reads them.
    fn new(what: Arc<dyn Reload>) -> Self {
        Self { what, stamps: Vec::new() }
    }

    fn look(&mut self, asked: bool) {
        let stamps = stamps(&*self.what);
        if !asked && stamps == self.stamps {
            return;
        }
        self.stamps = stamps;
        match self.what.reload() {
            Ok(what) => tracing::info!("read again: {what}"),
            Err(error) => tracing::error!("kept as it was: {error}"),
        }
    }
}

fn stamps(what: &dyn Reload) -> Vec<Stamp> {
    what.files().iter().map(|path| std::fs::metadata(path).ok().map(|data| stamp(&data))).collect()
}

fn stamp(data: &Metadata) -> (Option<SystemTime>, u64, u64) {
    (data.modified().ok(), data.len(), number(data))
}

#[cfg(unix)]
fn number(data: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(data)
}

#[cfg(not(unix))]
fn number(_: &Metadata) -> u64 {
    0
}

/// Requests to read everything again.
#[cfg(unix)]
struct Hangups(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Hangups {
    fn install() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let signal = signal(SignalKind::hangup());
        Self(signal.inspect_err(|error| tracing::warn!("cannot listen for SIGHUP: {error}")).ok())
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    fn install() -> Self {
        Self
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
