//! The command line of `gannet`: one file per command. The binary, and a console script of another
//! language, call [`run`].
//!
//! Invariant: the process ends with one of the exit codes of `exit`.
// What a lesser build does not use.
#![cfg_attr(
    not(all(feature = "chat", feature = "hub", feature = "serve", feature = "tools")),
    allow(dead_code, unused_imports)
)]

mod adapter_args;
mod args;
mod better_model;
mod builtin;
mod commands;
#[cfg(any(feature = "chat", feature = "tools"))]
mod conversation;
mod device;
#[cfg(feature = "hub")]
mod download;
mod draft_args;
mod durations;
mod effective;
mod elapsed;
#[cfg(feature = "serve")]
mod endpoint_args;
mod exit;
mod folders;
mod held_lines;
mod help;
mod input;
mod interrupt;
mod key_file;
mod kv_dir;
mod lacking;
mod load;
mod logging;
mod model;
mod mpi_world;
mod new_file;
mod output;
mod placement;
mod progress;
mod rank_args;
mod ranked_model;
mod reasoning;
mod receipt_args;
#[cfg(any(feature = "serve", feature = "tools"))]
mod recorded_model;
mod runtime;
#[cfg(any(feature = "chat", feature = "tools"))]
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
use exit::WrongUsage;
use input::MissingText;
use logging::LogFormat;
use ranked_model::RankedModel;
use settings::SettingsFile;
use std::ffi::OsString;
use std::path::PathBuf;

/// Run large language models on this machine
///
/// Without --model, the built-in model answers: gannet run "What is the capital of France?"
#[derive(Debug, Parser)]
#[command(name = "gannet", version, propagate_version = true, after_help = after_help())]
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
    Run(Box<commands::run::Args>),
    #[cfg(feature = "chat")]
    Chat(Box<commands::chat::Args>),
    #[cfg(feature = "agent")]
    Agent(Box<commands::agent::Args>),
    #[cfg(feature = "chat")]
    Sessions(commands::sessions::Args),
    #[cfg(feature = "serve")]
    Serve(Box<commands::serve::Args>),
    #[cfg(feature = "serve")]
    Health(commands::health::Args),
    #[cfg(feature = "serve")]
    Batch(Box<commands::batch::Args>),
    Inspect(commands::inspect::Args),
    Embed(commands::embed::Args),
    Rerank(commands::rerank::Args),
    Tokenize(commands::tokenize::Args),
    Detokenize(commands::detokenize::Args),
    Template(commands::template::Args),
    #[cfg(feature = "tools")]
    Perplexity(commands::perplexity::Args),
    #[cfg(feature = "tools")]
    Compare(commands::compare::Args),
    #[cfg(feature = "tools")]
    Verify(commands::verify::Args),
    Devices(commands::devices::Args),
    #[cfg(feature = "tools")]
    Cache(commands::cache::Args),
    #[cfg(feature = "tools")]
    Experts(commands::experts::Args),
    #[cfg(feature = "tools")]
    Bench(Box<commands::bench::Args>),
    #[cfg(feature = "tools")]
    BenchServe(commands::bench_serve::Args),
    #[cfg(feature = "tools")]
    Synth(commands::synth::Args),
    #[cfg(feature = "tools")]
    Imatrix(commands::imatrix::Args),
    #[cfg(feature = "tools")]
    Quantize(commands::quantize::Args),
    #[cfg(feature = "tools")]
    Splice(commands::splice::Args),
    #[cfg(feature = "tools")]
    Pack(commands::pack::Args),
    #[cfg(feature = "tools")]
    Replay(commands::replay::Args),
    #[cfg(feature = "serve")]
    Receipt(commands::receipt::Args),
    #[cfg(feature = "tools")]
    Completions(commands::completions::Args),
    #[cfg(feature = "tools")]
    Man(commands::man::Args),
}

