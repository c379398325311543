//! A descriptor that is readable while something is ready: an event of Linux, elsewhere a pipe.
//!
//! Invariant: nothing here blocks.

use crate::error::CapiError;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{read, write};

/// A descriptor to poll.
#[derive(Debug)]
pub(crate) struct ReadyFd {
    reader: OwnedFd,
    /// The other end of a pipe.
    writer: Option<OwnedFd>,
}

/// Adds one to an event; any eight bytes to a pipe.
const ONE: [u8; 8] = 1u64.to_ne_bytes();

impl ReadyFd {
    pub(crate) fn new() -> Result<Self, CapiError> {
        open().map_err(|error| CapiError::System {
            what: "cannot open a descriptor to poll",
            source: error.into(),
        })
    }

    /// Makes the descriptor readable.
    pub(crate) fn set(&self) {
        // A full pipe is readable.
        let _ = write(self.writer.as_ref().unwrap_or(&self.reader), &ONE);
    }

    /// Makes the descriptor not readable.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 64];
        while read(&self.reader, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
    }

    pub(crate) fn number(&self) -> i32 {
        self.reader.as_raw_fd()
    }
}

#[cfg(target_os = "linux")]
fn open() -> rustix::io::Result<ReadyFd> {
    use rustix::event::{EventfdFlags, eventfd};
    let reader = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(ReadyFd { reader, writer: None })
}

#[cfg(not(target_os = "linux"))]
fn open() -> rustix::io::Result<ReadyFd> {
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::io::{FdFlags, fcntl_setfd};
    let (reader, writer) = rustix::pipe::pipe()?;
    for end in [&reader, &writer] {
        fcntl_setfl(end, OFlags::NONBLOCK)?;
        fcntl_setfd(end, FdFlags::CLOEXEC)?;
    }
    Ok(ReadyFd { reader, writer: Some(writer) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn the_descriptor_is_readable_from_set_to_clear() {
        let fd = ReadyFd::new().unwrap();
        let is_ready = || {
            let mut polled = [PollFd::new(&fd.reader, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!is_ready());
        (0..100).for_each(|_| fd.set());
        assert!(is_ready());
        fd.clear();
        assert!(!is_ready());
        fd.clear();
        fd.set();
        assert!(is_ready());
    }
}
