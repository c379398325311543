//! Processes that left their command's group: the process of the tools takes them as its own, so
//! that it knows of them and can end them.

#[cfg(target_os = "linux")]
pub(crate) use linux::{adopt, check, children, reap};

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
        Ok(process::set_child_subreaper(Some(process::getpid()))?)
    }

    /// The children of all threads of this process.
    pub(crate) fn children() -> Vec<Pid> {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
        let lists: Vec<String> = lists.filter_map(Result::ok).collect();
        let numbers = lists.iter().flat_map(|list| list.split_whitespace());
        numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
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
