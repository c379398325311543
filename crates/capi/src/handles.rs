//! The table of handles.
//!
//! A handle is a number with an index, a generation and a kind. It is odd, so that no address of
//! something aligned is one. Freeing an index raises its generation: a handle that was freed
//! differs from the one that takes its place.
//!
//! Invariant: an object lives as long as its handle, and as the calls that use it.

use crate::error::CapiError;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles are numbers of 64 bits");

/// Bits of a handle below its index: a one, and the kind.
const INDEX_AT: u32 = 8;
/// Bits of a handle below its generation.
const GENERATION_AT: u32 = 32;
/// Maximum number of handles at a time.
const MAX_HANDLES: usize = 1 << (GENERATION_AT - INDEX_AT);

/// The names of all kinds of objects, by number.
const KINDS: [&str; 5] = ["engine", "call", "chunk", "sequence", "sampler"];

/// Something that a handle stands for.
pub(crate) trait HandleObject: Any + Send + Sync {
    /// The number of its kind in the table of kinds.
    const KIND: usize;
}

/// The name of the kind of `T`.
fn name<T: HandleObject>() -> &'static str {
    KINDS[T::KIND]
}

/// Adds an object, and returns its handle.
pub(crate) fn add<T: HandleObject>(object: Arc<T>) -> Result<usize, CapiError> {
    let mut table = table();
    let index = match table.free.pop() {
        Some(index) => index,
        None if table.slots.len() < MAX_HANDLES => {
            table.slots.push(HandleSlot::default());
            table.slots.len() - 1
        }
        None => return Err(CapiError::TooManyHandles),
    };
    let slot = &mut table.slots[index];
    slot.object = Some(object);
    let generation = slot.generation as usize;
    Ok(generation << GENERATION_AT | index << INDEX_AT | T::KIND << 1 | 1)
}

/// The object of a handle.
pub(crate) fn get<T: HandleObject>(handle: usize) -> Result<Arc<T>, CapiError> {
    let table = table();
    let index = table.find::<T>(handle)?;
    table.slots[index].of_kind()
}

/// The object of a handle, which is freed.
pub(crate) fn take<T: HandleObject>(handle: usize) -> Result<Arc<T>, CapiError> {
    let mut table = table();
    let index = table.find::<T>(handle)?;
    let slot = &mut table.slots[index];
    let object = slot.of_kind()?;
    slot.object = None;
    // An index whose generations are used up is never used again.
    if let Some(next) = slot.generation.checked_add(1) {
        slot.generation = next;
        table.free.push(index);
    }
    Ok(object)
}

#[derive(Default)]
struct HandleTable {
    slots: Vec<HandleSlot>,
    /// The indices of slots without an object.
    free: Vec<usize>,
}

#[derive(Default)]
struct HandleSlot {
    generation: u32,
    object: Option<Arc<dyn Any + Send + Sync>>,
}

static TABLE: Mutex<HandleTable> = Mutex::new(HandleTable { slots: Vec::new(), free: Vec::new() });

fn table() -> MutexGuard<'static, HandleTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HandleTable {
    /// The index of the object of kind `T` with this handle.
    fn find<T: HandleObject>(&self, handle: usize) -> Result<usize, CapiError> {
        let name = name::<T>();
        if handle == 0 {
            return Err(CapiError::NullHandle(name));
        }
        let kind = (handle & ((1 << INDEX_AT) - 1)) >> 1;
        let index = (handle & ((1 << GENERATION_AT) - 1)) >> INDEX_AT;
        let generation = handle >> GENERATION_AT;
        let slot = self.slots.get(index).filter(|_| handle & 1 == 1);
        let slot = slot.filter(|slot| generation <= slot.generation as usize);
        let (Some(slot), Some(found)) = (slot, KINDS.get(kind)) else {
            return Err(CapiError::Foreign(name));
        };
        if kind != T::KIND {
            return Err(CapiError::WrongKind { expected: name, found });
        }
        if generation < slot.generation as usize || slot.object.is_none() {
            return Err(CapiError::Freed(name));
        }
        Ok(index)
    }
}

impl HandleSlot {
    fn of_kind<T: HandleObject>(&self) -> Result<Arc<T>, CapiError> {
        let object = self.object.clone().and_then(|object| object.downcast().ok());
        object.ok_or(CapiError::Foreign(name::<T>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct One(u8);
    impl HandleObject for One {
        const KIND: usize = 2;
    }
    #[derive(Debug)]
    struct Other;
    impl HandleObject for Other {
        const KIND: usize = 4;
    }

    fn error<T: HandleObject + std::fmt::Debug>(handle: usize) -> String {
        get::<T>(handle).unwrap_err().to_string()
    }

    #[test]
    fn a_handle_is_its_object_until_it_is_freed() {
        let handles: Vec<_> = (0..5).map(|value| add(Arc::new(One(value))).unwrap()).collect();
        for (value, handle) in handles.iter().enumerate() {
            assert_eq!(get::<One>(*handle).unwrap().0 as usize, value);
        }
        let wrong = error::<Other>(handles[0]);
        assert_eq!(wrong, "sampler: expected a handle of this kind, found one of chunk");
        take::<One>(handles[3]).unwrap();
        assert_eq!(error::<One>(handles[3]), "chunk: the handle was freed");
        assert!(take::<One>(handles[3]).is_err());
        // Another takes the place.
        let again: Vec<_> = (0..5).map(|value| add(Arc::new(One(value))).unwrap()).collect();
        assert_eq!(error::<One>(handles[3]), "chunk: the handle was freed");
        assert!(!again.contains(&handles[3]));
        handles.iter().chain(&again).for_each(|handle| drop(take::<One>(*handle)));
    }

    #[test]
    fn numbers_that_are_no_handles_are_refused() {
        let handle = add(Arc::new(One(7))).unwrap();
        assert_eq!(error::<One>(0), "chunk: expected a handle, found null");
        for foreign in [2, 16, handle + 1, handle | 0xf0, handle + (1 << 40), usize::MAX, 1 << 20] {
            assert_eq!(error::<One>(foreign), "chunk: not a handle of this library", "{foreign}");
        }
        take::<One>(handle).unwrap();
    }
}
