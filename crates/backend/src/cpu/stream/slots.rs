//! Which slot is read into next.

use super::entry::FillJob;
use crate::cpu::stream::state::{EntrySlot, Place, SlotClass, WeightStream};
use crate::error::Error;
use crate::heat::Heat;
use crate::memory;
use base::{PageVec, ReadPool};
use std::collections::HashMap;

/// Most reader threads.
const MAX_THREADS: usize = 256;
/// Slots of a layer's matrix: one is used while the other is read.
const LAYER_SLOTS: usize = 2;
/// Slots of the window of colder experts for each reader thread.
const WINDOW: usize = 2;

/// Entries that share slots.
struct ClassSize {
    /// Bytes of a slot.
    bytes: usize,
    /// Number of entries.
    count: usize,
    /// Fewest slots.
    least: usize,
    /// Most slots.
    most: usize,
}

impl WeightStream {
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
        let sizes = self.make_classes(least);
        let scratch = self.entries.iter().map(|expert| expert.entry.scratch()).max().unwrap_or(0);
        let total = |number: fn(&ClassSize) -> usize| -> usize {
            sizes.iter().map(|size| size.bytes * number(size)).sum()
        };
        let needed = total(|size| size.least) + threads * scratch;
        if needed > bytes {
            return Err(Error::WeightsMemory { needed, found: bytes });
        }
        let (left, rest) = (bytes - needed, total(|size| size.most - size.least));
        (self.scratch, self.locks) = (threads * scratch, memory::swaps());
        self.slots.clear();
        self.classes.clear();
        for size in &sizes {
            // In proportion to what there is of each size; all of them where they fit.
            let more = size.most - size.least;
            let share = (left as u128 * (size.bytes * more) as u128 / rest.max(1) as u128) as usize;
            let slots = size.least + (share / size.bytes).min(more);
            self.add_class(size.bytes, slots, WINDOW * threads)?;
        }
        self.stats.slots = self.slot_classes().iter().map(|class| class.slots).sum();
        self.stats.expert_bytes = sizes.iter().map(|size| size.bytes * size.count).sum();
        self.stats.slot_bytes = self.slots.iter().map(|slot| slot.memory.len()).sum();
        self.ahead.reserve(self.slots.len());
        self.cancelled.reserve(self.slots.len());
        let pool = ReadPool::new(threads, self.slots.len());
        self.pool = Some(pool.map_err(|source| Error::Threads { threads, source })?);
        Ok(())
    }

    /// Sorts entries into classes: experts by their size, matrices of layers by their position.
    fn make_classes(&mut self, least: usize) -> Vec<ClassSize> {
        let (mut sizes, mut known) = (Vec::<ClassSize>::new(), HashMap::new());
        for expert in &mut self.entries {
            let (bytes, position) = (expert.entry.space(), expert.position);
            let key = position.ok_or(bytes);
            let class = *known.entry(key).or_insert(sizes.len());
            if class == sizes.len() {
                sizes.push(ClassSize { bytes, count: 0, least: 0, most: 0 });
            }
            let size = &mut sizes[class];
            (expert.class, size.bytes, size.count) = (class, size.bytes.max(bytes), size.count + 1);
            (size.least, size.most) = match position {
                Some(_) => (size.count.min(LAYER_SLOTS), size.count.min(LAYER_SLOTS)),
                None => (size.count.min(least), size.count),
            };
        }
        sizes
    }

    fn add_class(&mut self, bytes: usize, slots: usize, window: usize) -> Result<(), Error> {
        let first = self.slots.len();
        for _ in 0..slots {
            let refused = |_| base::OutOfMemory { bytes: (bytes * slots) as u128 };
            let memory = PageVec::zeroed(bytes).map_err(refused)?;
            self.slots.push(EntrySlot { memory, ..EntrySlot::default() });
        }
        let window = window.min(slots.div_ceil(2));
        self.classes.push(SlotClass { slots: first..self.slots.len(), window });
        Ok(())
    }

    /// The heat of what a slot holds.
    fn heat_in(&self, slot: usize) -> Option<Heat> {
        self.slots[slot].expert.map(|expert| self.entries[expert].heat)
    }

    /// The slot of the coldest in the class of `number`, of the slots that nothing needs now.
    fn coldest(&self, number: usize) -> Option<usize> {
        let free = |slot: &usize| {
            let EntrySlot { memory, pinned, kept, .. } = &self.slots[*slot];
            !pinned && !kept && !memory.is_empty()
        };
        let all = self.classes[self.entries[number].class].slots.clone().filter(free);
        all.min_by(|a, b| Heat::order(self.heat_in(*a), self.heat_in(*b)))
    }

    /// A slot for an expert: of one that is not hotter, or in the window of colder ones. So experts
    /// that only prompts choose pass through a few slots where the others are in use.
    pub(super) fn slot_for(&self, number: usize) -> Option<usize> {
        if let Some(slot) = self.slot_below(number, self.entries[number].heat) {
            return Some(slot);
        }
        let heat = Some(self.entries[number].heat);
        let is_colder = |slot: usize| Heat::order(self.heat_in(slot), heat).is_le();
        let SlotClass { slots, window } = &self.classes[self.entries[number].class];
        let passing = |slot: &usize| self.slots[*slot].expert.is_some() && is_colder(*slot);
        self.coldest(number).filter(|_| slots.clone().filter(passing).count() < *window)
    }

    /// The slot of the coldest in the class of `number`, unless that is hotter than `heat`.
    pub(super) fn slot_below(&self, number: usize, heat: Heat) -> Option<usize> {
        let is_colder = |slot: &usize| Heat::order(self.heat_in(*slot), Some(heat)).is_le();
        self.coldest(number).filter(is_colder)
    }

    /// A slot for an expert, whatever it takes: that of what was read ahead or of the last expert
    /// that the layer needs, if they are not hotter, else that of the coldest. Waits where all are
    /// being read.
    pub(super) fn make_slot(&mut self, number: usize) -> usize {
        loop {
            self.take_finished();
            let slots = self.classes[self.entries[number].class].slots.clone();
            let there = slots.filter(|slot| !self.slots[*slot].memory.is_empty());
            let later = there.filter(|slot| {
                let EntrySlot { kept, expert, .. } = self.slots[*slot];
                kept || expert > Some(number)
            });
            let last = later.max_by_key(|slot| (self.slots[*slot].kept, self.slots[*slot].expert));
            let heat = Some(self.entries[number].heat);
            let not_hotter = last.filter(|slot| Heat::order(self.heat_in(*slot), heat).is_le());
            let found = self.slot_for(number).or(not_hotter).or(self.coldest(number)).or(last);
            match found {
                Some(slot) => return slot,
                None => self.wait(),
            }
        }
    }

    /// Gives up experts that were read ahead, except those of the layer `next`.
    pub(super) fn drop_ahead(&mut self, next: usize) {
        let mut cancelled = std::mem::take(&mut self.cancelled);
        let is_given_up = |stream: &Self, slot: usize| {
            let expert = stream.slots[slot].expert.filter(|_| stream.slots[slot].kept);
            expert.is_some_and(|expert| stream.mixture_of(expert) != next)
        };
        if let Some(pool) = &self.pool {
            pool.cancel_ahead(|job| is_given_up(self, job.slot), |job| cancelled.push(job));
        }
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.retain(|&slot| {
            self.slots[slot].kept &= !is_given_up(self, slot);
            self.slots[slot].kept
        });
        self.ahead = ahead;
        for FillJob { number, slot, memory, filled, .. } in cancelled.drain(..) {
            let slot = &mut self.slots[slot];
            (slot.memory, slot.places) = (memory, filled.unwrap_or_default());
            slot.expert = None;
            self.entries[number].place = Place::OnDisk;
        }
        self.cancelled = cancelled;
    }
}
