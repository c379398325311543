//! A fixed-size buffer aligned for SIMD and for whole cache lines.
#![allow(unsafe_code)]

use bytemuck::{Pod, Zeroable};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer: one cache line, one AVX-512 register.
pub const ALIGN: usize = 64;

/// Buffers of at least this many bytes are aligned to 2 MiB, so that the kernel may
/// back them with huge pages.
const HUGE: usize = 2 << 20;

/// A zero-initialised, fixed-length buffer of plain values, 64-byte aligned.
pub struct AlignedVec<T: Pod> {
    ptr: NonNull<T>,
    len: usize,
}

// SAFETY: the buffer owns its memory exclusively and T is plain data.
unsafe impl<T: Pod + Send> Send for AlignedVec<T> {}
// SAFETY: shared access is read-only.
unsafe impl<T: Pod + Sync> Sync for AlignedVec<T> {}

impl<T: Pod> AlignedVec<T> {
    /// A buffer of `len` zeros. Pages are touched only when written, so the thread that
    /// first writes decides where they live.
    pub fn zeroed(len: usize) -> Self {
        let Some(layout) = Self::layout(len) else {
            return Self { ptr: NonNull::dangling(), len: 0 };
        };
        // SAFETY: the layout has non-zero size.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw.cast::<T>()) else { handle_alloc_error(layout) };
        advise_huge(raw, layout.size());
        Self { ptr, len }
    }

    fn layout(len: usize) -> Option<Layout> {
        let bytes = len.checked_mul(size_of::<T>()).expect("buffer size overflows");
        let align = if bytes >= HUGE { HUGE } else { ALIGN };
        (bytes > 0).then(|| Layout::from_size_align(bytes, align).expect("buffer size overflows"))
    }
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
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: allocated in `zeroed` with the same layout.
            unsafe { dealloc(self.ptr.as_ptr().cast(), layout) };
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

impl<T: Pod + Zeroable> Clone for AlignedVec<T> {
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
    fn a_clone_is_independent() {
        let mut a = AlignedVec::<u8>::zeroed(9);
        let b = a.clone();
        a[3] = 7;
        assert_eq!(b[3], 0);
    }
}
