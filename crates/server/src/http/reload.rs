//! Files that may change while the server runs: checked from time to time, and on SIGHUP.

use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
#[cfg(unix)]
use tokio::signal::unix;

/// A value that is read from files, and can be read from them again.
pub(crate) trait Reload: Send + Sync {
    /// The files.
    fn files(&self) -> Vec<&Path>;
    /// Reads the files again and describes what is in use now. On an error nothing changes.
    fn reload(&self) -> Result<String, Box<dyn Error>>;
}

/// What distinguishes a file from the one before it: its time, its size and its number.
type Stamp = Option<(Option<SystemTime>, u64, u64)>;

/// Keeps `all` up to date for ever. Without files SIGHUP is not handled, and ends the process.
pub(crate) async fn watch(all: Vec<Arc<dyn Reload>>, period: Duration) -> Infallible {
    // Files may have changed while the model was loaded: the first check reads them.
    let watched = all.into_iter().filter(|what| !what.files().is_empty());
    let mut watched: Vec<_> = watched.map(|what| (what, Vec::<Stamp>::new())).collect();
    if watched.is_empty() {
        return std::future::pending().await;
    }
    let hangups = Hangups::listen();
    let hangups = hangups.inspect_err(|error| tracing::warn!("cannot listen for SIGHUP: {error}"));
    let mut hangups = hangups.unwrap_or_default();
    loop {
        let asked = tokio::select! {
            () = tokio::time::sleep(period) => false,
            () = hangups.next() => true,
        };
        // The files may lie on a slow disk.
        let checked = tokio::task::spawn_blocking(move || {
            watched.iter_mut().for_each(|(what, stamps)| check(&**what, stamps, asked));
            watched
        });
        let Ok(same) = checked.await else { return std::future::pending().await };
        watched = same;
    }
}

/// Reads `what` again if that is asked for, or if its files are no longer those of `known`.
fn check(what: &dyn Reload, known: &mut Vec<Stamp>, asked: bool) {
    let stamps: Vec<Stamp> = what.files().into_iter().map(stamp).collect();
    if !asked && stamps == *known {
        return;
    }
    *known = stamps;
    match what.reload() {
        Ok(what) => tracing::info!("read again: {what}"),
        Err(error) => tracing::error!("kept as it was: {error}"),
    }
}

fn stamp(path: &Path) -> Stamp {
    let data = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&data);
    #[cfg(not(unix))]
    let number = 0;
    Some((data.modified().ok(), data.len(), number))
}

/// Receives SIGHUP. The default value, and the value on systems without signals, receives none.
#[derive(Debug, Default)]
struct Hangups {
    #[cfg(unix)]
    signal: Option<unix::Signal>,
}

impl Hangups {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signal: Some(unix::signal(unix::SignalKind::hangup())?),
        })
    }

    /// Waits for the next SIGHUP.
    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal {
            signal.recv().await;
            return;
        }
        std::future::pending().await
    }
}
