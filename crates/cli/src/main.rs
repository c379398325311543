//! The `gannet` binary: one file per command.
//!
//! Invariant: every way out is one of the exit codes of `exit`.

mod commands;
mod exit;
mod output;
mod progress;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs large language models on the machine in front of you.
#[derive(Debug, Parser)]
#[command(name = "gannet", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a checkpoint of random weights, to measure speed without a download
    Synth(commands::synth::Args),
}

fn main() -> ExitCode {
    exit::install_panic_hook();
    let result = match Cli::parse().command {
        Command::Synth(args) => commands::synth::run(&args),
    };
    exit::code(result)
}
