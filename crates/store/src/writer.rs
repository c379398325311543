//! The thread that writes extents, keeps the folder within its budget, and looks for what other
//! processes wrote.

use crate::disk::DiskFile;
use crate::folder::list_roots;
use crate::header::{Header, PAGE, StoredBlock};
use crate::index::{Extent, ExtentId};
use crate::jobs::{ToWrite, WriteJob};
use crate::layout::{ExtentName, Layout};
use crate::reader::{CHUNK, Pages};
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
const MOST_KEPT_FREE: u64 = 2 << 30;
/// Part of the budget that is freed at once: one in this many bytes.
const FREED: u64 = 32;
/// Name of the folder of unfinished files.
const UNFINISHED: &str = "tmp";

/// Unfinished files get numbers of their own in the whole process.
static UNFINISHED_FILES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct ExtentWriter {
    shared: Arc<StoreState>,
    open: Vec<(Name, Arc<Layout>)>,
    seen: SeenFolders,
    pages: Pages,
    /// When files of other processes are looked for next.
    rescan: Instant,
    /// Nothing is written until then.
    paused: Option<Instant>,
    /// When the bytes written so far are paid for, at the allowed rate.
    next_write: Instant,
}

impl ExtentWriter {
    pub fn new(shared: Arc<StoreState>) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            shared,
            open: Vec::new(),
            seen: SeenFolders::new(),
            pages: Pages::new()?,
            rescan: now + RESCAN,
            paused: None,
            next_write: now,
        })
    }

    /// Does jobs until the store is closed.
    pub fn run(mut self) {
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
            WriteJob::Write { root, layout, extent } => {
                self.write(root, &layout, &extent);
                self.shared.buffers.give_back(extent.bytes);
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
    fn write(&mut self, root: Name, layout: &Layout, extent: &ToWrite) {
        if self.shared.index().find(root, extent.name(layout)).is_some() {
            return;
        }
        self.paused = self.paused.filter(|until| Instant::now() < *until);
        let written = match self.paused {
            Some(_) => Ok(false),
            None => self.write_file(&extent.header(root, layout), layout, extent),
        };
        match written {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => self.failed(&error),
        }
        Counters::add(&self.shared.counters.dropped_writes, 1);
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
        layout: &Layout,
        extent: &ToWrite,
    ) -> io::Result<bool> {
        self.wait_for_rate(header.file_bytes());
        let chain =
            self.shared.index().chain(header.root, header.kind, &layout.layers, header.parent);
        let Some((unfinished, file)) = self.reserve(header.file_bytes(), &chain)? else {
            return Ok(false);
        };
        let path = self.shared.path(header.root, &header.name());
        let written = self.fill(file, header, extent).and_then(|()| {
            let folder = path.parent().expect("extents are in folders");
            self.shared.disk.create_folder(folder)?;
            let now = now();
            let worth = worth::of_use(now, header.micros, header.file_bytes());
            self.shared.disk.set_modified(&unfinished, worth)?;
            self.shared.disk.rename(&unfinished, &path)?;
            Ok(worth)
        });
        let worth = written.inspect_err(|_| {
            // What is left is removed at the next start.
            let _ = self.shared.disk.remove(&unfinished).is_ok();
        })?;
        let bytes = header.file_bytes();
        Counters::add(&self.shared.counters.written_bytes, bytes);
        let mut index = self.shared.index();
        let id = index.insert(header.root, header.name(), bytes, worth);
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
        let kept_free = (total / KEPT_FREE).min(MOST_KEPT_FREE);
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
        extent: &ToWrite,
    ) -> io::Result<()> {
        let encoded = header.encode();
        let own = header.block_bytes() as usize;
        let blocks = extent.bytes.chunks(own.max(1)).take(header.blocks.len());
        let parts = std::iter::once(&encoded[..]).chain(blocks);
        // Pages are filled part by part, each padded to whole pages, and written when full.
        let (mut filled, mut offset) = (0, 0);
        for mut part in parts {
            while !part.is_empty() {
                let count = part.len().min(CHUNK - filled);
                let (now, rest) = part.split_at(count);
                let padded = (filled + count).next_multiple_of(PAGE);
                let to = &mut self.pages.get(padded)[filled..];
                to[..count].copy_from_slice(now);
                to[count..].fill(0);
                (part, filled) = (rest, padded);
                if filled == CHUNK {
                    file.write(self.pages.get(CHUNK), offset)?;
                    offset += CHUNK as u64;
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            file.write(self.pages.get(filled), offset)?;
        }
        Ok(())
    }
}

impl ToWrite {
    /// The name of the extent's file.
    fn name(&self, layout: &Layout) -> ExtentName {
        let last = self.blocks.last().expect("an extent has a block").0;
        let (first_layer, layers) = (layout.layers.start as u32, layout.layers.len() as u32);
        ExtentName { last, kind: self.kind as u32, first_layer, layers }
    }

    /// The header of the extent, with the checksums of its bytes.
    fn header(&self, root: Name, layout: &Layout) -> Header {
        let kind = &layout.kinds[self.kind];
        let layer_bytes = kind.layer_bytes[layout.layers.clone()].to_vec();
        let mut rest = &self.bytes[..];
        let mut checksum = |bytes: &u64| {
            let (layer, behind) = rest.split_at(*bytes as usize);
            rest = behind;
            crc32c::crc32c(layer)
        };
        let blocks = self.blocks.iter().map(|(name, tokens)| StoredBlock {
            name: *name,
            tokens: tokens.clone(),
            checksums: layer_bytes.iter().map(&mut checksum).collect(),
        });
        Header {
            blocks: blocks.collect(),
            root,
            parent: self.parent,
            depth: self.depth,
            is_state: kind.is_state,
            kind: self.kind as u32,
            first_layer: layout.layers.start as u32,
            layer_bytes,
            created: (now().max(0) / 1_000_000_000) as u64,
            micros: self.micros,
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
    let process = id.and_then(rustix::process::Pid::from_raw);
    process.is_none_or(|id| rustix::process::test_kill_process(id) == Err(rustix::io::Errno::SRCH))
}
