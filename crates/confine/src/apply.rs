//! The application of a confinement, step by step.

use crate::confinement::Confinement;
use crate::error::ConfineError;
use crate::support::Support;
use std::path::PathBuf;

impl Confinement {
    /// Restricts the calling process, and with it all that it starts from now on, for good. Closes
    /// the descriptors from 3 on that it inherited, and makes it the parent of all its orphaned
    /// descendants.
    ///
    /// # Errors
    ///
    /// This machine lacks something, the process has a second thread, a folder does not exist,
    /// holds the home folder or is `/`, or the system refuses a step. The process is then not
    /// confined, or in part, and must do nothing of what it was started for.
    #[cfg(target_os = "linux")]
    pub fn apply(&self) -> Result<Support, ConfineError> {
        let support = crate::support::support()?;
        single_thread()?;
        let paths = crate::folders::paths(self)?;
        crate::descriptors::close_inherited()?;
        crate::limits::set(&self.limits)?;
        crate::descendants::adopt_orphans()?;
        crate::privileges::refuse_new()?;
        crate::landlock_rules::restrict(&paths, self.network)?;
        crate::privileges::drop_all()?;
        // Last, since it refuses calls that the steps above make.
        crate::filter::install(self.network)?;
        Ok(support)
    }

    /// Restricts nothing on this system.
    ///
    /// # Errors
    ///
    /// Always: this system is not Linux.
    #[cfg(not(target_os = "linux"))]
    pub fn apply(&self) -> Result<Support, ConfineError> {
        crate::folders::paths(self)?;
        Ok(crate::support::support()?)
    }
}

/// Kills all descendants of the calling process, which has applied a [`Confinement`], until there
/// are none, and reaps children. Exit codes of children that were not waited for are lost.
///
/// # Errors
///
/// `/proc` cannot be read, or descendants are still alive after some seconds.
pub fn kill_descendants() -> Result<(), ConfineError> {
    #[cfg(target_os = "linux")]
    return crate::descendants::kill_all();
    #[cfg(not(target_os = "linux"))]
    Err(crate::error::Unsupported::System.into())
}

/// Protects the processes that were started before the calling one, the parent included, from it
/// and from all that it starts: their descriptors and memory are out of reach, they are not
/// signalled (Linux 6.12), and of what they write only the folders `write` are written. A command
/// must neither end the process that watches it nor speak in its place. Called by a process of its
/// own between that one and the command.
///
/// # Errors
///
/// This machine lacks Landlock, or the process has a second thread.
pub fn protect_ancestors(write: &[PathBuf]) -> Result<(), ConfineError> {
    #[cfg(target_os = "linux")]
    return single_thread().and_then(|()| crate::landlock_rules::protect_ancestors(write));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = write;
        Err(crate::error::Unsupported::System.into())
    }
}

/// Keeps other processes of the user from opening the descriptors and the memory of the calling
/// one, except those with the capability to trace it.
///
/// # Errors
///
/// The system refuses.
pub fn hide_process() -> Result<(), ConfineError> {
    #[cfg(target_os = "linux")]
    return crate::privileges::hide_process();
    #[cfg(not(target_os = "linux"))]
    Err(crate::error::Unsupported::System.into())
}

#[cfg(target_os = "linux")]
fn single_thread() -> Result<(), ConfineError> {
    let tasks = std::fs::read_dir("/proc/self/task");
    match tasks.map_err(ConfineError::step("list the threads of the process"))?.count() {
        1 => Ok(()),
        count => Err(ConfineError::Threads { count }),
    }
}
