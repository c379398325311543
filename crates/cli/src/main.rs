//! The `gannet` binary: one file per command.
//!
//! Invariant: every way out is one of the exit codes of `exit`.

mod answer;
mod args;
mod builtin;
mod commands;
mod exit;
mod folders;
mod input;
mod interrupt;
mod load;
mod model;
mod output;
mod progress;
mod terminal;

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
    Bench(commands::bench::Args),
    Run(commands::run::Args),
    Serve(commands::serve::Args),
    Synth(commands::synth::Args),
    Verify(commands::verify::Args),
}

fn main() -> ExitCode {
    exit::install_panic_hook();
    interrupt::install();
    exit::code(match Cli::parse().command {
        Command::Bench(args) => commands::bench::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Synth(args) => commands::synth::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
    })
}
