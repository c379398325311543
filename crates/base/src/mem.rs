//! A fixed-size buffer aligned for SIMD and for whole cache lines.
#![allow(unsafe_code)]

use bytemuck::Pod;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer: one cache line, one AVX-512 register.
pub const ALIGN: usize = 64;

/// Bytes of a huge page.
const PAGE: usize = 2 << 20;
/// Buffers of at least this many bytes are aligned to huge pages, so that the kernel may back
/// them with such. Of smaller ones, workspaces most of them, often only the first rows are used.
const HUGE: usize = 8 * PAGE;

/// The system refuses an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot get {bytes} bytes of memory")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: u128,
}

/// A zero-initialised, fixed-length buffer of plain values, 64-byte aligned.
pub struct AlignedVec<T: Pod> {
    ptr: NonNull<T>,
    len: usize,
    /// Layout of the allocation of `ptr`.
    raw: NonNull<u8>,
}

// SAFETY: the buffer owns its memory exclusively and T is plain data.
unsafe impl<T: Pod + Send> Send for AlignedVec<T> {}
// SAFETY: shared access is read-only.
unsafe impl<T: Pod + Sync> Sync for AlignedVec<T> {}

impl<T: Pod> AlignedVec<T> {
    /// A buffer of `len` zeros. Pages are touched only when written, so the thread that
    /// first writes decides where they live.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn try_zeroed(len: usize) -> Result<Self, OutOfMemory> {
        const { assert!(align_of::<T>() <= ALIGN) };
        if len == 0 || size_of::<T>() == 0 {
            return Ok(Self { ptr: NonNull::dangling(), len, raw: NonNull::dangling() });
        }
        let refused = OutOfMemory { bytes: len as u128 * size_of::<T>() as u128 };
        let layout = Self::layout(len).ok_or(refused)?;
        // SAFETY: the layout has non-zero size.
        let raw = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(refused)?;
        let align = Self::align(len);
        let skip = raw.addr().get().next_multiple_of(align) - raw.addr().get();
        // SAFETY: `skip` is less than the alignment, by which the allocation is longer.
        let start = unsafe { raw.add(skip) };
        advise_huge(start.as_ptr(), layout.size() - align);
        Ok(Self { ptr: start.cast(), len, raw })
    }

    /// As [`AlignedVec::try_zeroed`], ending the process where there is no memory.
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len)
            .unwrap_or_else(|_| handle_alloc_error(Self::layout(len).unwrap_or(Layout::new::<T>())))
    }

    fn align(len: usize) -> usize {
        if len * size_of::<T>() >= HUGE { PAGE } else { ALIGN }
    }

    /// Space for `len` values after the next multiple of the alignment. The layout itself has
    /// alignment 1, because allocators return untouched zero pages only without an alignment.
    fn layout(len: usize) -> Option<Layout> {
        let bytes = len.checked_mul(size_of::<T>())?;
        Layout::from_size_align(bytes.checked_add(Self::align(len))?, 1).ok()
    }
}

/// Gives the memory that glibc's allocator holds and no value uses back to the system. It takes
/// time in proportion to that memory; other allocators do it by themselves.
pub fn give_back_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time by any thread, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0)
    };
}

#[cfg(target_os = "linux")]
fn advise_huge(ptr: *mut u8, bytes: usize) {
    if bytes >= HUGE {
        // SAFETY: the range was just allocated by us and is 2 MiB aligned; a hint only.
        unsafe { libc::madvise(ptr.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_ptr: *mut u8, _bytes: usize) {}

impl<T: Pod> Drop for AlignedVec<T> {
    fn drop(&mut self) {
        if self.len == 0 || size_of::<T>() == 0 {
            return;
        }
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: allocated in `try_zeroed` with the same layout.
            unsafe { dealloc(self.raw.as_ptr(), layout) };
        }
    }
}

impl<T: Pod> Default for AlignedVec<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Pod> Deref for AlignedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` values were allocated zeroed, and zero is valid for Pod.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for AlignedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> Clone for AlignedVec<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Pod + std::fmt::Debug> std::fmt::Debug for AlignedVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedVec[{}]", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn freed_memory_is_given_back() {
        // In pages, with the pages that are in memory as the second number.
        let resident = || -> usize {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse().unwrap()
        };
        // Small blocks, of which one stays, are kept by the allocator when they are freed.
        let mut blocks: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 64 << 10]).collect();
        let kept = blocks.split_off(4095);
        drop(blocks);
        let before = resident();
        give_back_free_memory();
        let given = before.saturating_sub(resident()) * 4096;
        assert!(given > 128 << 20, "{given} bytes, with {} kept", kept.len());
    }

    #[test]
    fn buffers_are_zeroed_and_aligned() {
        for len in [0, 1, 17, 1 << 20] {
            let buffer = AlignedVec::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&v| v == 0.0));
            assert!(len == 0 || (buffer.as_ptr() as usize).is_multiple_of(ALIGN));
        }
    }

    #[test]
    fn more_than_there_is_is_refused() {
        for len in [usize::MAX / 4, usize::MAX] {
            let refused = AlignedVec::<f32>::try_zeroed(len).unwrap_err();
            assert_eq!(refused.bytes, len as u128 * 4);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn untouched_pages_take_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let buffer = AlignedVec::<f32>::zeroed(1 << 28);
        assert_eq!(buffer[1 << 20], 0.0);
        assert!(resident() < before + (256 << 20), "a gigabyte was touched");
    }

    #[test]
    fn a_clone_is_independent() {
        let mut a = AlignedVec::<u8>::zeroed(9);
        let b = a.clone();
        a[3] = 7;
        assert_eq!(b[3], 0);
    }
}
