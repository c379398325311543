//! Capabilities: none, and none to come.
//!
//! With some of root's, as containers leave them, Landlock is no limit: with `CAP_PERFMON`, the
//! environment of a process outside is readable.

use rustix::io::{Errno, Result};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::error::ConfineError;

/// Executing a file gives no rights from now on, whoever owns it. Landlock and seccomp require it.
pub(crate) fn refuse_new() -> std::result::Result<(), ConfineError> {
    set_no_new_privs(true).map_err(ConfineError::step("refuse new privileges"))
}

/// Gives this process's files in `/proc` to root.
pub(crate) fn hide_process() -> std::result::Result<(), ConfineError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(ConfineError::step("hide"))
}

/// Empties all sets of capabilities.
pub(crate) fn drop_all() -> std::result::Result<(), ConfineError> {
    drop_sets().map_err(ConfineError::step("give up capabilities"))
}

fn drop_sets() -> Result<()> {
    clear_ambient_capability_set()?;
    empty_bounding_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets)?;
    if capabilities(None)? == sets { Ok(()) } else { Err(Errno::PERM) }
}

/// Without the right to it, as users are, the set stays: [`refuse_new`] makes it meaningless.
fn empty_bounding_set() -> Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => (),
            // The kernel knows no more of them.
            Err(_) => break,
        }
    }
    Ok(())
}
