//! The confinement as a value.

use std::path::PathBuf;

use crate::user::UserFolders;

/// What a process and its children may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The folder that is worked in: written unless [`Confinement::read_only`], and read.
    pub workspace: PathBuf,
    /// A private folder for temporary files, always written.
    pub temporary: PathBuf,
    /// A folder that is written as the temporary one is, and that commands may only read (see
    /// [`protect_ancestors`](crate::protect_ancestors)).
    pub kept: Option<PathBuf>,
    /// More folders, written as the workspace is. One that does not exist is left out.
    pub write: Vec<PathBuf>,
    /// More folders and files that are read. One that does not exist is left out.
    pub read: Vec<PathBuf>,
    /// The temporary folder alone is written, and all else is read.
    pub read_only: bool,
    /// What sockets may be opened.
    pub network: Network,
    /// Limits of processes and files.
    pub limits: ProcessLimits,
    /// Where the user's home and tools are.
    pub user: UserFolders,
}

impl Confinement {
    /// Writes to `workspace` and to `temporary`, without a network, for the user whose environment
    /// this process has.
    pub fn new(workspace: impl Into<PathBuf>, temporary: impl Into<PathBuf>) -> Confinement {
        Confinement {
            workspace: workspace.into(),
            temporary: temporary.into(),
            kept: None,
            write: Vec::new(),
            read: Vec::new(),
            read_only: false,
            network: Network::None,
            limits: ProcessLimits::default(),
            user: UserFolders::of_process(),
        }
    }
}

impl Confinement {
    /// The folders in which commands of the confined process write.
    pub fn commands_write(&self) -> Vec<PathBuf> {
        let worked_in = std::iter::once(&self.workspace).chain(&self.write);
        let worked_in = worked_in.filter(|_| !self.read_only);
        std::iter::once(&self.temporary).chain(worked_in).cloned().collect()
    }
}

/// What sockets a process may open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None, of any family. Connected pairs of Unix sockets, as between parent and child, stay.
    #[default]
    None,
    /// Those of IPv4 and IPv6. Names are resolved by DNS; resolvers that are asked over a Unix
    /// socket are passed over by the C library, because such sockets reach other services too.
    Internet,
}

/// Limits of a process and its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Processes and threads that may be started beyond the user's present ones. The kernel counts
    /// those of the user, and does not count root's.
    pub processes: u64,
    /// Bytes that a file may grow to.
    pub file_size: u64,
}

impl Default for ProcessLimits {
    /// 1024 processes and threads, files of 16 GiB: enough for builds, and an end to fork bombs.
    fn default() -> Self {
        ProcessLimits { processes: 1024, file_size: 16 << 30 }
    }
}
