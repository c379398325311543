//! Files and signals, through Landlock.
//!
//! The rights of ABI 3 are required: before it, files outside could be truncated. What later ones
//! have is taken where it exists: no TCP, no commands to devices, no signals and abstract Unix
//! sockets of processes outside. <https://docs.kernel.org/userspace-api/landlock.html>

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};
use std::path::PathBuf;

use crate::confinement::Network;
use crate::error::{ConfineError, Unsupported};
use crate::folders::Paths;

/// Restricts the calling thread to `paths`.
pub(crate) fn restrict(paths: &Paths, network: Network) -> Result<(), ConfineError> {
    let status = enforce(paths, network).map_err(ConfineError::step("set rules for files"))?;
    match status {
        RulesetStatus::NotEnforced => Err(Unsupported::Landlock.into()),
        _ => Ok(()),
    }
}

/// Keeps the calling thread from tracing and signalling processes that were started before, and
/// from writing elsewhere than in the folders `write`.
pub(crate) fn protect_ancestors(write: &[PathBuf]) -> Result<(), ConfineError> {
    let enforced = required()
        .handle_access(AccessFs::from_write(ABI::V3))
        .and_then(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort).scope(Scope::Signal))
        .and_then(Ruleset::create)
        .and_then(|ruleset| {
            let ruleset =
                ruleset.add_rules(path_beneath_rules(write, AccessFs::from_write(ABI::V3)))?;
            ruleset.add_rules(null_rules())?.restrict_self()
        });
    enforced.map(|_| ()).map_err(ConfineError::step("protect the processes before this one"))
}

/// Whether the kernel has the rights that are required.
pub(crate) fn is_supported() -> bool {
    required().handle_access(AccessFs::from_all(ABI::V3)).and_then(Ruleset::create).is_ok()
}

/// Whether the kernel limits signals and abstract Unix sockets.
pub(crate) fn has_scopes() -> bool {
    required().scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create).is_ok()
}

fn required() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

fn enforce(paths: &Paths, network: Network) -> Result<RulesetStatus, RulesetError> {
    let ruleset = handled(network)?
        .create()?
        .add_rules(path_beneath_rules(&paths.write, writing()))?
        .add_rules(path_beneath_rules(&paths.execute, AccessFs::from_read(ABI::V3)))?
        .add_rules(path_beneath_rules(&paths.read, AccessFs::ReadFile | AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(&paths.devices, AccessFs::ReadFile | AccessFs::IoctlDev))?
        .add_rules(null_rules())?;
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Writing to nowhere.
fn null_rules() -> impl Iterator<Item = Result<PathBeneath<PathFd>, RulesetError>> {
    path_beneath_rules(["/dev/null"], AccessFs::WriteFile | AccessFs::Truncate)
}

fn handled(network: Network) -> Result<Ruleset, RulesetError> {
    let ruleset = required()
        .handle_access(AccessFs::from_all(ABI::V3))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .scope(Scope::from_all(ABI::V6))?;
    match network {
        Network::None => ruleset.handle_access(AccessNet::from_all(ABI::V4)),
        Network::Internet => Ok(ruleset),
    }
}

/// All rights of ABI 3 except to make devices.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(ABI::V3) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}
