//! Matrices of layers that are read in the order of layers, in every step: while one layer is used,
//! the next is read into the other of two slots. There is no cache, which would miss on a cycle.

use crate::cpu::stream::state::{Place, WeightStream};
use base::Urgency;

impl WeightStream {
    /// Adds the matrices of a layer, which are used in about this order, and returns the number of
    /// the first.
    pub fn add_layer(
        &mut self,
        parts: impl Iterator<Item = crate::cpu::stream::entry::EntryPart>,
    ) -> usize {
        let first = self.entries.len();
        parts.enumerate().for_each(|(position, part)| self.add(vec![part], Some(position)));
        self.layers.all.push(first..self.entries.len());
        first
    }

    /// Brings matrices of a layer into memory for the next product, and reads on. Other matrices
    /// are not in `numbers`.
    pub fn need(&mut self, numbers: impl Iterator<Item = usize>) {
        if self.layers.all.is_empty() {
            return;
        }
        if self.layers.unused == 0 {
            self.leave();
        }
        for number in numbers {
            let layer = self.layers.all.partition_point(|all| all.end <= number);
            let is_pinned = |slot: usize| self.slots[slot].pinned;
            if !matches!(self.entries[number].place, Place::In(slot) if is_pinned(slot)) {
                self.enter(layer);
            }
            self.layers.unused = self.layers.unused.saturating_sub(1);
            while let Place::Reading(_) = self.entries[number].place {
                self.wait();
            }
            if let Place::Failed(_) = self.entries[number].place {
                let rows = self.rows as u32;
                self.note_failed(0..rows);
            }
        }
    }

    /// Begins to use a layer: its matrices are pinned, or read now.
    fn enter(&mut self, layer: usize) {
        let Some(all) = self.layers.all.get(layer).cloned() else { return };
        if self.layers.current != Some(layer) || self.layers.unused == 0 {
            self.leave();
            self.layers.unused = all.len();
            self.layers.current = Some(layer);
        }
        for number in all.clone() {
            self.request(number, true);
        }
        self.read_on(1);
    }

    /// Ends the use of the current layer, whose slots the layer after the next takes.
    fn leave(&mut self) {
        let Some(all) = self.layers.current.map(|layer| self.layers.all[layer].clone()) else {
            return;
        };
        for number in all {
            match self.entries[number].place {
                Place::Failed(slot) => {
                    (self.slots[slot].expert, self.slots[slot].pinned) = (None, false);
                    self.entries[number].place = Place::OnDisk;
                }
                _ => self.release(number),
            }
        }
        self.read_on(2);
    }

    /// Starts to read the layer `ahead` layers after the current one, into slots that are free.
    fn read_on(&mut self, ahead: usize) {
        let Some(current) = self.layers.current else { return };
        let next = (current + ahead) % self.layers.all.len();
        if next == current {
            return;
        }
        for number in self.layers.all[next].clone() {
            if self.entries[number].place == Place::OnDisk
                && let Some(slot) = self.slot_for(number)
            {
                self.read(number, slot, Urgency::Soon);
                self.slots[slot].kept = true;
            }
        }
    }
}
