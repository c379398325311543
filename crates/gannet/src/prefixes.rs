//! Computed prefixes as files of their own.

use crate::error::Error;
use api::{PrefixFile, PrefixFiles};
use engine::{DiskCache, DiskPlace, Runner};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::{Imported, Keyspace, TransferReader, TransferWriter, has_ended};

/// Most time that a store takes to find what it has.
const OPENING: Duration = Duration::from_secs(600);
/// Most time in which an engine stores what it has just computed.
const STORING: Duration = Duration::from_secs(5);
/// Time between two looks at whether it has.
const POLL: Duration = Duration::from_millis(5);

/// The folder of prefixes of an engine, and where its prefixes are in it.
#[derive(Clone)]
pub(crate) struct StoredPrefixes {
    cache: DiskCache,
    place: DiskPlace,
    /// What is below the root, once it was asked for. One caller at a time reads from it.
    keys: Arc<Mutex<Option<Keyspace>>>,
}

impl fmt::Debug for StoredPrefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredPrefixes({:?})", self.cache)
    }
}

/// What was taken out of a folder of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedPrefix {
    /// Tokens of the prompt, from the first on, that the file covers.
    pub tokens: usize,
    /// Bytes of the file.
    pub bytes: u64,
}

/// What is below the root of an engine, while one caller reads from it.
struct OpenPrefixes<'a> {
    prefixes: &'a StoredPrefixes,
    digest: &'a str,
    keys: MutexGuard<'a, Option<Keyspace>>,
}

impl StoredPrefixes {
    /// The prefixes that the engine of `runner` stores in the folder of `cache`.
    ///
    /// # Errors
    /// If the engine has no folder, or its caches cannot be stored; with the reason.
    pub fn of(cache: Option<&DiskCache>, runner: &Runner) -> Result<Self, &'static str> {
        let cache = cache.cloned().ok_or("the engine has no folder of prefixes")?;
        if runner.ranks().are_several() {
            return Err("several ranks share the model, each with its own part of prefixes");
        }
        Ok(Self { cache, place: DiskPlace::of(runner)?, keys: Arc::default() })
    }

    fn open(&self) -> Result<OpenPrefixes<'_>, &'static str> {
        let unknown = "the digest of the weights is not known yet";
        let digest = self.cache.digest.get().ok_or(unknown)?;
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.is_none() {
            let opened = self.place.open(&self.cache.store, digest);
            if !self.cache.store.flush(OPENING) {
                return Err("the folder takes too long to read");
            }
            *keys = Some(opened);
        }
        Ok(OpenPrefixes { prefixes: self, digest, keys })
    }

    /// Writes what is stored of the tokens to a file.
    ///
    /// # Errors
    /// If the prefix is unknown, or a file cannot be written.
    pub fn export(&self, tokens: &[u32], path: &Path) -> Result<ExportedPrefix, Error> {
        let exported = self.open().map_err(Error::Prefixes)?.export(tokens, path);
        exported.map_err(|source| Error::Write { path: path.to_owned(), source })
    }

    /// Waits until all that an engine stores of these tokens is stored, or it takes too long.
    /// Others may read meanwhile.
    fn wait_for(&self, tokens: &[u32]) -> Result<(), &'static str> {
        let parent = self.place.parent();
        let end = Instant::now() + STORING;
        while !self.open()?.keys().has_end(parent, tokens) && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        self.cache.store.flush(end.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

impl OpenPrefixes<'_> {
    fn keys(&self) -> &Keyspace {
        self.keys.as_ref().expect("it is opened with the value")
    }

    fn export(&self, tokens: &[u32], path: &Path) -> io::Result<ExportedPrefix> {
        let place = &self.prefixes.place;
        let mut options = OpenOptions::new();
        // Who may read it can read the prompt.
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let file = BufWriter::new(file);
        let mut out = TransferWriter::new(file, place.root(self.digest), place.about(), tokens)?;
        let tokens = self.keys().export(place.parent(), tokens, &mut out)?;
        Ok(ExportedPrefix { tokens, bytes: out.finish()?.1 })
    }
}

impl PrefixFiles for StoredPrefixes {
    fn save(&self, tokens: &[u32], path: &Path) -> Result<PrefixFile, String> {
        self.wait_for(tokens)?;
        let unfinished = unfinished(path);
        let saved = self.open()?.export(tokens, &unfinished).and_then(|exported| {
            fs::rename(&unfinished, path)?;
            Ok(exported)
        });
        let ExportedPrefix { bytes, .. } = saved.map_err(|error| {
            // What is left is removed when the folder is opened next.
            let _ = fs::remove_file(&unfinished).is_ok();
            error.to_string()
        })?;
        Ok(PrefixFile { tokens: tokens.to_vec(), bytes })
    }

    fn restore(&self, path: &Path) -> Result<PrefixFile, String> {
        let root = self.place.root(self.open()?.digest);
        let file = File::open(path).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let reader = TransferReader::new(BufReader::new(file));
        let mut reader = reader.map_err(|error| error.to_string())?;
        if reader.root() != root {
            return Err("it is of another model or of other settings".to_owned());
        }
        while let Some((header, bytes)) = reader.next_extent().map_err(|error| error.to_string())? {
            let imported = self.cache.store.import(header, bytes);
            if imported.map_err(|error| error.to_string())? == Imported::NoSpace {
                return Err("the cache on disk has no space for it".to_owned());
            }
        }
        let tokens = reader.tokens().to_vec();
        Ok(PrefixFile { tokens, bytes })
    }
}

/// A path beside that of a file, under which it is written.
fn unfinished(path: &Path) -> PathBuf {
    static UNFINISHED: AtomicU64 = AtomicU64::new(0);
    let number = UNFINISHED.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{}-{number}.tmp", std::process::id()))
}

/// The process that writes a file of this name, if it is an unfinished one.
fn writer_of(name: &str) -> Option<i32> {
    let (id, number) = name.strip_prefix('.')?.strip_suffix(".tmp")?.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(number) || !is_number(id) {
        return None;
    }
    id.parse().ok()
}

/// Removes the files of prefixes that processes which ended left unfinished in a folder. To be
/// called before this process writes into it.
///
/// # Errors
///
/// If the folder cannot be read, or a file cannot be removed.
pub fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let writer = entry.file_name().to_str().and_then(writer_of);
        let Some(writer) = writer.filter(|id| *id > 0) else { continue };
        // An earlier process may have had the number of this one.
        let is_own = writer.cast_unsigned() == std::process::id();
        if !is_own && !has_ended(writer) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_that_ended_left_unfinished_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        // The parent is alive.
        let parent = std::os::unix::process::parent_id();
        let live = format!(".{parent}-0.tmp");
        // More than the system's largest id of a process.
        let ended = [".2000000000-7.tmp".to_owned(), format!(".{}-0.tmp", std::process::id())];
        let others = ["slot.bin", ".hidden", ".x-1.tmp", ".5-x.tmp", "2000000000-7.tmp"];
        let kept = others.into_iter().chain([live.as_str()]);
        let all = kept.clone().chain(ended.iter().map(String::as_str));
        all.for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        remove_unfinished(folder.path()).unwrap();
        let left = fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> =
            left.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        let mut kept: Vec<_> = kept.collect();
        left.sort_unstable();
        kept.sort_unstable();
        assert_eq!(left, kept);
        assert!(remove_unfinished(&folder.path().join("none")).is_err());
    }
}
