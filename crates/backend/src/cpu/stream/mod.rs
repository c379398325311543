//! Weights that are not all in memory. An expert is read from its file into a *slot* when rows
//! choose it, and stays until its slot is needed for a hotter one. The other matrices of a layer
//! are read in the order of layers, ahead of their use (`layers.rs`).
//!
//! A slot is memory that moves: while it is read, it belongs to the job of a reader thread; then
//! products read it. Nothing is shared while it is written, and after the start nothing is
//! allocated.
//!
//! Invariant: a slot holds the bytes that the same matrices have in memory, so that which of them
//! are in memory, and when they arrive, decides time only.

mod ahead;
mod entry;
mod foresight;
#[cfg(test)]
mod layer_tests;
mod layers;
mod preload;
mod slots;
mod state;
#[cfg(test)]
mod tests;

pub(super) use entry::{Entry, EntryPart, PAGE, Packing, PartFile};
pub(super) use state::WeightStream;

use crate::error::Error;
use crate::heat::Heat;
use crate::memory::{StreamPlan, StreamStats};
use base::{DirectFile, ReadPool, Urgency};
use entry::FillJob;
use state::{EntrySlot, Place, SlotClass, Streamed};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which files are looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl WeightStream {
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

    /// Adds the experts of a layer, which have these matrices, and returns the number of the first.
    pub fn add_experts(&mut self, experts: impl Iterator<Item = Vec<EntryPart>>) -> usize {
        let first = self.entries.len();
        experts.for_each(|parts| self.add(parts, None));
        self.mixtures.push(first..self.entries.len());
        first
    }

    fn add(&mut self, parts: Vec<EntryPart>, position: Option<usize>) {
        let (entry, heat) = (Arc::new(Entry::new(parts)), Heat::default());
        self.entries.push(Streamed { entry, position, class: 0, place: Place::OnDisk, heat });
    }

    /// Whether there are streamed weights.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The slots of experts of each size.
    pub fn slot_classes(&self) -> Vec<crate::memory::SlotClass> {
        let class = |(number, class): (usize, &SlotClass)| {
            let experts = self.entries.iter().filter(|expert| expert.class == number);
            let experts = experts.filter(|expert| expert.position.is_none()).count();
            let bytes = self.slots.get(class.slots.start).map_or(0, |slot| slot.memory.len());
            crate::memory::SlotClass { bytes, experts, slots: class.slots.len() }
        };
        let all = self.classes.iter().enumerate().map(class);
        all.filter(|class| class.experts > 0).collect()
    }

    /// Bytes of the layers' matrices that every step reads.
    pub fn layer_bytes(&self) -> usize {
        let matrices = self.entries.iter().filter(|matrix| matrix.position.is_some());
        matrices.map(|matrix| matrix.entry.file_bytes()).sum()
    }

    /// The memory, if weights are streamed; a token none of whose experts are there reads
    /// `token_bytes` of them.
    pub fn plan(&self, token_bytes: usize) -> Option<StreamPlan> {
        let classes = self.slot_classes();
        let experts: usize = classes.iter().map(|class| class.bytes * class.slots).sum();
        (!self.is_empty()).then(|| StreamPlan {
            classes,
            layers: self.slot_bytes() - experts,
            buffers: self.scratch_bytes(),
            token_bytes,
            step_bytes: self.layer_bytes(),
        })
    }

    /// Bytes that reader threads use in addition to slots.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    /// Bytes that are read for an expert.
    pub fn file_bytes(&self, expert: usize) -> usize {
        self.entries[expert].entry.file_bytes()
    }

    /// Begins a step of `rows` rows, which is counted where it decodes. Once in a while, looks
    /// whether files have changed.
    pub fn begin_step(&mut self, decodes: bool, rows: usize) {
        self.step += u64::from(decodes);
        self.rows = rows;
        if self.is_empty() || self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let changed = self.files.values().find(|file| file.has_changed());
        self.changed = changed.map(|file| file.path().to_owned());
    }

    /// Notes that `rows` decoded rows have chosen an expert.
    pub fn heat(&mut self, expert: usize, rows: usize) {
        self.entries[expert].heat.add(rows, self.step);
    }

    /// Begins a layer that needs `chosen` experts: pins the ones that are in memory or being read,
    /// and drops what was read ahead in vain.
    pub fn begin_layer(&mut self, chosen: impl Iterator<Item = usize> + Clone) {
        self.begun = true;
        self.take_finished();
        let layer = chosen.clone().next().map_or(0, |expert| self.mixture_of(expert));
        for expert in chosen {
            match self.is_in(expert) {
                true => self.stats.hits += 1,
                false => self.stats.misses += 1,
            }
            self.pin(expert);
        }
        self.drop_ahead(layer + 1);
    }

    /// Whether a layer of experts has begun, and not ended.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Ends a layer of experts.
    pub fn end_layer(&mut self) {
        self.begun = false;
    }

    /// Pins an expert that is in memory or being read, which is urgent from now on.
    fn pin(&mut self, number: usize) {
        let (Place::In(slot) | Place::Reading(slot)) = self.entries[number].place else { return };
        let kept = std::mem::take(&mut self.slots[slot].kept);
        if kept && self.entries[number].position.is_none() {
            self.stats.ahead_used += 1;
            self.foresight.note(self.step, 0, 1);
        }
        self.slots[slot].pinned = true;
        if let (Place::Reading(_), Some(pool)) = (self.entries[number].place, &self.pool) {
            pool.hasten(|job| job.number == number);
        }
    }

    /// Pins an expert and starts to read it if it is missing. Returns false where it has to wait
    /// until others are released; never if it `must` be read.
    pub fn request(&mut self, expert: usize, must: bool) -> bool {
        if let Place::In(_) | Place::Reading(_) = self.entries[expert].place {
            self.pin(expert);
            return true;
        }
        let slot = match must {
            true => Some(self.make_slot(expert)),
            false => self.slot_for(expert),
        };
        if let Some(slot) = slot {
            self.read(expert, slot, Urgency::Now);
        }
        slot.is_some()
    }

    fn read(&mut self, number: usize, slot: usize, urgency: Urgency) {
        let entry = Arc::clone(&self.entries[number].entry);
        if let Some(evicted) = self.slots[slot].expert.take() {
            self.entries[evicted].place = Place::OnDisk;
            self.stats.evictions += u64::from(self.entries[evicted].position.is_none());
        }
        let EntrySlot { memory, expert, places, pinned, kept, .. } = &mut self.slots[slot];
        (*expert, *pinned, *kept) = (Some(number), urgency == Urgency::Now, false);
        let (memory, filled) = (std::mem::take(memory), Ok(std::mem::take(places)));
        let took = Duration::ZERO;
        self.entries[number].place = Place::Reading(slot);
        self.stats.read_bytes += entry.file_bytes() as u64;
        let pool = self.pool.as_ref().expect("slots were made with their threads");
        pool.submit(urgency, FillJob { number, entry, slot, memory, filled, took });
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
        let FillJob { number, slot: at, memory, filled, took, .. } = job;
        self.stats.reads.add(took);
        let slot = &mut self.slots[at];
        slot.memory = memory;
        match filled {
            Ok(places) => {
                slot.places = places;
                // A second try has succeeded.
                self.failed.take_if(|(failed, _)| *failed == number);
                self.entries[number].place = Place::In(at);
                self.lock(at);
            }
            Err(error) => {
                // What needs it next tries again.
                if slot.pinned {
                    self.failed.get_or_insert((number, error));
                }
                let expert = &mut self.entries[number];
                if expert.position.is_some() && slot.pinned {
                    slot.places.clear();
                    slot.places.extend(expert.entry.places());
                    expert.place = Place::Failed(at);
                } else {
                    (slot.expert, slot.pinned, slot.kept) = (None, false, false);
                    expert.place = Place::OnDisk;
                }
            }
        }
    }

    /// Locks the memory of a slot that was filled, until the system refuses.
    fn lock(&mut self, slot: usize) {
        let EntrySlot { memory, locked, .. } = &mut self.slots[slot];
        if self.locks && !*locked {
            *locked = memory.lock().is_ok();
            self.locks = *locked;
            self.stats.lock_refused |= !*locked;
            self.stats.locked += if *locked { memory.len() } else { 0 };
        }
    }

    /// Whether an expert is in memory.
    pub fn is_in(&self, expert: usize) -> bool {
        matches!(self.entries[expert].place, Place::In(_))
    }

    /// Notes rows that chose an expert that could not be read.
    pub fn note_failed(&mut self, rows: impl Iterator<Item = u32>) {
        self.failed_rows.extend(rows);
    }

    /// Whether an expert that was requested is neither in memory nor being read, because that
    /// failed.
    pub fn has_failed(&self, expert: usize) -> bool {
        self.entries[expert].place == Place::OnDisk
    }

    /// The bytes of matrix `part` of an expert that is in memory.
    pub fn bytes(&self, expert: usize, part: usize) -> &[u8] {
        let (Place::In(slot) | Place::Failed(slot)) = self.entries[expert].place else {
            panic!("products need weights that were requested")
        };
        &self.slots[slot].memory[self.slots[slot].places[part].clone()]
    }

    /// Ends the products with an expert, which may be evicted.
    pub fn release(&mut self, expert: usize) {
        if let Place::In(slot) | Place::Reading(slot) = self.entries[expert].place {
            self.slots[slot].pinned = false;
        }
    }

    /// Takes the first error since the last call. A file that is not the one that was opened is a
    /// loss of the device.
    pub fn take_failure(&mut self) -> Option<Error> {
        let rows = std::mem::take(&mut self.failed_rows);
        let failed = self.failed.take();
        let read = |number: usize| self.entries[number].entry.changed_file().map(Path::to_owned);
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
