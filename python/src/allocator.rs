//! Memory that was freed and is not given back to the system yet.
#![allow(unsafe_code)]

/// Gives the pages back that the allocator keeps for later. Each thread that has ended leaves some.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function takes a number, may be called at any time and from any thread, and
    // touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
