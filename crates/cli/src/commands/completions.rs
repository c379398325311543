//! `gannet completions`: shell completion scripts.

use crate::output;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a completion script for a shell
///
/// For bash, for example: gannet completions bash >
/// ~/.local/share/bash-completion/completions/gannet
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "gannet", &mut script);
    output::text(&String::from_utf8_lossy(&script))
}
