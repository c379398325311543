//! Which MPI library is loaded.

use super::library::{Loaded, MpiLibrary};
use crate::error::Error;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

/// The variable that names the library.
const VARIABLE: &str = "GANNET_MPI";
/// Variables by which launchers tell the ranks of processes.
const RANKS: [&str; 3] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];
/// Variables by which launchers tell the number of ranks.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Names of libraries, and the launcher that they belong to.
#[cfg(not(target_os = "macos"))]
const NAMES: [&str; 3] = ["libmpi.so.40", "libmpi_abi.so.1", "libmpi.so.12"];
#[cfg(target_os = "macos")]
const NAMES: [&str; 3] = ["libmpi.40.dylib", "libmpi_abi.1.dylib", "libmpi.12.dylib"];

/// Whether a launcher of MPI has started this process.
pub(super) fn is_launched() -> bool {
    RANKS.iter().any(|name| std::env::var_os(name).is_some())
}

/// The rank that a launcher says this process is.
pub(super) fn launched_rank() -> Option<usize> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The paths that are tried in order: that of `GANNET_MPI` alone if it is set, else the known names
/// next to the launcher, and where the loader looks.
pub(super) fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let mut names = NAMES.to_vec();
    // The launcher decides which library can find the other ranks.
    if std::env::var_os("PMI_RANK").is_some() && std::env::var_os("PMIX_RANK").is_none() {
        names.rotate_left(1);
    }
    let folders = launchers().into_iter();
    let beside = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let beside: Vec<PathBuf> = beside.filter(|path| path.is_file()).collect();
    beside.into_iter().chain(names.iter().map(PathBuf::from)).collect()
}

/// Folders of libraries that belong to the launcher that has started this process, where the
/// system tells, and to launchers of the PATH.
fn launchers() -> Vec<PathBuf> {
    let parent = std::fs::read_link(format!("/proc/{}/exe", parent_id())).ok();
    let parent = parent.filter(|_| is_launched());
    let own = parent.and_then(|program| program.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).filter(|folder| folder.join("mpirun").is_file());
    let folders = own.into_iter().chain(others);
    folders.filter_map(|folder| Some(folder.parent()?.join("lib"))).collect()
}

/// Loads and initialises the library.
///
/// # Errors
/// If there is none, the one that is named or found first cannot be used, or it does not know the
/// launcher.
pub(super) fn open() -> Result<MpiLibrary, Error> {
    let tried = candidates();
    let mut last = String::new();
    for path in &tried {
        let library = match Loaded::open(path) {
            Err(Error::Library { problem, .. }) if tried.len() > 1 => {
                last = format!(" ({}: {problem})", path.display());
                continue;
            }
            loaded => loaded?.start()?,
        };
        let expected = launched_ranks().unwrap_or(library.ranks);
        if expected == library.ranks {
            return Ok(library);
        }
        let found = library.ranks;
        return Err(Error::Launcher { path: path.clone(), expected, found, variable: VARIABLE });
    }
    let names: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
    Err(Error::NoLibrary { tried: names.join(", "), variable: VARIABLE, last })
}

/// The number of ranks that a launcher says it has started.
pub(super) fn launched_ranks() -> Option<usize> {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}
