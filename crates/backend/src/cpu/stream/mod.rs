//! Experts that are not all in memory. Each is read from its file into a *slot* when rows choose
//! it, and stays until its slot is needed for a hotter one.
//!
//! A slot is memory that moves: while it is read, it belongs to the job of a reader thread; then
//! products read it. Nothing is shared while it is written, and after the start nothing is
//! allocated.
//!
//! Invariant: a slot holds the bytes that the same matrices have in memory, so that which experts
//! are in memory, and when they arrive, decides time only.

mod entry;
mod heat;
#[cfg(test)]
mod tests;

pub(super) use entry::{Entry, EntryPart, Packing, PartFile};

use crate::{Error, SlotClass, StreamStats, memory};
use base::{DirectFile, PageVec, ReadPool, Urgency};
use entry::FillJob;
use heat::Heat;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where an expert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    OnDisk,
    /// Being read into a slot.
    Reading(usize),
    /// In a slot.
    In(usize),
}

/// An expert that is read when it is needed.
struct Streamed {
    entry: Arc<Entry>,
    class: usize,
    place: Place,
    heat: Heat,
}

/// Memory for one expert.
#[derive(Default)]
struct ExpertSlot {
    /// Empty while it is read.
    memory: PageVec,
    /// Number of the expert that it holds, or that is read into it.
    expert: Option<usize>,
    /// Where the matrices are.
    places: Vec<Range<usize>>,
    /// Products of the current layer need it.
    pinned: bool,
    /// The memory is locked, so that the system does not swap it out.
    locked: bool,
}

/// All streamed experts of a model, and their slots.
#[derive(Default)]
pub(super) struct ExpertStream {
    experts: Vec<Streamed>,
    /// Numbers of the slots of each size.
    classes: Vec<Range<usize>>,
    slots: Vec<ExpertSlot>,
    pool: Option<ReadPool<FillJob>>,
    /// Steps in which sequences were decoded.
    step: u64,
    stats: StreamStats,
    /// The first read that failed since the step began.
    failed: Option<(usize, io::Error)>,
    /// The rows that chose experts that could not be read.
    failed_rows: Vec<u32>,
    files: HashMap<PathBuf, Arc<dyn PartFile>>,
    /// When the files were last looked at.
    looked: Option<Instant>,
    /// A file that is not the one that was opened.
    changed: Option<PathBuf>,
    /// Whether slots are locked in memory when they are first filled.
    locks: bool,
    /// Bytes of the scratch memory of all threads.
    scratch: usize,
}

/// Most reader threads.
const MAX_THREADS: usize = 256;
/// Time after which files are looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Bytes of (size, number) of slots.
fn total(sizes: &[(usize, usize)]) -> usize {
    sizes.iter().map(|(size, count)| size * count).sum()
}

impl ExpertStream {
    /// A file to read experts from, which is opened once.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&mut self, path: &Path) -> io::Result<Arc<dyn PartFile>> {
        if let Some(file) = self.files.get(path) {
            return Ok(Arc::clone(file));
        }
        let file: Arc<dyn PartFile> = Arc::new(DirectFile::open(path)?);
        self.files.insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    /// Adds an expert and returns its number.
    pub fn add(&mut self, parts: Vec<EntryPart>) -> usize {
        let (entry, heat) = (Arc::new(Entry::new(parts)), Heat::default());
        self.experts.push(Streamed { entry, class: 0, place: Place::OnDisk, heat });
        self.experts.len() - 1
    }

    /// Whether there are experts.
    pub fn is_empty(&self) -> bool {
        self.experts.is_empty()
    }

