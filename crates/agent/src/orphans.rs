//! Processes that left their command's group: the process of the tools takes them as its own, so
//! that it knows of them and can end them.

#[cfg(target_os = "linux")]
pub(crate) use confine::children;
#[cfg(target_os = "linux")]
pub(crate) use linux::{adopt, check, reap};

#[cfg(target_os = "linux")]
mod linux {
    use rustix::process::{self, Pid, WaitId, WaitIdOptions};
    use std::fs;
    use std::io;

    /// Makes this process the parent of all its descendants whose own parent ends.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(crate) fn adopt() -> io::Result<()> {
        confine::adopt_orphans().map_err(io::Error::other)
    }

    /// Takes note of the end of a child, if it has ended.
    pub(crate) fn reap(child: Pid) {
        // It may have been taken note of before.
        let _ = process::waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }

    /// Checks that the children of this process are listed.
    ///
    /// # Errors
    ///
    /// If the system has no such list.
    pub(crate) fn check() -> io::Result<()> {
        fs::read("/proc/thread-self/children").map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use other::{adopt, check, children, reap};

#[cfg(not(target_os = "linux"))]
mod other {
    use rustix::process::Pid;
    use std::io;

    /// Fails, since other systems have no such process.
    pub(crate) fn adopt() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn children() -> Vec<Pid> {
        Vec::new()
    }

    pub(crate) fn reap(_: Pid) {}

    pub(crate) fn check() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
