//! Memory in whole pages, which a disk can write without a copy.

use memmap2::MmapMut;
use std::io;
use std::ops::{Deref, DerefMut};

/// Bytes that begin with a page of memory, zero at first.
#[derive(Debug, Default)]
pub struct PageVec(Option<MmapMut>);

impl PageVec {
    /// New memory of `bytes` bytes, in large pages where the system has any: they are entered into
    /// the page tables in less time.
    ///
    /// # Errors
    /// If the system has none.
    pub fn zeroed(bytes: usize) -> io::Result<Self> {
        let memory = Self::map(bytes)?;
        #[cfg(target_os = "linux")]
        memory.advise(memmap2::Advice::HugePage);
        Ok(memory)
    }

    /// New memory of `bytes` bytes in small pages, for bytes that are first used one by one in
    /// random order: a large page is filled with zeros at the first use of any of its bytes.
    ///
    /// # Errors
    /// If the system has none.
    pub fn scattered(bytes: usize) -> io::Result<Self> {
        let memory = Self::map(bytes)?;
        #[cfg(target_os = "linux")]
        memory.advise(memmap2::Advice::NoHugePage);
        Ok(memory)
    }

    fn map(bytes: usize) -> io::Result<Self> {
        (bytes > 0).then(|| MmapMut::map_anon(bytes)).transpose().map(Self)
    }

    /// A hint only, which systems without large pages refuse.
    #[cfg(target_os = "linux")]
    fn advise(&self, advice: memmap2::Advice) {
        if let Some(memory) = &self.0 {
            let _ = memory.advise(advice);
        }
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
        for new in [PageVec::zeroed, PageVec::scattered] {
            let mut memory = new(5000).unwrap();
            assert!(memory.as_ptr().addr().is_multiple_of(4096));
            assert!(memory.len() == 5000 && memory.iter().all(|&byte| byte == 0));
            memory[4999] = 7;
            assert!(new(0).unwrap().is_empty() && PageVec::default().is_empty());
        }
    }
}