    /// Makes slots, and starts reader threads, of at most `bytes` bytes together. `least` is the
    /// number of experts that a row chooses in a layer.
    ///
    /// # Errors
    /// If fewer slots than that fit, or the system gives no memory or threads.
    pub fn start(&mut self, bytes: usize, threads: usize, least: usize) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let threads = threads.clamp(1, MAX_THREADS);
        let sizes = self.make_classes();
        let scratch = self.experts.iter().map(|expert| expert.entry.scratch()).max().unwrap_or(0);
        let (all, left) = (total(&sizes), bytes.saturating_sub(threads * scratch));
        (self.scratch, self.locks) = (threads * scratch, memory::swaps());
        self.slots.clear();
        self.classes.clear();
        for &(size, count) in &sizes {
            // In proportion to what there is of each size; all of them where they fit.
            let share = (left as u128 * (size * count) as u128 / all as u128) as usize;
            let slots = (share / size).min(count);
            if slots < least.min(count) {
                let fewest: Vec<_> = sizes.iter().map(|it| (it.0, least.min(it.1))).collect();
                let needed = total(&fewest) + threads * scratch;
                return Err(Error::WeightsMemory { needed, found: bytes });
            }
            let first = self.slots.len();
            for _ in 0..slots {
                let refused = |_| base::OutOfMemory { bytes: (size * slots) as u128 };
                let memory = PageVec::zeroed(size).map_err(refused)?;
                self.slots.push(ExpertSlot { memory, ..ExpertSlot::default() });
            }
            self.classes.push(first..self.slots.len());
        }
        self.stats.slots = self.slots.len();
        self.stats.expert_bytes = all;
        self.stats.slot_bytes = self.slots.iter().map(|slot| slot.memory.len()).sum();
        let pool = ReadPool::new(threads, self.slots.len());
        self.pool = Some(pool.map_err(|source| Error::Threads { threads, source })?);
        Ok(())
    }

    /// Sorts experts into classes by their size, and returns the size and number of each.
    fn make_classes(&mut self) -> Vec<(usize, usize)> {
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for expert in &mut self.experts {
            let space = expert.entry.space();
            expert.class = match sizes.iter().position(|(size, _)| *size == space) {
                Some(class) => class,
                None => {
                    sizes.push((space, 0));
                    sizes.len() - 1
                }
            };
            sizes[expert.class].1 += 1;
        }
        sizes
    }

    /// How many experts beginning with `first` can be in memory at once.
    pub fn capacity(&self, first: usize) -> usize {
        self.classes.get(self.experts[first].class).map_or(0, Range::len)
    }

    /// The slots of each size.
    pub fn slot_classes(&self) -> Vec<SlotClass> {
        let class = |(number, slots): (usize, &Range<usize>)| {
            let experts = self.experts.iter().filter(|expert| expert.class == number);
            let bytes = self.slots.get(slots.start).map_or(0, |slot| slot.memory.len());
            SlotClass { bytes, experts: experts.count(), slots: slots.len() }
        };
        self.classes.iter().enumerate().map(class).collect()
    }

    /// Bytes that reader threads use beside slots.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    /// Bytes that are read for an expert.
    pub fn file_bytes(&self, expert: usize) -> usize {
        self.experts[expert].entry.file_bytes()
    }

    /// Begins a step, which is counted where it decodes. Once in a while, looks whether files
    /// have changed.
    pub fn begin_step(&mut self, decodes: bool) {
        self.step += u64::from(decodes);
        if self.is_empty() || self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let changed = self.files.values().find(|file| file.has_changed());
        self.changed = changed.map(|file| file.path().to_owned());
    }

    /// Notes that `rows` decoded rows have chosen an expert.
    pub fn heat(&mut self, expert: usize, rows: usize) {
        self.experts[expert].heat.add(rows, self.step);
    }

    /// Pins experts, no more than their capacity, and starts to read the ones that are missing.
    pub fn request(&mut self, experts: impl Iterator<Item = usize> + Clone) {
        self.take_finished();
        for expert in experts.clone() {
            match self.experts[expert].place {
                Place::In(slot) => {
                    self.slots[slot].pinned = true;
                    self.stats.hits += 1;
                }
                Place::Reading(slot) => {
                    self.slots[slot].pinned = true;
                    self.stats.misses += 1;
                    if let Some(pool) = &self.pool {
                        pool.hasten(|job| job.number == expert);
                    }
                }
                Place::OnDisk => self.stats.misses += 1,
            }
        }
        for expert in experts {
            if self.experts[expert].place == Place::OnDisk {
                let slot = self.free_slot(self.experts[expert].class);
                self.read(expert, slot, Urgency::Now);
            }
        }
    }

    /// An empty slot of a class: one without an expert, or that of the coldest that is not pinned.
    fn free_slot(&mut self, class: usize) -> usize {
        loop {
            let all = self.classes[class].clone();
            let free =
                |&slot: &usize| !self.slots[slot].pinned && !self.slots[slot].memory.is_empty();
            let heat =
                |&slot: &usize| self.slots[slot].expert.map(|expert| self.experts[expert].heat);
            if let Some(slot) = all.filter(free).min_by(|a, b| Heat::order(heat(a), heat(b))) {
                if let Some(expert) = self.slots[slot].expert.take() {
                    self.experts[expert].place = Place::OnDisk;
                    self.stats.evictions += 1;
                }
                return slot;
            }
            // Others are being read that nothing needs now.
            self.wait();
        }
    }

    fn read(&mut self, number: usize, slot: usize, urgency: Urgency) {
        let entry = Arc::clone(&self.experts[number].entry);
        let ExpertSlot { memory, expert, places, pinned, .. } = &mut self.slots[slot];
        (*expert, *pinned) = (Some(number), urgency == Urgency::Now);
        let (memory, filled) = (std::mem::take(memory), Ok(std::mem::take(places)));
        self.experts[number].place = Place::Reading(slot);
        self.stats.read_bytes += entry.file_bytes() as u64;
        let pool = self.pool.as_ref().expect("slots were made with their threads");
        pool.submit(urgency, FillJob { number, entry, slot, memory, filled });
    }

    /// Takes what the threads have read.
    fn take_finished(&mut self) {
        while let Some(job) = self.pool.as_ref().and_then(ReadPool::try_finished) {
            self.put(job);
        }
    }

    /// Waits until another expert is in memory.
    pub fn wait(&mut self) {
        let start = Instant::now();
        if let Some(job) = self.pool.as_ref().and_then(ReadPool::wait_finished) {
            self.put(job);
        }
        self.stats.wait += start.elapsed();
        self.take_finished();
    }

    /// Puts memory back that was read.
    fn put(&mut self, job: FillJob) {
        let FillJob { number, slot, memory, filled, .. } = job;
        self.slots[slot].memory = memory;
        match filled {
            Ok(places) => {
                self.lock(slot);
                self.slots[slot].places = places;
                self.experts[number].place = Place::In(slot);
            }
            Err(error) => {
                // Whoever needs it next tries again.
                (self.slots[slot].expert, self.slots[slot].pinned) = (None, false);
                self.experts[number].place = Place::OnDisk;
                self.failed.get_or_insert((number, error));
            }
        }
    }

    /// Locks the memory of a slot that was filled, until the system refuses.
    fn lock(&mut self, slot: usize) {
        let ExpertSlot { memory, locked, .. } = &mut self.slots[slot];
        if self.locks && !*locked {
            *locked = memory.lock().is_ok();
            self.locks = *locked;
            self.stats.lock_refused |= !*locked;
            self.stats.locked += if *locked { memory.len() } else { 0 };
        }
    }

    /// Whether an expert is in memory.
    pub fn is_in(&self, expert: usize) -> bool {
        matches!(self.experts[expert].place, Place::In(_))
    }

    /// Notes rows that chose an expert that could not be read.
    pub fn note_failed(&mut self, rows: impl Iterator<Item = u32>) {
        self.failed_rows.extend(rows);
    }

    /// Whether an expert is neither in memory nor being read, because that failed.
    pub fn has_failed(&self, expert: usize) -> bool {
        self.experts[expert].place == Place::OnDisk
    }

    /// The bytes of matrix `part` of an expert that is in memory.
    pub fn bytes(&self, expert: usize, part: usize) -> &[u8] {
        let Place::In(slot) = self.experts[expert].place else {
            panic!("products need experts that were requested")
        };
        &self.slots[slot].memory[self.slots[slot].places[part].clone()]
    }

    /// Ends the products of a layer: its experts may be evicted.
    pub fn release(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.pinned = false);
    }

    /// Takes the first error since the last call. A file that is not the one that was opened is a
    /// loss of the device.
    pub fn take_failure(&mut self) -> Option<Error> {
        let rows = std::mem::take(&mut self.failed_rows);
        let failed = self.failed.take();
        let read = |number: usize| self.experts[number].entry.changed_file().map(Path::to_owned);
        let changed = self.changed.take();
        let changed = changed.or_else(|| failed.as_ref().and_then(|(number, _)| read(*number)));
        match changed {
            None => failed.map(|(_, source)| Error::Weights { rows, source }),
            Some(path) => Some(Error::Lost(format!(
                "{}: the file has changed since the model was loaded",
                path.display()
            ))),
        }
    }

    /// Bytes of all slots.
    pub fn slot_bytes(&self) -> usize {
        self.stats.slot_bytes
    }

    /// What has happened since the start.
    pub fn stats(&self) -> Option<StreamStats> {
        (!self.is_empty()).then_some(self.stats)
    }
}
