//! Memory for extents on their way to the disk.

use std::sync::{Mutex, PoisonError};

/// Buffers that are used again and again, of limited size together.
#[derive(Debug)]
pub(crate) struct Buffers {
    most: usize,
    state: Mutex<BufferState>,
}

#[derive(Debug, Default)]
struct BufferState {
    free: Vec<Vec<u8>>,
    /// Bytes of all buffers, in use or not.
    bytes: usize,
}

impl Buffers {
    /// Buffers of at most `most` bytes together.
    pub fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// An empty buffer with space for `bytes` bytes, unless too much is in use. A buffer larger
    /// than all together may be is given where no other is in use.
    pub fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = state.free.iter().position(|free| free.capacity() >= bytes) {
            return Some(state.free.swap_remove(at));
        }
        while state.bytes > 0 && state.bytes.saturating_add(bytes) > self.most {
            state.bytes -= state.free.pop()?.capacity();
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes).ok()?;
        state.bytes += buffer.capacity();
        Some(buffer)
    }

    /// Takes a buffer back.
    pub fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_limited_together() {
        let buffers = Buffers::new(100);
        let one = buffers.take(60).unwrap();
        assert!(buffers.take(50).is_none());
        let two = buffers.take(40).unwrap();
        buffers.give_back(one);
        let mut again = buffers.take(50).unwrap();
        assert_eq!((again.capacity(), again.len()), (60, 0));
        again.push(7);
        buffers.give_back(again);
        buffers.give_back(two);
        // Smaller ones give way to a larger one, which may be alone.
        let large = buffers.take(300).unwrap();
        assert!(buffers.take(1).is_none());
        buffers.give_back(large);
        assert!(buffers.take(1).is_some());
    }
}
