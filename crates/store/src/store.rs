//! A folder of extents, and what the engine does with it.

use crate::buffers::{Buffers, PageBuffer};
use crate::disk::{Disk, Files};
use crate::index::ExtentId;
use crate::jobs::{Arrival, ReadJob, Run, ToWrite, WriteJob};
use crate::key::StoreKey;
use crate::layout::Layout;
use crate::queue::Queue;
use crate::reader::{self, CHUNK};
use crate::shared::{ABOUT_FILE, LOCK_FILE, StoreState};
use crate::stats::{Counters, StoreStats};
use crate::writer::ExtentWriter;
use base::Name;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that read.
const READERS: usize = 4;
/// Bytes of buffers for what is written, and for what is read.
const MAX_BUFFERED: usize = 64 << 20;
/// First line of the file that tells the format of a folder.
const FORMAT: &str = "gannet kv 1";
/// Name of that file.
const FORMAT_FILE: &str = "format";

/// How a store is opened.
pub struct StoreOptions {
    /// The folder, which is created where there is none.
    pub folder: PathBuf,
    /// Most bytes of all extents.
    pub max_bytes: u64,
    /// Most bytes written each second; 0 for no limit.
    pub write_rate: u64,
    /// The key under which extents are sealed; `None` to store them as they are.
    pub key: Option<StoreKey>,
    /// The file system.
    pub disk: Arc<dyn Disk>,
}

impl StoreOptions {
    /// A folder of this machine, without limits.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let disk = Arc::new(Files);
        Self { folder: folder.into(), max_bytes: u64::MAX, write_rate: 0, key: None, disk }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder cannot be used.
    #[error("{folder}: {source}")]
    Io {
        /// The folder.
        folder: String,
        /// The system's error.
        source: io::Error,
    },
    /// The folder holds something else, or extents of another version.
    #[error("{folder}: expected {FORMAT:?} in the file {FORMAT_FILE}, found {found:?}")]
    Format {
        /// The folder.
        folder: String,
        /// What the file begins with.
        found: String,
    },
}

/// A folder of extents, with its index and threads. Dropping it ends the threads: what is not
/// written by then is not stored.
pub struct Store {
    pub(crate) shared: Arc<StoreState>,
    threads: Vec<JoinHandle<()>>,
}

impl Store {
    /// Opens a folder, or makes one.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or holds something else.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let StoreOptions { folder, max_bytes, write_rate, key, disk } = options;
        let shown = folder.display().to_string();
        let failed = |source| StoreError::Io { folder: shown.clone(), source };
        disk.create_folder(&folder).map_err(failed)?;
        let lock = disk.lock(&folder.join(LOCK_FILE)).map_err(failed)?;
        let other = other_format(&*disk, &folder).map_err(failed)?;
        drop(lock);
        if let Some(found) = other {
            return Err(StoreError::Format { folder: shown, found });
        }
        let shared = Arc::new(StoreState {
            disk,
            folder,
            key,
            max_bytes,
            write_rate,
            locked_index: Mutex::default(),
            counters: Counters::default(),
            reads: Queue::default(),
            writes: Queue::default(),
            outgoing: Arc::new(Buffers::new(MAX_BUFFERED)),
            incoming: Arc::new(Buffers::new(MAX_BUFFERED)),
            read_rate: AtomicU64::new(0),
        });
        let writer = ExtentWriter::new(Arc::clone(&shared)).map_err(failed)?;
        let mut store = Self { shared, threads: Vec::new() };
        store.spawn("gannet-store", move |_| writer.run()).map_err(failed)?;
        for _ in 0..READERS {
            store.spawn("gannet-read", |shared| reader::run(&shared)).map_err(failed)?;
        }
        Ok(store)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(Arc<StoreState>) + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(move || run(shared))?);
        Ok(())
    }

    /// Opens what lies below a root, and begins to look for its extents. `about` describes the root
    /// as JSON to people who list the folder. The key of the store is part of the root on disk.
    pub fn keyspace(&self, root: Name, layout: Layout, about: &str) -> Keyspace {
        let shared = Arc::clone(&self.shared);
        let root = shared.hidden(root);
        let (layout, ready) = (Arc::new(layout), Arc::new(AtomicBool::new(false)));
        if let Err(error) = describe(&shared, root, about) {
            tracing::warn!("{}: {error}", shared.root_folder(root).display());
        }
        let job = WriteJob::Open { root, layout: Arc::clone(&layout), ready: Arc::clone(&ready) };
        let _ = shared.writes.push(job).is_ok();
        let (sender, receiver) = mpsc::channel();
        Keyspace { shared, root, layout, ready, sender, receiver }
    }

    /// Waits until what was handed over is written, at most for this long. Returns whether it is.
    pub fn flush(&self, most: Duration) -> bool {
        let (sender, receiver) = mpsc::channel();
        let pushed = self.shared.writes.push(WriteJob::Flush(sender)).is_ok();
        pushed && receiver.recv_timeout(most).is_ok()
    }

    /// Counts since the start, and sizes now.
    pub fn stats(&self) -> StoreStats {
        let index = self.shared.index();
        self.shared.counters.stats(index.bytes(), index.blocks())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.reads.close();
        self.shared.writes.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join().is_ok();
        }
    }
}

