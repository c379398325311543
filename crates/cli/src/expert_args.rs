//! The arguments for what is known of the choices of experts.

use crate::folders;
use engine::{LoadOptions, ProfileUse};
use std::path::PathBuf;

/// The arguments for what is known of the choices of experts.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct ExpertArgs {
    /// Read experts at the start that earlier runs have used most, where not all are in memory:
    /// auto, or off. `gannet experts profile` shows what is known
    #[arg(long, value_name = "auto|off", default_value = "auto", value_parser = preload)]
    #[arg(action = clap::ArgAction::Set)]
    weights_preload: bool,
    /// Write which experts the rows of each step choose into this file, for `gannet experts
    /// simulate`
    #[arg(long, value_name = "FILE")]
    route_trace: Option<PathBuf>,
}

/// `auto` or `off`, which YAML reads as `false`.
fn preload(text: &str) -> Result<bool, String> {
    match text {
        "auto" => Ok(true),
        "off" | "false" => Ok(false),
        other => Err(format!("expected auto or off, found {other:?}")),
    }
}

impl ExpertArgs {
    /// `options` with these arguments.
    pub fn add_to(&self, options: LoadOptions) -> LoadOptions {
        let profiles = |folder| ProfileUse { folder, preload: self.weights_preload, record: true };
        LoadOptions {
            route_trace: self.route_trace.clone(),
            expert_profiles: profile_folder().map(profiles),
            ..options
        }
    }
}

/// The folder of profiles in the user's cache folder.
pub(crate) fn profile_folder() -> Option<PathBuf> {
    Some(folders::cache()?.join("experts"))
}