impl Command {
    /// Does what ranks after the first do, on one that MPI has started; `None` elsewhere.
    fn as_rank(&self) -> Option<Result<()>> {
        if self.refuses_ranks() && ranked_model::is_one_of_several() {
            if ranked_model::is_follower() {
                return Some(Err(ranked_model::reported_by_first()));
            }
            let problem = "this command divides no model among ranks: start it without mpirun";
            return Some(Err(WrongUsage::new(problem).into()));
        }
        let ranked = if ranked_model::is_follower() { self.ranked()? } else { return None };
        Some(ranked.and_then(|ranked| ranked.run()))
    }

    /// Whether the command loads a model that ranks cannot share.
    fn refuses_ranks(&self) -> bool {
        #[cfg(feature = "tools")]
        return matches!(self, Self::Imatrix(_) | Self::Compare(_) | Self::Pack(_));
        #[cfg(not(feature = "tools"))]
        false
    }

    /// The model as ranks load it, where several ranks may share it.
    fn ranked(&self) -> Option<Result<RankedModel>> {
        Some(match self {
            Self::Run(args) => args.source.ranked(),
            #[cfg(feature = "chat")]
            Self::Chat(args) => args.source.ranked(),
            #[cfg(feature = "serve")]
            Self::Serve(args) => args.source.ranked(),
            #[cfg(feature = "serve")]
            Self::Batch(args) => args.source.ranked(),
            Self::Embed(args) => args.source.ranked(),
            Self::Rerank(args) => args.source.ranked(),
            #[cfg(feature = "tools")]
            Self::Perplexity(args) => args.ranked(),
            #[cfg(feature = "tools")]
            Self::Verify(args) => args.ranked(),
            #[cfg(feature = "tools")]
            Self::Bench(args) => args.ranked(),
            #[cfg(feature = "tools")]
            Self::Replay(args) => args.ranked(),
            _ => return None,
        })
    }
}

fn after_help() -> String {
    let listed = match cfg!(feature = "serve") {
        true => "; gannet serve --print-config lists them",
        false => "",
    };
    SETTINGS_AND_CODES.replace("{listed}", listed)
}

const SETTINGS_AND_CODES: &str = "\
Settings: flags for models, devices, sampling, caches, serving and the agent are keys of gannet.yaml,
by their long names (temp: 0.7), and in capitals variables (GANNET_TEMP=0.7), for every command that
has the flag{listed}. Flags override variables, variables override the file.
GANNET_LOG sets the log filter, GANNET_ISA the instruction set.

Exit codes: 0 success, 1 an error or a check that found something, 2 wrong usage, 130 Ctrl-C, 143
SIGTERM (serve: 0), 129 SIGHUP, 131 SIGQUIT.";

/// Runs the command that `args` ask for, of which the first is the name of the program, and gives
/// its exit code. Installs a panic hook and signal handlers, and is called once, on the main
/// thread of a process that does nothing else: help, wrong usage and signals end the process.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    exit::install_panic_hook();
    let args: Vec<OsString> = args.into_iter().collect();
    #[cfg(feature = "agent")]
    if let Some(code) = commands::agent::serve_tools(&args) {
        return code;
    }
    interrupt::install();
    let args = help::arguments(args);
    let done = parse(&args).and_then(|(cli, effective)| follow(cli, &effective, &args));
    let code = exit::code(done.inspect_err(end_wrong_usage));
    mpi_world::end(code);
    code
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
fn given(args: &[OsString]) -> Option<Command> {
    let command = args::with_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from(args).ok()?;
    Some(Cli::from_arg_matches(&matches).ok()?.command)
}

/// Parses the arguments over the settings; gives both merged as well. Wrong usage ends the process,
/// and so does a request for help, whatever the settings are.
fn parse(args: &[OsString]) -> Result<(Cli, EffectiveSettings)> {
    let command = || args::with_negative_numbers(help::shaped(Cli::command(), args));
    let read = || SettingsFile::read(&settings::asked_for(args));
    let applied = read().and_then(|file| Ok((file.apply(command())?, file)));
    let (mut program, file, wrong) = match applied {
        Ok((program, file)) => (program, file, None),
        Err(error) => (command(), SettingsFile::default(), Some(error)),
    };
    // What is wrong with the arguments or the settings is logged as the rest would be.
    let log = || logging::install(0, effective::log_format(args, &file));
    let matches = program.try_get_matches_from_mut(args).unwrap_or_else(|error| {
        log();
        #[cfg(feature = "agent")]
        if error.use_stderr() {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            commands::agent::say_end(args, first.trim_start_matches("error: "));
        }
        help::exit(error, args, &mut command())
    });
    let effective = EffectiveSettings::of(&program, &matches, &file);
    if let Some(error) = wrong
        && effective.command_takes_settings()
    {
        log();
        #[cfg(feature = "agent")]
        commands::agent::say_end(args, format_args!("{error:#}"));
        return Err(error);
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| {
        log();
        help::end(&error)
    });
    Ok((cli, effective))
}

