//! Why a process could not be confined, or its descendants not ended.

use std::error::Error;
use std::path::PathBuf;

/// Why [`crate::Confinement::apply`] failed. Some restrictions may be in force by then: the process
/// has no use but to say so and to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// This machine lacks what a confinement needs.
    #[error("this machine cannot confine a process: {0}")]
    Unsupported(#[from] Unsupported),
    /// The process has other threads, which would stay as they are.
    #[error("a process confines itself before its second thread starts, and this one has {count}")]
    Threads {
        /// Threads of the process, the calling one included.
        count: usize,
    },
    /// The workspace or the temporary folder is no folder that can be opened.
    #[error("{}: expected a folder", path.display())]
    NotAFolder {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A folder that was named is `/` or holds the home folder.
    #[error("{}: holds the home folder, expected a folder inside or beside it", path.display())]
    TooWide {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The system refused a step.
    #[error("cannot {step}: {source}")]
    Step {
        /// What was attempted.
        step: &'static str,
        /// The system's answer.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Descendants were still there when time was up.
    #[error("{count} descendants are alive after {seconds} s of SIGKILL")]
    Survivors {
        /// Descendants that were seen last.
        count: usize,
        /// How long they were signalled.
        seconds: u64,
    },
}

impl ConfineError {
    /// An error of `step`, for `map_err`.
    #[cfg(target_os = "linux")]
    pub(crate) fn step<E>(step: &'static str) -> impl FnOnce(E) -> ConfineError
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        move |source| ConfineError::Step { step, source: source.into() }
    }
}

/// What this machine lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The system is not Linux.
    #[error("only Linux has Landlock and seccomp")]
    System,
    /// The kernel has no Landlock, an old one, or has it switched off.
    #[error("the kernel lacks Landlock with ABI 3 (Linux 6.2), or was started without it")]
    Landlock,
    /// The kernel has no filters of system calls.
    #[error("the kernel lacks seccomp")]
    Seccomp,
    /// No filter of system calls is written for this CPU.
    #[error("filters of system calls are for x86-64 and 64-bit Arm")]
    Architecture,
    /// `/proc` is not mounted: threads, descriptors and descendants cannot be listed.
    #[error("/proc is not mounted")]
    Proc,
}
