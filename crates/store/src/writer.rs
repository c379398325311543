//! The thread that writes extents, keeps the folder within its budget, and looks for what other
//! processes wrote.

use crate::buffers::PageBuffer;
use crate::disk::DiskFile;
use crate::folder::list_roots;
use crate::header::{Header, Outline, PAGE, Seal, StoredBlock};
use crate::index::{Extent, ExtentId};
use crate::jobs::{Imported, ToWrite, WriteJob};
use crate::key::StoreKey;
use crate::layout::{ExtentName, Layout};
use crate::reader::{CHUNK, is_page};
use crate::scan::{SeenFolders, read_headers, scan_root};
use crate::shared::{LOCK_FILE, StoreState};
use crate::stats::{Counters, Failure};
use crate::worth::{self, Worth};
use base::Name;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Time between two looks for files of other processes.
const RESCAN: Duration = Duration::from_secs(10);
/// Time without writing after the disk refused to take more.
const PAUSE: Duration = Duration::from_secs(60);
/// Part of the file system that stays free, one in this many bytes, and the most that does.
const KEPT_FREE: u64 = 20;
const MAX_KEPT_FREE: u64 = 2 << 30;
/// Part of the budget that is freed at once: one in this many bytes.
const FREED: u64 = 32;
/// Niceness of the thread: it gets a tenth of a CPU that others use too.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;
/// Name of the folder of unfinished files.
const UNFINISHED: &str = "tmp";

/// Unfinished files get numbers of their own in the whole process.
static UNFINISHED_FILES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct ExtentWriter {
    shared: Arc<StoreState>,
    open: Vec<(Name, Arc<Layout>)>,
    seen: SeenFolders,
    /// Copies of what does not begin with a page.
    pages: PageBuffer,
    /// When files of other processes are looked for next.
    rescan: Instant,
    /// Nothing is written until then.
    paused: Option<Instant>,
    /// When the bytes written so far are paid for, at the allowed rate.
    next_write: Instant,
}

