//! The state of a folder, and the thread that writes it.
//!
//! Changes that arrive while a group is being committed are the next group. After an error of the
//! disk the changes of a group stay in memory and callers wait no longer; the thread tries again
//! every minute, and at the end.

use crate::file::{Opener, StateError, StateFile, lock_folder, open_database};
use crate::group::{Change, Group};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between attempts to write to a disk that fails.
const RETRY: Duration = Duration::from_secs(60);

/// The records of a folder. Clones share them; the last one writes what is left when it is dropped.
#[derive(Clone, Debug)]
pub struct StateDir(Arc<OpenDir>);

#[derive(Debug)]
struct OpenDir {
    shared: Arc<GroupWriter>,
    committed: watch::Receiver<u64>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The lock of the folder.
    held: Mutex<Option<File>>,
}

/// What callers and the thread share.
#[derive(Debug)]
struct GroupWriter {
    queue: Mutex<Queue>,
    changed: Condvar,
    file: Mutex<StateFile>,
    retry: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    group: Group,
    /// The number of the last call that added changes.
    number: u64,
    /// When a disk that failed is tried again.
    retry_at: Option<Instant>,
    ended: bool,
}

/// The moment at which changes are on disk.
#[derive(Clone, Debug)]
pub struct Commit {
    number: u64,
    committed: watch::Receiver<u64>,
}

impl Commit {
    /// Waits until the changes are on disk, or the disk has failed.
    pub async fn wait(mut self) {
        let Self { number, committed } = &mut self;
        // Fails where the thread has ended: there is nothing to wait for.
        let _ = committed.wait_for(|committed| *committed >= *number).await;
    }
}

impl StateDir {
    /// Opens the state of `folder`, which is made where there is none.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, is used by another process, or holds a file that is damaged or
    /// of a newer version.
    pub fn open(folder: &Path) -> Result<Self, StateError> {
        Self::open_with(folder, open_database, RETRY)
    }

    fn open_with(folder: &Path, opener: Opener, retry: Duration) -> Result<Self, StateError> {
        let lock = lock_folder(folder)?;
        let file = Mutex::new(on_a_thread(|| StateFile::open(folder, opener))?);
        let (queue, changed) = Default::default();
        let shared = Arc::new(GroupWriter { queue, changed, file, retry });
        let (sender, committed) = watch::channel(0);
        let thread = {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("gannet-state".into());
            thread.spawn(move || while shared.step(&sender) {})
        };
        let thread = thread.map_err(|source| StateError::Io { path: folder.to_owned(), source })?;
        let thread = Mutex::new(Some(thread));
        let held = Mutex::new(Some(lock));
        Ok(Self(Arc::new(OpenDir { shared, committed, thread, held })))
    }

    /// Calls `visit` with the key and the value of each record of `table` on disk, in the order of
    /// keys. If not all can be read, nothing more is written, so that no record is lost for good.
    pub fn read(&self, table: &str, mut visit: impl FnMut(&[u8], &[u8]) + Send) {
        let file = lock(&self.0.shared.file);
        if let Err(error) = on_a_thread(|| file.read(table, &mut visit)) {
            let path = file.path.display();
            tracing::warn!("{path}: cannot read {table}; state is not written: {error}");
            lock(&self.0.shared.queue).ended = true;
        }
    }

    /// Adds `changes` to the next group; all of them are committed, or none.
    pub fn write(&self, changes: impl IntoIterator<Item = Change>) -> Commit {
        let OpenDir { shared, committed, .. } = &*self.0;
        let committed = committed.clone();
        let mut queue = lock(&shared.queue);
        // Without the thread nothing would ever take the changes.
        if queue.ended || committed.has_changed().is_err() {
            return Commit { number: 0, committed };
        }
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return Commit { number: 0, committed };
        }
        changes.for_each(|change| queue.group.add(change));
        queue.number += 1;
        shared.changed.notify_all();
        let number = if queue.retry_at.is_some() { 0 } else { queue.number };
        Commit { number, committed }
    }

    /// Writes what is left, and gives the folder up: nothing is read or written after that.
    pub fn finish(&self) {
        self.0.finish();
    }
}

impl OpenDir {
    fn finish(&self) {
        lock(&self.shared.queue).ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes state has panicked");
        }
        lock(&self.shared.file).close();
        *lock(&self.held) = None;
    }
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        self.finish();
    }
}

impl GroupWriter {
    /// Waits for changes and commits them; says whether more may come.
    fn step(&self, committed: &watch::Sender<u64>) -> bool {
        let mut queue = self.wait();
        let (group, number, ended) = (std::mem::take(&mut queue.group), queue.number, queue.ended);
        drop(queue);
        if !group.is_empty() {
            let written = lock(&self.file).commit(&group);
            self.settle(group, written);
        }
        committed.send_replace(number);
        !ended
    }

    /// Waits until there are changes that may be written, or the end has come.
    fn wait(&self) -> MutexGuard<'_, Queue> {
        let mut queue = lock(&self.queue);
        loop {
            let left = queue
                .retry_at
                .map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if queue.ended || !queue.group.is_empty() && left.is_zero() {
                return queue;
            }
            let waited = match left.is_zero() {
                true => self.changed.wait(queue),
                false => {
                    let waited = self.changed.wait_timeout(queue, left);
                    waited
                        .map(|(queue, _)| queue)
                        .map_err(|error| PoisonError::new(error.into_inner().0))
                }
            };
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes whether `group` was written; if not, it is tried again later.
    fn settle(&self, group: Group, written: Result<(), redb::Error>) {
        let path = lock(&self.file).path.clone();
        let mut queue = lock(&self.queue);
        match written {
            Ok(()) if queue.retry_at.take().is_some() => {
                tracing::info!("{}: state is written again", path.display());
            }
            Ok(()) => {}
            Err(error) => {
                let seconds = self.retry.as_secs();
                tracing::warn!(
                    "{}: cannot write state, which stays in memory for now; next attempt in \
                     {seconds} s: {error}",
                    path.display()
                );
                queue.group.put_back(group);
                queue.retry_at = Some(Instant::now() + self.retry);
            }
        }
    }
}

/// Runs `work` on a thread of its own: on the main thread, what the database asserts of a damaged
/// file could end the process before it is caught.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let result = std::thread::scope(|scope| scope.spawn(work).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The value in `mutex`, which each change leaves whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
