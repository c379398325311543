//! Memory for extents on their way to the disk and from it.

use base::PageVec;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that begin with a page of memory, so that the disk transfers them without a copy.
#[derive(Debug, Default)]
pub struct PageBuffer {
    memory: PageVec,
    len: usize,
    /// The buffers to which the memory goes back.
    home: Option<Arc<Buffers>>,
}

impl PageBuffer {
    /// An empty buffer with space for `bytes` bytes.
    ///
    /// # Errors
    ///
    /// If the system has no memory.
    pub fn with_capacity(bytes: usize) -> io::Result<Self> {
        Ok(Self { memory: PageVec::zeroed(bytes)?, len: 0, home: None })
    }

    /// A buffer of zeros.
    ///
    /// # Errors
    ///
    /// If the system has no memory.
    pub fn zeroed(bytes: usize) -> io::Result<Self> {
        let mut buffer = Self::with_capacity(bytes)?;
        buffer.len = bytes;
        Ok(buffer)
    }

    /// Bytes for which there is space.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Appends `bytes` bytes, whose values are not specified, and returns them.
    ///
    /// # Panics
    ///
    /// If there is no space for them.
    pub fn append(&mut self, bytes: usize) -> &mut [u8] {
        let start = self.len;
        assert!(bytes <= self.capacity() - start, "a buffer has space for what is appended");
        self.len += bytes;
        &mut self[start..]
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.lock().free.push(std::mem::take(&mut self.memory));
        }
    }
}

/// Buffers that are used again and again, of limited size together.
#[derive(Debug)]
pub(crate) struct Buffers {
    most: usize,
    state: Mutex<BufferState>,
}

#[derive(Debug, Default)]
struct BufferState {
    free: Vec<PageVec>,
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
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<PageBuffer> {
        let mut state = self.lock();
        let free = state.free.iter().position(|free| free.len() >= bytes);
        let memory = match free {
            Some(at) => state.free.swap_remove(at),
            None => {
                while state.bytes > 0 && state.bytes.saturating_add(bytes) > self.most {
                    state.bytes -= state.free.pop()?.len();
                }
                let memory = PageVec::zeroed(bytes).ok()?;
                state.bytes += memory.len();
                memory
            }
        };
        Some(PageBuffer { memory, len: 0, home: Some(Arc::clone(self)) })
    }

    fn lock(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_with_a_page_and_grow_within_their_space() {
        let mut buffer = PageBuffer::with_capacity(10).unwrap();
        assert_eq!(buffer.as_ptr() as usize % crate::header::PAGE, 0);
        buffer.append(4).copy_from_slice(b"abcd");
        buffer.append(2).copy_from_slice(b"ef");
        assert_eq!((&buffer[..], buffer.capacity()), (&b"abcdef"[..], 10));
        assert_eq!(PageBuffer::zeroed(3).unwrap()[..], [0; 3]);
        assert!(PageBuffer::with_capacity(0).unwrap().is_empty());
    }

    #[test]
    #[should_panic = "has space"]
    fn nothing_is_appended_beyond_the_space() {
        PageBuffer::with_capacity(3).unwrap().append(4);
    }

    #[test]
    fn buffers_are_limited_together() {
        let buffers = Arc::new(Buffers::new(100));
        let one = buffers.take(60).unwrap();
        assert!(buffers.take(50).is_none());
        let two = buffers.take(40).unwrap();
        drop(one);
        let mut again = buffers.take(50).unwrap();
        assert_eq!((again.capacity(), again.len()), (60, 0));
        again.append(1);
        drop((again, two));
        // Smaller ones give way to a larger one, which may be alone.
        let large = buffers.take(300).unwrap();
        assert!(buffers.take(1).is_none());
        drop(large);
        assert!(buffers.take(1).is_some());
    }
}
