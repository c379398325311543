//! Memory in whole pages, which a disk can write without a copy.

use memmap2::MmapMut;
use std::io;
use std::ops::{Deref, DerefMut};

/// Bytes that begin with a page of memory, zero at first. Large pages are entered into the page
/// tables in less time, and are used where the system has any.
#[derive(Debug, Default)]
pub struct PageVec(Option<MmapMut>);

impl PageVec {
    /// New memory of `bytes` bytes.
    ///
    /// # Errors
    /// If the system has none.
    pub fn zeroed(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let memory = MmapMut::map_anon(bytes)?;
        #[cfg(target_os = "linux")]
        // A hint only, which systems without large pages refuse.
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Self(Some(memory)))
    }

    /// Keeps the bytes in memory, where the system would swap them out, as long as they live.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn lock(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |memory| memory.lock())
    }
}

impl Deref for PageVec {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PageVec {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_with_a_page_of_zeros() {
        let mut memory = PageVec::zeroed(5000).unwrap();
        assert!(memory.as_ptr().addr().is_multiple_of(4096));
        assert!(memory.len() == 5000 && memory.iter().all(|&byte| byte == 0));
        memory[4999] = 7;
        assert!(PageVec::zeroed(0).unwrap().is_empty() && PageVec::default().is_empty());
    }
}
