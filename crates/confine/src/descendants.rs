//! The end of all descendants of the calling process.
//!
//! A process whose parent ends gets the nearest *subreaper* above as its parent, so that nothing
//! leaves the tree below the calling process. A process that is to be killed starts no other.
//! Children are looked for first and often, since what starts itself anew and ends becomes a child;
//! all others are found in `/proc`, which takes longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::error::ConfineError;

/// How long descendants are killed before the caller hears of survivors.
const MAX_SECONDS: u64 = 20;
/// Looks for children between two looks for all descendants.
const CHILDREN: usize = 64;

/// Makes the calling process the parent of all its descendants whose own parent ends.
///
/// # Errors
///
/// The system refuses.
pub fn adopt_orphans() -> Result<(), ConfineError> {
    rustix::process::set_child_subreaper(Some(getpid()))
        .map_err(ConfineError::step("adopt orphaned descendants"))
}

/// Kills and reaps all descendants.
pub(crate) fn kill_all() -> Result<(), ConfineError> {
    let end = Instant::now() + Duration::from_secs(MAX_SECONDS);
    loop {
        for _ in 0..CHILDREN {
            let children = children();
            if children.is_empty() {
                break;
            }
            kill(&children);
        }
        let alive = descendants()?;
        if alive.is_empty() {
            return Ok(());
        }
        kill(&alive);
        if Instant::now() > end {
            return Err(ConfineError::Survivors { count: alive.len(), seconds: MAX_SECONDS });
        }
    }
}

/// Kills these processes, and reaps children among them, now or at a later look. One that has ended
/// meanwhile is no error.
fn kill(pids: &[Pid]) {
    for pid in pids {
        let _ended = kill_process(*pid, Signal::KILL);
    }
    for pid in pids {
        let _not_a_child = waitpid(Some(*pid), WaitOptions::NOHANG);
    }
}

/// The children of all threads of the calling process, also the ones that have ended and were not
/// waited for; none where the system has no such list.
pub fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let lists: Vec<String> = lists.filter_map(Result::ok).collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

/// All descendants, also the ones that have ended and were not waited for.
fn descendants() -> Result<Vec<Pid>, ConfineError> {
    let children = children_by_parent().map_err(ConfineError::step("list processes"))?;
    let mut found = vec![getpid()];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children.get(parent).into_iter().flatten());
        next += 1;
    }
    Ok(found.split_off(1))
}

fn children_by_parent() -> std::io::Result<HashMap<Pid, Vec<Pid>>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        if let Some((pid, parent)) = pid.and_then(|pid| Some((pid, parent(pid)?))) {
            children.entry(parent).or_default().push(pid);
        }
    }
    Ok(children)
}

/// The second field after the program's name, which is in brackets and may hold any character.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    Pid::from_raw(fields.split_ascii_whitespace().nth(1)?.parse().ok()?)
}