/// Writes the description of a root, unless there is one.
pub(crate) fn describe(shared: &StoreState, root: Name, about: &str) -> io::Result<()> {
    let folder = shared.root_folder(root);
    shared.disk.create_folder(&folder)?;
    write_small(&*shared.disk, &folder.join(ABOUT_FILE), about)
}

/// Writes a small file, unless there is one.
fn write_small(disk: &dyn Disk, path: &std::path::Path, text: &str) -> io::Result<()> {
    match disk.write_text(path, text) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// What the folder's format file says, if not the format of this version.
fn other_format(disk: &dyn Disk, folder: &std::path::Path) -> io::Result<Option<String>> {
    let path = folder.join(FORMAT_FILE);
    write_small(disk, &path, &format!("{FORMAT}\n"))?;
    let file = disk.open_cached(&path)?;
    let mut found = vec![0; file.length()?.min(64) as usize];
    file.read(&mut found, 0)?;
    let found = String::from_utf8_lossy(&found);
    let found = found.lines().next().unwrap_or_default();
    Ok((found != FORMAT).then(|| found.to_owned()))
}

/// Extents that are not evicted here.
pub struct HeldRuns {
    shared: Arc<StoreState>,
    extents: Vec<ExtentId>,
}

impl Drop for HeldRuns {
    fn drop(&mut self) {
        let mut index = self.shared.index();
        self.extents.iter().for_each(|&extent| index.unpin(extent));
    }
}

/// What lies below a root: all blocks and states that were computed with the same bits.
pub struct Keyspace {
    shared: Arc<StoreState>,
    root: Name,
    layout: Arc<Layout>,
    ready: Arc<AtomicBool>,
    sender: mpsc::Sender<Arrival>,
    receiver: mpsc::Receiver<Arrival>,
}

impl Keyspace {
    /// Whether all extents that the folder had at the start are found by now.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// What the blocks consist of.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Blocks of a kind that an extent should have.
    pub fn blocks_of_extent(&self, kind: usize) -> usize {
        let bytes = self.layout.block_bytes(kind).max(1);
        if self.layout.kinds[kind].is_state {
            return 1;
        }
        (CHUNK / bytes).clamp(1, crate::header::MAX_BLOCKS)
    }

    /// Whether a block is stored.
    pub fn has(&self, kind: usize, name: Name) -> bool {
        let index = self.shared.index();
        index.locate(self.root, kind as u32, &self.layout.layers, name).is_some()
    }

    /// Whether an extent of a kind follows a block.
    pub fn is_followed(&self, kind: usize, name: Name) -> bool {
        self.shared.index().is_followed(self.root, kind as u32, name)
    }

    /// Finds blocks that follow each other, as far as they are stored from the first on.
    pub fn find(&self, kind: usize, names: impl Iterator<Item = Name>) -> Vec<Run> {
        let index = self.shared.index();
        let layers = &self.layout.layers;
        let mut runs: Vec<Run> = Vec::new();
        for pieces in names.map_while(|name| index.locate(self.root, kind as u32, layers, name)) {
            match runs.last_mut() {
                Some(run) if run.is_followed_by(&pieces) => run.blocks += 1,
                _ => runs.push(Run { kind, blocks: 1, pieces }),
            }
        }
        runs
    }

    /// Forgets extents that hold any of these blocks, whose files stay: blocks that are of no use
    /// here because another process lacks its part of them. They are found again once they are
    /// stored again.
    pub fn forget(&self, kind: usize, names: impl Iterator<Item = Name>) {
        let mut index = self.shared.index();
        for name in names {
            let pieces = index.locate(self.root, kind as u32, &self.layout.layers, name);
            for piece in pieces.into_iter().flatten() {
                index.remove(piece.extent);
            }
        }
    }

    /// Keeps extents of runs from being evicted here, until the value is dropped.
    pub fn hold(&self, runs: &[Run]) -> HeldRuns {
        let extents: Vec<_> =
            runs.iter().flat_map(|run| &run.pieces).map(|piece| piece.extent).collect();
        let mut index = self.shared.index();
        extents.iter().for_each(|&extent| index.pin(extent));
        drop(index);
        HeldRuns { shared: Arc::clone(&self.shared), extents }
    }

    /// Counts a sequence that was looked for, and whether something of it is read.
    pub fn count_query(&self, is_hit: bool) {
        Counters::add(&self.shared.counters.queries, 1);
        Counters::add(&self.shared.counters.hits, u64::from(is_hit));
    }

    /// Counts blocks that were to be stored, and could not be.
    pub fn count_dropped(&self, blocks: usize) {
        Counters::add(&self.shared.counters.dropped_writes, blocks as u64);
    }

    /// Begins to read a run, whose blocks have these tokens, one block after the other. It arrives
    /// under the ticket, valid or not.
    pub fn read(&self, ticket: u64, run: Run, tokens: Vec<u32>) {
        let mut index = self.shared.index();
        run.pieces.iter().for_each(|piece| index.pin(piece.extent));
        drop(index);
        let (root, layout) = (self.root, Arc::clone(&self.layout));
        let arrivals = self.sender.clone();
        let job = ReadJob { ticket, run, tokens, root, layout, arrivals };
        if let Err(ReadJob { ticket, .. }) = self.shared.reads.push(job) {
            let _ = self
                .sender
                .send(Arrival { ticket, blocks: 0, bytes: PageBuffer::default() })
                .is_ok();
        }
    }

    /// The next run that was read, if there is one by now.
    pub fn arrived(&self) -> Option<Arrival> {
        self.receiver.try_recv().ok()
    }

    /// Waits for the next run that was read.
    pub fn wait(&self, most: Duration) -> Option<Arrival> {
        self.receiver.recv_timeout(most).ok()
    }

    /// An empty buffer with space for `bytes` bytes; `None` while too many are in use.
    pub fn buffer(&self, bytes: usize) -> Option<PageBuffer> {
        self.shared.outgoing.take(bytes)
    }

    /// Hands an extent over to be written. It is found once it is.
    ///
    /// # Panics
    ///
    /// If the numbers of blocks, tokens and bytes contradict each other.
    pub fn write(&self, extent: ToWrite) {
        let bytes = extent.blocks.len() * self.layout.block_bytes(extent.kind);
        let most =
            if self.layout.kinds[extent.kind].is_state { 1 } else { crate::header::MAX_BLOCKS };
        assert!((1..=most).contains(&extent.blocks.len()), "{} blocks", extent.blocks.len());
        assert_eq!(extent.bytes.len(), bytes, "bytes of {} blocks", extent.blocks.len());
        let (root, layout) = (self.root, Arc::clone(&self.layout));
        let _ = self.shared.writes.push(WriteJob::Write { root, layout, extent }).is_ok();
    }

    /// Counts a use of runs that follow each other.
    pub fn count_use(&self, runs: &[Run]) {
        let mut extents: Vec<_> =
            runs.iter().flat_map(|run| &run.pieces).map(|piece| piece.extent).collect();
        extents.dedup();
        let _ = self.shared.writes.push(WriteJob::Use(extents)).is_ok();
    }

    /// Microseconds that it took to compute the blocks of a run.
    pub(crate) fn micros(&self, run: &Run) -> u64 {
        let index = self.shared.index();
        let extents = run.pieces.iter().filter_map(|piece| index.get(piece.extent));
        let of_block = extents.filter_map(|extent| Some(extent.micros()? / extent.blocks()?));
        of_block.sum::<u64>().saturating_mul(run.blocks as u64)
    }

    /// Bytes read each second, as measured lately; `None` before the first.
    pub fn read_rate(&self) -> Option<u64> {
        Some(self.shared.read_rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }
}
