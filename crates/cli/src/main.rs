//! The `gannet` binary: one file per command.
//!
//! Invariant: the process ends with one of the exit codes of `exit`.

mod adapter_args;
mod args;
mod builtin;
mod commands;
mod conversation;
mod device;
mod effective;
mod elapsed;
mod endpoint_args;
mod exit;
mod folders;
mod help;
mod input;
mod interrupt;
mod key_file;
mod kv_dir;
mod load;
mod logging;
mod model;
mod new_file;
mod output;
mod placement;
mod progress;
mod reasoning;
mod receipt_args;
mod recorded_model;
mod runtime;
mod sessions;
mod settings;
mod size;
mod streamed_answer;
mod terminal;
mod weights;
mod weights_digest;
mod yaml;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use effective::EffectiveSettings;
use input::MissingText;
use logging::LogFormat;
use settings::SettingsFile;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run large language models on this machine
///
/// Without --model, the built-in model answers: gannet run "What is the capital of France?"
#[derive(Debug, Parser)]
#[command(name = "gannet", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    /// Settings file, instead of ./gannet.yaml or the one in the user's configuration folder
    #[arg(long, value_name = "FILE", env = "GANNET_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// Log more on standard error; may be repeated
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Log format
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(commands::run::Args),
    Chat(commands::chat::Args),
    Sessions(commands::sessions::Args),
    Serve(Box<commands::serve::Args>),
    Health(commands::health::Args),
    Batch(commands::batch::Args),
    Inspect(commands::inspect::Args),
    Embed(commands::embed::Args),
    Rerank(commands::rerank::Args),
    Tokenize(commands::tokenize::Args),
    Detokenize(commands::detokenize::Args),
    Template(commands::template::Args),
    Perplexity(commands::perplexity::Args),
    Compare(commands::compare::Args),
    Verify(commands::verify::Args),
    Devices(commands::devices::Args),
    Cache(commands::cache::Args),
    Experts(commands::experts::Args),
    Bench(commands::bench::Args),
    BenchServe(commands::bench_serve::Args),
    Synth(commands::synth::Args),
    Imatrix(commands::imatrix::Args),
    Quantize(commands::quantize::Args),
    Splice(commands::splice::Args),
    Pack(commands::pack::Args),
    Replay(commands::replay::Args),
    Receipt(commands::receipt::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

const AFTER_HELP: &str = "\
Settings: flags for models, devices, sampling, caches and serving are keys of gannet.yaml, by their
long names (temp: 0.7), and in capitals variables (GANNET_TEMP=0.7), for every command that has the
flag; gannet serve --print-config lists them. Flags override variables, variables override the file.
GANNET_LOG sets the log filter, GANNET_ISA the instruction set.

Exit codes: 0 success, 1 an error or a check that found something, 2 wrong usage, 130 Ctrl-C, 143
SIGTERM (serve: 0), 129 SIGHUP.";

fn main() -> ExitCode {
    exit::install_panic_hook();
    interrupt::install();
    let done = parse().and_then(|(cli, effective)| run(cli, &effective));
    exit::code(done.inspect_err(end_wrong_usage))
}

/// Ends the process with a usage error where a command lacks a text.
fn end_wrong_usage(error: &anyhow::Error) {
    let Some(MissingText { command, problem }) = error.downcast_ref() else { return };
    let mut cli = Cli::command();
    cli.build();
    let command = cli.find_subcommand_mut(command).expect("a command of this program");
    help::end(&command.error(ErrorKind::MissingRequiredArgument, problem))
}

/// The arguments alone, without settings, where they are right alone.
fn given() -> Option<Command> {
    let args = help::arguments();
    let command = args::with_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from(args).ok()?;
    Some(Cli::from_arg_matches(&matches).ok()?.command)
}

/// Parses the arguments over the settings; gives both merged as well. Wrong usage ends the process,
/// and so does a request for help, whatever the settings are.
fn parse() -> Result<(Cli, EffectiveSettings)> {
    let args = help::arguments();
    let command = || args::with_negative_numbers(help::shaped(Cli::command(), &args));
    let read = || SettingsFile::read(settings::file_asked_for(args.clone()).as_deref());
    let applied = read().and_then(|file| Ok((file.apply(command())?, file)));
    let (mut program, file, wrong) = match applied {
        Ok((program, file)) => (program, file, None),
        Err(error) => (command(), SettingsFile::default(), Some(error)),
    };
    // What is wrong with the arguments or the settings is logged as the rest would be.
    let log = || logging::install(0, effective::log_format(&args, &file));
    let matches = program.try_get_matches_from_mut(&args).unwrap_or_else(|error| {
        log();
        help::exit(error, &args, &mut command())
    });
    let effective = EffectiveSettings::of(&program, &matches, &file);
    if let Some(error) = wrong
        && effective.command_takes_settings()
    {
        log();
        return Err(error);
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| {
        log();
        help::end(&error)
    });
    Ok((cli, effective))
}

fn run(cli: Cli, effective: &EffectiveSettings) -> Result<()> {
    logging::install(cli.verbose, cli.log_format);
    effective.notes().iter().for_each(output::note);
    match cli.command {
        Command::Run(args) => commands::run::run(&args),
        Command::Chat(args) => commands::chat::run(&args, || match given()? {
            Command::Chat(args) => Some(args),
            _ => None,
        }),
        Command::Sessions(args) => commands::sessions::run(&args),
        Command::Serve(args) => commands::serve::run(&args, effective),
        Command::Health(args) => commands::health::run(&args),
        Command::Batch(args) => commands::batch::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args, effective),
        Command::Embed(args) => commands::embed::run(&args),
        Command::Rerank(args) => commands::rerank::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Detokenize(args) => commands::detokenize::run(&args),
        Command::Template(args) => commands::template::run(&args),
        Command::Perplexity(args) => commands::perplexity::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Devices(args) => commands::devices::run(&args),
        Command::Cache(args) => commands::cache::run(&args, || match given()? {
            Command::Cache(args) => Some(args),
            _ => None,
        }),
        Command::Experts(args) => commands::experts::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::BenchServe(args) => commands::bench_serve::run(&args),
        Command::Synth(args) => commands::synth::run(&args),
        Command::Imatrix(args) => commands::imatrix::run(&args),
        Command::Quantize(args) => commands::quantize::run(&args),
        Command::Splice(args) => commands::splice::run(&args),
        Command::Pack(args) => commands::pack::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Receipt(args) => commands::receipt::run(&args),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
        Command::Man(args) => commands::man::run(&args, Cli::command()),
    }
}
