//! Limits on processes, files and core dumps.

use std::os::unix::fs::MetadataExt;

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use crate::confinement::ProcessLimits;
use crate::error::ConfineError;

/// Lowers the limits of the calling process. A limit that is lower already stays.
pub(crate) fn set(limits: &ProcessLimits) -> Result<(), ConfineError> {
    let processes = tasks_of_user().saturating_add(limits.processes);
    let wanted =
        [(Resource::Nproc, processes), (Resource::Fsize, limits.file_size), (Resource::Core, 0)];
    for (resource, most) in wanted {
        lower(resource, most).map_err(ConfineError::step("set limits"))?;
    }
    Ok(())
}

fn lower(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let before = getrlimit(resource);
    let lowered = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let [current, maximum] = [before.current, before.maximum].map(lowered);
    setrlimit(resource, Rlimit { current, maximum })
}

/// Threads of all processes of the user, which the kernel's limit counts as well.
fn tasks_of_user() -> u64 {
    let user = getuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    // A folder has a link from each folder in it, and two of its own.
    let tasks = entries.filter_map(|entry| entry.path().join("task").metadata().ok());
    tasks.filter(|task| task.uid() == user).map(|task| task.nlink().saturating_sub(2)).sum()
}
