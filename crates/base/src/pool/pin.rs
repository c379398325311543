//! Pinning threads to CPUs, where the system can.

use std::io;

/// No CPU, or an unknown one.
pub(super) const NOWHERE: usize = usize::MAX;

/// The CPUs that this process may use, one of each core first, as of the first call: a thread that
/// is pinned later sees only its own.
///
/// # Errors
/// If the system cannot list or pin CPUs.
#[cfg(target_os = "linux")]
pub(super) fn cpus() -> io::Result<&'static [usize]> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    use std::sync::OnceLock;
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(cpus) = CPUS.get() {
        return Ok(cpus);
    }
    let allowed = sched_getaffinity(None)?;
    let mut cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    cpus.sort_by_key(|&cpu| (!is_first_of_core(cpu), cpu));
    Ok(CPUS.get_or_init(|| cpus))
}

/// The CPU that the calling thread is on.
#[cfg(target_os = "linux")]
pub(super) fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// Moves the calling thread away from these CPUs to another that it may use; false if there is
/// none. The set of CPUs that it may use is unchanged.
#[cfg(target_os = "linux")]
pub(super) fn leave(taken: impl Iterator<Item = usize>) -> bool {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    let mut free = allowed;
    taken.filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| free.unset(cpu));
    let gone = free.count() > 0 && sched_setaffinity(None, &free).is_ok();
    gone && sched_setaffinity(None, &allowed).is_ok()
}

/// Whether no CPU before this one shares its core; true where the system does not say.
#[cfg(target_os = "linux")]
fn is_first_of_core(cpu: usize) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let siblings = std::fs::read_to_string(path).unwrap_or_default();
    let first = siblings.split(|c: char| !c.is_ascii_digit()).next();
    first.and_then(|first| first.parse().ok()).is_none_or(|first: usize| first == cpu)
}

/// Binds the calling thread to CPUs.
#[cfg(target_os = "linux")]
pub(super) fn bind(cpus: &[usize]) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn cpus() -> io::Result<&'static [usize]> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not pin threads to CPUs"))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn leave(_taken: impl Iterator<Item = usize>) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn current() -> usize {
    NOWHERE
}

#[cfg(not(target_os = "linux"))]
pub(super) fn bind(_cpus: &[usize]) -> io::Result<()> {
    Ok(())
}
