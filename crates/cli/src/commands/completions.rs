//! `gannet completions`: shell completion scripts.

use crate::output;
use anyhow::Result;
use backend::Mode;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::Shell;
use convert::synth;
use engine::{CacheRounding, DiskWrite, KvType};
use text::ToolFormat;

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
    let mut program = with_values(crate::Cli::command());
    clap_complete::generate(args.shell, &mut program, "gannet", &mut script);
    output::text(&String::from_utf8_lossy(&script))
}

/// The command with the values of its options, as far as they are names. Only scripts see them:
/// what an option takes is decided where it is parsed.
fn with_values(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match values(&arg) {
        values if values.is_empty() => arg,
        values => arg.value_parser(PossibleValuesParser::new(values)),
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_values))
}

/// The names that an option takes; none where it takes no names, or says them itself.
fn values(arg: &Arg) -> Vec<&'static str> {
    let is_known = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    match arg.get_long().unwrap_or(arg.get_id().as_str()) {
        _ if !is_known || !arg.get_possible_values().is_empty() => Vec::new(),
        "mode" => [Mode::Exact, Mode::Fast].map(Mode::name).to_vec(),
        "device" => {
            let names = devices::DEVICES.iter().map(|device| device.name);
            std::iter::once("auto").chain(names).collect()
        }
        "kv-type" | "b-kv-type" => KvType::ALL.map(KvType::name).to_vec(),
        "cache-rounding" => CacheRounding::ALL.map(|(_, name)| name).to_vec(),
        "kv-dir-write" => DiskWrite::ALL.map(|(_, name)| name).to_vec(),
        "tool-format" => ToolFormat::ALL.iter().map(|format| format.name).collect(),
        "shape" => synth::shape_names().collect(),
        "speculate" => vec!["off", "ngram:4", "ngram:8"],
        "weights-memory" => vec!["auto", "all"],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_complete_the_names_of_values() {
        let mut script = Vec::new();
        let mut program = with_values(crate::Cli::command());
        clap_complete::generate(Shell::Bash, &mut program, "gannet", &mut script);
        let script = String::from_utf8(script).unwrap();
        for expected in ["\"exact fast\"", "\"auto cpu", "hermes", "tiny-qwen3", "none minimal low"]
        {
            assert!(script.contains(expected), "{expected}");
        }
    }
}
