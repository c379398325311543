//! Slots: small numbers of sequences, and dense tables under them.

use std::ops::{Index, IndexMut};

/// Number of a sequence from [`add`](crate::Scheduler::add) to
/// [`finish`](crate::Scheduler::finish). Later sequences reuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// A table with at most one value per slot; indexing panics where there is none.
#[derive(Clone, Debug)]
pub struct SlotTable<T>(Vec<Option<T>>);

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> SlotTable<T> {
    /// The value of `slot`.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.0.get(slot.0 as usize)?.as_ref()
    }

    /// The value of `slot`, to be changed.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.0.get_mut(slot.0 as usize)?.as_mut()
    }

    /// The first slot that was never used.
    pub(crate) fn unused(&self) -> Slot {
        Slot(self.0.len() as u32)
    }

    /// Sets the value of an empty slot.
    pub fn insert(&mut self, slot: Slot, value: T) {
        let at = slot.0 as usize;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, || None);
        }
        debug_assert!(self.0[at].is_none(), "{slot:?} is taken");
        self.0[at] = Some(value);
    }

    /// Takes the value of `slot` out.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        self.0.get_mut(slot.0 as usize)?.take()
    }

    /// All slots that were ever used, ascending.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<T> {
        (0..self.0.len() as u32).map(Slot)
    }

    /// All values with their slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.slots().zip(&self.0).filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }
}

impl<T> Index<Slot> for SlotTable<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.get(slot).expect("the slot holds a value")
    }
}

impl<T> IndexMut<Slot> for SlotTable<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.get_mut(slot).expect("the slot holds a value")
    }
}
