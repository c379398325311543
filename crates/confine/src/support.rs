//! What the machine can do.

use crate::error::Unsupported;

/// What of a confinement this machine has beyond the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Support {
    /// Signals and abstract Unix sockets of processes outside are out of reach: Linux 6.12.
    pub scopes: bool,
}

/// Whether this machine can confine a process. Restricts nothing.
///
/// # Errors
///
/// The first thing that is missing: Linux, a known CPU, `/proc`, Landlock with ABI 3, seccomp.
#[cfg(target_os = "linux")]
pub fn support() -> Result<Support, Unsupported> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err(Unsupported::Architecture);
    }
    if !std::path::Path::new("/proc/self/task").exists() {
        return Err(Unsupported::Proc);
    }
    if !crate::landlock_rules::is_supported() {
        return Err(Unsupported::Landlock);
    }
    rustix::thread::secure_computing_mode().map_err(|_| Unsupported::Seccomp)?;
    Ok(Support { scopes: crate::landlock_rules::has_scopes() })
}

/// Whether this machine can confine a process.
///
/// # Errors
///
/// Always: this system is not Linux.
#[cfg(not(target_os = "linux"))]
pub fn support() -> Result<Support, Unsupported> {
    Err(Unsupported::System)
}