/// Runs the agent, which treats what the command line names and what settings name differently.
#[cfg(feature = "agent")]
fn run_agent(
    args: commands::agent::Args,
    effective: &EffectiveSettings,
    all: &[OsString],
) -> Result<()> {
    let given = given(all).and_then(|command| match command {
        Command::Agent(args) => Some(*args),
        _ => None,
    });
    commands::agent::run(args, given, effective.mcp())
}

/// Does what a command says. `all` are all arguments, as they were given.
#[cfg_attr(not(any(feature = "chat", feature = "tools")), allow(unused_variables))]
fn follow(cli: Cli, effective: &EffectiveSettings, all: &[OsString]) -> Result<()> {
    logging::install(cli.verbose, cli.log_format);
    if let Some(done) = cli.command.as_rank() {
        return done;
    }
    effective.notes().iter().for_each(output::note);
    match cli.command {
        Command::Run(args) => commands::run::run(&args),
        #[cfg(feature = "chat")]
        Command::Chat(args) => commands::chat::run(&args, || match given(all)? {
            Command::Chat(args) => Some(*args),
            _ => None,
        }),
        #[cfg(feature = "agent")]
        Command::Agent(args) => run_agent(*args, effective, all),
        #[cfg(feature = "chat")]
        Command::Sessions(args) => commands::sessions::run(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => commands::serve::run(&args, effective),
        #[cfg(feature = "serve")]
        Command::Health(args) => commands::health::run(&args),
        #[cfg(feature = "serve")]
        Command::Batch(args) => commands::batch::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args, effective),
        Command::Embed(args) => commands::embed::run(&args),
        Command::Rerank(args) => commands::rerank::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Detokenize(args) => commands::detokenize::run(&args),
        Command::Template(args) => commands::template::run(&args),
        #[cfg(feature = "tools")]
        Command::Perplexity(args) => commands::perplexity::run(&args),
        #[cfg(feature = "tools")]
        Command::Compare(args) => commands::compare::run(&args),
        #[cfg(feature = "tools")]
        Command::Verify(args) => commands::verify::run(&args),
        Command::Devices(args) => commands::devices::run(&args),
        #[cfg(feature = "tools")]
        Command::Cache(args) => commands::cache::run(&args, || match given(all)? {
            #[cfg(feature = "tools")]
            Command::Cache(args) => Some(args),
            _ => None,
        }),
        #[cfg(feature = "tools")]
        Command::Experts(args) => commands::experts::run(&args),
        #[cfg(feature = "tools")]
        Command::Bench(args) => commands::bench::run(&args),
        #[cfg(feature = "tools")]
        Command::BenchServe(args) => commands::bench_serve::run(&args),
        #[cfg(feature = "tools")]
        Command::Synth(args) => commands::synth::run(&args),
        #[cfg(feature = "tools")]
        Command::Imatrix(args) => commands::imatrix::run(&args),
        #[cfg(feature = "tools")]
        Command::Quantize(args) => commands::quantize::run(&args),
        #[cfg(feature = "tools")]
        Command::Splice(args) => commands::splice::run(&args),
        #[cfg(feature = "tools")]
        Command::Pack(args) => commands::pack::run(&args),
        #[cfg(feature = "tools")]
        Command::Replay(args) => commands::replay::run(&args),
        #[cfg(feature = "serve")]
        Command::Receipt(args) => commands::receipt::run(&args),
        #[cfg(feature = "tools")]
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
        #[cfg(feature = "tools")]
        Command::Man(args) => commands::man::run(&args, Cli::command()),
    }
}
