//! `gannet experts`: which experts tokens choose, and which of them memory should hold.

mod profile;
mod simulate;

use anyhow::Result;
use clap::Subcommand;

/// Show which experts tokens choose, and simulate which of them stay in memory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ExpertsCommand,
}

#[derive(Debug, Subcommand)]
enum ExpertsCommand {
    Simulate(simulate::Args),
    Profile(profile::Args),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        ExpertsCommand::Simulate(args) => simulate::run(args),
        ExpertsCommand::Profile(args) => profile::run(args),
    }
}