impl ExtentWriter {
    /// A writer of the blocks of `shared` with no extent open.
    ///
    /// # Errors
    /// If there is no memory for a chunk.
    pub fn new(shared: Arc<StoreState>) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            shared,
            open: Vec::new(),
            seen: SeenFolders::new(),
            pages: PageBuffer::zeroed(CHUNK)?,
            rescan: now + RESCAN,
            paused: None,
            next_write: now,
        })
    }

    /// Does jobs until the store is closed.
    pub fn run(mut self) {
        yield_to_others();
        self.remove_unfinished();
        loop {
            match self.shared.writes.pop_before(self.rescan) {
                Some(job) => self.work(job),
                None if self.shared.writes.is_closed() => return,
                None => {}
            }
            if Instant::now() >= self.rescan {
                self.look_for_others();
            }
        }
    }

    fn work(&mut self, job: WriteJob) {
        match job {
            WriteJob::Open { root, layout, ready } => {
                self.scan(root, true);
                read_headers(&self.shared, root, &layout);
                self.open.push((root, layout));
                ready.store(true, Ordering::Release);
            }
            WriteJob::Write { root, layout, mut extent } => {
                self.write(root, &layout, &mut extent);
            }
            WriteJob::Import { header, bytes, done } => {
                // The caller may have stopped waiting.
                let _ = done.send(self.import(*header, bytes)).is_ok();
            }
            WriteJob::Use(extents) => {
                let now = now();
                let used = |extent: &Extent| {
                    let micros = extent.micros().unwrap_or_default();
                    worth::add(extent.worth, worth::of_use(now, micros, extent.bytes))
                };
                self.set_worths(extents.into_iter().rev(), Worth::MIN, used);
            }
            // The caller may have stopped waiting.
            WriteJob::Flush(done) => drop(done.send(())),
        }
    }

    /// Removes what processes that ended had not finished.
    fn remove_unfinished(&self) {
        let folder = self.shared.folder.join(UNFINISHED);
        let entries = self.shared.disk.list(&folder).unwrap_or_default();
        for entry in entries.iter().filter(|entry| is_of_dead_process(&entry.name)) {
            if let Err(error) = self.shared.disk.remove(&folder.join(&entry.name)) {
                tracing::debug!("{}: {error}", entry.name);
            }
        }
    }

    fn look_for_others(&mut self) {
        self.rescan = Instant::now() + RESCAN;
        for (root, layout) in self.open.clone() {
            self.scan(root, false);
            read_headers(&self.shared, root, &layout);
        }
    }

    fn scan(&mut self, root: Name, all: bool) {
        if let Err(error) = scan_root(&self.shared, root, &mut self.seen, all) {
            self.shared.counters.failed(Failure::of(&error));
            tracing::warn!("{}: {error}", self.shared.root_folder(root).display());
        }
    }

    /// Sets the worth of extents, the last of a chain first. Each is worth more than what follows
    /// it, the first more than `least`.
    fn set_worths(
        &self,
        extents: impl Iterator<Item = ExtentId>,
        mut least: Worth,
        worth: impl Fn(&Extent) -> Worth,
    ) {
        for id in extents {
            let known = self.shared.index().get(id).cloned();
            let Some(extent) = known else { continue };
            least = worth(&extent).max(least.saturating_add(1));
            if least != extent.worth {
                self.set_worth(id, &self.shared.path(extent.root, &extent.name), least);
            }
        }
    }

    fn set_worth(&self, id: ExtentId, path: &Path, worth: Worth) {
        match self.shared.disk.set_modified(path, worth) {
            Ok(()) => self.shared.index().set_worth(id, worth),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.shared.index().remove(id);
            }
            // The index stays as the disk is.
            Err(error) => tracing::debug!("{}: {error}", path.display()),
        }
    }

    /// Writes an extent, unless it is there, or the disk cannot take it.
    fn write(&mut self, root: Name, layout: &Layout, extent: &mut ToWrite) {
        let key = self.shared.key.clone();
        let name = extent.name(layout, key.as_ref());
        if self.shared.index().find(root, name).is_some() {
            return;
        }
        self.paused = self.paused.filter(|until| Instant::now() < *until);
        let written = match self.paused {
            Some(_) => Ok(false),
            None => extent
                .sealed_header(root, layout, key.as_ref())
                .and_then(|header| self.write_file(&header, name, &extent.bytes)),
        };
        match written {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => self.failed(&error),
        }
        let blocks = extent.blocks.len() as u64;
        Counters::add(&self.shared.counters.dropped_writes, blocks);
    }

    /// Stores an extent that comes from another folder.
    fn import(&mut self, mut header: Header, mut bytes: Vec<u8>) -> io::Result<Imported> {
        let key = self.shared.key.clone();
        let outline = &mut header.outline;
        outline.root = self.shared.hidden(outline.root);
        outline.seal = key.as_ref().map(Seal::new).transpose()?;
        outline.checksums.clear();
        let name = header.name(key.as_ref());
        // The index knows what is below roots that are open only.
        let path = self.shared.path(header.outline.root, &name);
        match self.shared.disk.open_cached(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found.map(|_| Imported::Present),
        }
        header.protect(&mut bytes, key.as_ref());
        match self.write_file(&header, name, &bytes)? {
            true => Ok(Imported::Written),
            false => Ok(Imported::NoSpace),
        }
    }

    fn failed(&mut self, error: &io::Error) {
        let failure = Failure::of(error);
        self.shared.counters.failed(failure);
        let folder = self.shared.folder.display();
        if failure == Failure::NoSpace {
            tracing::warn!("{folder}: {error}; nothing is stored for {} s", PAUSE.as_secs());
            self.paused = Some(Instant::now() + PAUSE);
        } else {
            tracing::warn!("{folder}: {error}");
        }
    }

    /// Writes an extent within the budget; returns whether there was space.
    fn write_file(
        &mut self,
        header: &Header,
        name: ExtentName,
        content: &[u8],
    ) -> io::Result<bool> {
        let Outline { root, kind, micros, .. } = header.outline;
        let bytes = header.outline.file_bytes();
        let chain = self.shared.index().chain(root, kind, &name.layers(), header.parent);
        let Some((unfinished, file)) = self.reserve(bytes, &chain)? else {
            return Ok(false);
        };
        self.wait_for_rate(bytes);
        let path = self.shared.path(root, &name);
        let written = self.fill(file, header, content).and_then(|()| {
            let folder = path.parent().expect("extents are in folders");
            self.shared.disk.create_folder(folder)?;
            let now = now();
            let worth = worth::of_use(now, micros, bytes);
            self.shared.disk.set_modified(&unfinished, worth)?;
            self.shared.disk.rename(&unfinished, &path)?;
            Ok(worth)
        });
        let worth = written.inspect_err(|_| {
            // What is left is removed at the next start.
            let _ = self.shared.disk.remove(&unfinished).is_ok();
        })?;
        Counters::add(&self.shared.counters.written_bytes, bytes);
        let mut index = self.shared.index();
        let id = index.insert(root, name, bytes, worth);
        index.add_header(id, header);
        drop(index);
        self.set_worths(chain.into_iter(), worth, |extent| extent.worth);
        Ok(true)
    }

    /// Waits until as many bytes may be written, or the store is closed.
    fn wait_for_rate(&mut self, bytes: u64) {
        let Some(rate) = std::num::NonZero::new(self.shared.write_rate) else { return };
        let now = Instant::now();
        self.next_write = self.next_write.max(now);
        if let Some(wait) = self.next_write.checked_duration_since(now) {
            self.shared.writes.sleep(wait);
        }
        self.next_write += Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
    }

    /// Creates an unfinished file of this length, after evicting as much as that takes, but nothing
    /// of `kept`. Returns `None` where it does not fit.
    fn reserve(
        &mut self,
        bytes: u64,
        kept: &[ExtentId],
    ) -> io::Result<Option<(PathBuf, Box<dyn DiskFile>)>> {
        let folder = self.shared.folder.join(UNFINISHED);
        self.shared.disk.create_folder(&folder)?;
        let shared = Arc::clone(&self.shared);
        let mut lock = shared.disk.lock(&shared.folder.join(LOCK_FILE))?;
        let mut used = lock.number()?;
        let (free, total) = shared.disk.space(&shared.folder)?;
        let kept_free = (total / KEPT_FREE).min(MAX_KEPT_FREE);
        let enough = free.checked_sub(bytes).is_some_and(|free| free >= kept_free);
        if !enough || used == 0 || used.saturating_add(bytes) > shared.max_bytes {
            used = self.bytes_of_all(&folder)?;
            let needed = (kept_free + bytes).saturating_sub(free);
            used = self.evict(used, bytes, needed, kept);
            lock.set_number(used)?;
            if shared.disk.space(&folder)?.0 < kept_free + bytes {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if used.saturating_add(bytes) > shared.max_bytes {
                return Ok(None);
            }
        }
        let number = UNFINISHED_FILES.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}", std::process::id()));
        let file = shared.disk.create(&path, bytes)?;
        lock.set_number(used.saturating_add(bytes))?;
        Ok(Some((path, file)))
    }

    /// Bytes of all extents and unfinished files, as they are on disk.
    fn bytes_of_all(&mut self, unfinished: &Path) -> io::Result<u64> {
        self.remove_unfinished();
        // In this order, files that are finished in the meantime count twice, and not never.
        let unfinished = self.shared.disk.list(unfinished)?;
        let mut bytes: u64 = unfinished.iter().map(|entry| entry.bytes).sum();
        for root in list_roots(&*self.shared.disk, &self.shared.folder)? {
            bytes += scan_root(&self.shared, root, &mut self.seen, true)?;
        }
        Ok(bytes)
    }

    /// Evicts extents until `bytes` more fit into the budget and `needed` bytes are freed, and some
    /// more, so that not every file has to look at all others. Returns the bytes that are left.
    fn evict(&self, mut used: u64, bytes: u64, needed: u64, kept: &[ExtentId]) -> u64 {
        let max = self.shared.max_bytes;
        if bytes > max {
            return used;
        }
        let is_over = used.saturating_add(bytes) > max;
        let goal = if is_over { (max - max / FREED).saturating_sub(bytes) } else { used };
        let goal = goal.min(used.saturating_sub(needed));
        let kept: HashSet<ExtentId> = kept.iter().copied().collect();
        while used > goal {
            let mut index = self.shared.index();
            let Some(extent) = index.least(&kept).and_then(|id| index.remove(id)) else { break };
            drop(index);
            let path = self.shared.path(extent.root, &extent.name);
            match self.shared.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("{}: {error}", path.display());
                    continue;
                }
                _ => Counters::add(&self.shared.counters.evictions, 1),
            }
            used = used.saturating_sub(extent.bytes);
        }
        used
    }

    /// Writes the header and the blocks, each from a page on.
    fn fill(
        &mut self,
        mut file: Box<dyn DiskFile>,
        header: &Header,
        content: &[u8],
    ) -> io::Result<()> {
        let encoded = header.encode(self.shared.key.as_ref());
        let (own, count) = (header.outline.block_bytes() as usize, header.blocks.len());
        let is_direct = own.is_multiple_of(PAGE) && is_page(content);
        let copied = content.chunks(own.max(1)).take(if is_direct { 0 } else { count });
        let mut offset = self.copy_out(&mut *file, std::iter::once(&encoded[..]).chain(copied))?;
        let direct = if is_direct { &content[..own * count] } else { &[] };
        for chunk in direct.chunks(CHUNK) {
            file.write(chunk, offset)?;
            offset += CHUNK as u64;
        }
        Ok(())
    }

    /// Writes parts from the beginning of a file on, each padded to whole pages; returns the offset
    /// behind them.
    fn copy_out<'a>(
        &mut self,
        file: &mut dyn DiskFile,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<u64> {
        let (mut filled, mut offset) = (0, 0);
        for mut part in parts {
            while !part.is_empty() {
                let count = part.len().min(CHUNK - filled);
                let (now, rest) = part.split_at(count);
                let padded = (filled + count).next_multiple_of(PAGE);
                let to = &mut self.pages[filled..padded];
                to[..count].copy_from_slice(now);
                to[count..].fill(0);
                (part, filled) = (rest, padded);
                if filled == CHUNK {
                    file.write(&self.pages[..CHUNK], offset)?;
                    offset += CHUNK as u64;
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            file.write(&self.pages[..filled], offset)?;
        }
        Ok(offset + filled as u64)
    }
}

impl ToWrite {
    /// The name of the extent's file.
    fn name(&self, layout: &Layout, key: Option<&StoreKey>) -> ExtentName {
        let last = self.blocks.last().expect("an extent has a block").0;
        let last = key.map_or(last, |key| key.hide(last));
        let (first_layer, layers) = (layout.layers.start as u32, layout.layers.len() as u32);
        ExtentName { last, kind: self.kind as u32, first_layer, layers }
    }

    /// The header of the extent, with the checksums of its bytes, which are encrypted if there is a
    /// key.
    fn sealed_header(
        &mut self,
        root: Name,
        layout: &Layout,
        key: Option<&StoreKey>,
    ) -> io::Result<Header> {
        let kind = &layout.kinds[self.kind];
        let seal = key.map(Seal::new).transpose()?;
        let blocks = self.blocks.iter();
        let blocks =
            blocks.map(|(name, tokens)| StoredBlock { name: *name, tokens: tokens.clone() });
        let outline = Outline {
            root,
            depth: self.depth,
            blocks: self.blocks.len(),
            positions: self.blocks[0].1.len(),
            is_state: kind.is_state,
            kind: self.kind as u32,
            first_layer: layout.layers.start as u32,
            layer_bytes: kind.layer_bytes[layout.layers.clone()].to_vec(),
            created: (now().max(0) / 1_000_000_000) as u64,
            micros: self.micros,
            checksums: Vec::new(),
            seal,
        };
        let mut header = Header { outline, parent: self.parent, blocks: blocks.collect() };
        header.protect(&mut self.bytes, key);
        Ok(header)
    }
}

/// Lowers the priority of this thread: computing goes before storing.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        let thread = rustix::thread::gettid();
        if let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS) {
            tracing::debug!("the priority of the writer stays: {error}");
        }
    }
}

/// Nanoseconds since the Unix epoch.
fn now() -> i64 {
    crate::disk::nanos(SystemTime::now())
}

/// Whether the name of an unfinished file names a process that has ended.
fn is_of_dead_process(name: &str) -> bool {
    let id = name.split_once('-').and_then(|(id, _)| id.parse().ok());
    id.is_none_or(has_ended)
}

/// Whether there is no process of this number.
pub fn has_ended(process: i32) -> bool {
    let process = rustix::process::Pid::from_raw(process);
    process.is_none_or(|id| rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH))
}
