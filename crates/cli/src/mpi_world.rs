//! The ranks that MPI has started, which this process joins once.

use crate::output::{failure, note};
use anyhow::{Result, bail};
use dist::{Comm, Mpi};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All ranks, once they are joined. Kept until the process ends: MPI waits for all ranks when it
/// ends, also for one that has failed.
static WORLD: Mutex<Option<Arc<Mpi>>> = Mutex::new(None);

/// Time between the loss of a rank and the end of the others.
const LAST_WORDS: Duration = Duration::from_millis(1500);

/// Time for what the first rank does after its command.
const LAST_STEPS: Duration = Duration::from_secs(15);

/// Joins the ranks that the launcher has started, each of which is gone after `timeout` of silence.
///
/// # Errors
/// If there is no MPI library, or the ranks were joined before.
pub(crate) fn join(timeout: Duration) -> Result<Arc<dyn Comm>> {
    let mut joined = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if joined.is_some() {
        bail!("ranks that MPI starts load one model, and this command loads another one");
    }
    let mut world = Mpi::world()?;
    let rank = world.rank();
    let on_gone = move |error: dist::Error| {
        if rank == 0 {
            failure(error);
        }
        // Streams end with an error before the process does.
        std::thread::sleep(LAST_WORDS);
        Mpi::abandon(1);
    };
    if !world.watch(timeout, on_gone)? && rank == 0 {
        let version = world.version();
        note(format_args!("no heartbeats: {version} takes calls of one thread at a time"));
    }
    let world = Arc::new(world);
    *joined = Some(world.clone());
    Ok(world)
}

/// Ends MPI with the process, which ends with this exit code.
pub(crate) fn end(code: u8) {
    let joined = WORLD.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (joined, code) {
        (None, _) => {}
        (Some(world), 0) => {
            // An engine ends on a thread of its own, after its last request.
            let until = Instant::now() + LAST_STEPS;
            while Arc::strong_count(&world) > 1 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        (Some(_), code) => Mpi::abandon(code),
    }
}

/// Finds out which ranks are gone: launchers end all ranks soon after one has died.
pub(crate) fn ping() {
    if let Ok(joined) = WORLD.try_lock()
        && let Some(world) = &*joined
        && world.rank() == 0
    {
        world.ping();
    }
}

/// Ends the process at once if it is one of the ranks of MPI, which then end too.
pub(crate) fn leave(code: u8) {
    let is_joined = WORLD.try_lock().is_ok_and(|joined| joined.is_some());
    if is_joined {
        Mpi::abandon(code);
    }
    if Mpi::launched_ranks().is_some_and(|ranks| ranks > 1) {
        // Other ranks may wait for this one to join. Not all launchers end them when one exits
        // before, whatever its code; when a signal ends it, all do.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
