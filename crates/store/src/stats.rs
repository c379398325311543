//! Counts of what a store does.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why something was not stored or not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A file is not what its name says, or a checksum is wrong.
    Corrupt,
    /// The disk gave an error.
    Io,
    /// The disk is full, read-only, or the user's quota is used up.
    NoSpace,
    /// A file was removed in the meantime.
    Vanished,
}

impl Failure {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Corrupt, "corrupt"),
        (Self::Io, "io"),
        (Self::NoSpace, "no_space"),
        (Self::Vanished, "vanished"),
    ];

    /// What an error of the disk means.
    pub(crate) fn of(error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        match error.kind() {
            Kind::NotFound => Self::Vanished,
            Kind::UnexpectedEof => Self::Corrupt,
            Kind::StorageFull | Kind::QuotaExceeded | Kind::ReadOnlyFilesystem => Self::NoSpace,
            _ => Self::Io,
        }
    }
}

/// Counts since the start, and sizes now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes of all extents in the folder, as far as they are known here.
    pub bytes: u64,
    /// Blocks and states below the roots that are open.
    pub blocks: u64,
    /// Bytes of blocks read.
    pub read_bytes: u64,
    /// Bytes of extents written.
    pub written_bytes: u64,
    /// Sequences that were looked for.
    pub queries: u64,
    /// Sequences of which something was read.
    pub hits: u64,
    /// Extents evicted.
    pub evictions: u64,
    /// Blocks that were worth storing, and could not be.
    pub dropped_writes: u64,
    /// Failures, in the order of [`Failure::ALL`].
    pub failures: [u64; 4],
}

/// The counts of a store that is in use.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub queries: AtomicU64,
    pub hits: AtomicU64,
    pub evictions: AtomicU64,
    pub dropped_writes: AtomicU64,
    failures: [AtomicU64; 4],
}

impl Counters {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn failed(&self, failure: Failure) {
        Self::add(&self.failures[failure as usize], 1);
    }

    /// The counts so far, with the sizes of the index.
    pub fn stats(&self, bytes: u64, blocks: u64) -> StoreStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            bytes,
            blocks,
            read_bytes: read(&self.read_bytes),
            written_bytes: read(&self.written_bytes),
            queries: read(&self.queries),
            hits: read(&self.hits),
            evictions: read(&self.evictions),
            dropped_writes: read(&self.dropped_writes),
            failures: std::array::from_fn(|at| read(&self.failures[at])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn errors_of_the_disk_are_told_apart() {
        let of = |code: i32| Failure::of(&Error::from_raw_os_error(code));
        assert_eq!(of(libc::ENOENT), Failure::Vanished);
        assert_eq!([libc::ENOSPC, libc::EROFS, libc::EDQUOT].map(of), [Failure::NoSpace; 3]);
        assert_eq!(of(libc::EIO), Failure::Io);
        assert_eq!(Failure::of(&ErrorKind::UnexpectedEof.into()), Failure::Corrupt);
    }

    #[test]
    fn failures_are_counted_under_their_names() {
        let counters = Counters::default();
        for (at, (failure, _)) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, at);
            (0..=at).for_each(|_| counters.failed(failure));
        }
        assert_eq!(counters.stats(0, 0).failures, [1, 2, 3, 4]);
    }
}
