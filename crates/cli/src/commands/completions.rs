//! `gannet completions`: shell completion scripts.

use crate::output;
use anyhow::Result;
use api::CacheIsolation;
use backend::{Bits, Mode};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use convert::{Mixture, synth};
use engine::{AdapterSource, CacheRounding, DiskWrite};
use formats::Pooling;
use kernels::kv::KvType;
use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;
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

/// Prints the script for `program`.
pub(crate) fn run(args: &Args, program: Command) -> Result<()> {
    let mut script = Vec::new();
    let mut program = with_values(program);
    clap_complete::generate(args.shell, &mut program, "gannet", &mut script);
    output::text(&String::from_utf8_lossy(&script))
}

/// The command with the values of its options, as far as they are names. Only scripts see them:
/// what an option takes is decided where it is parsed.
fn with_values(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match values(&arg) {
        values if !values.is_empty() => arg.value_parser(PossibleValuesParser::new(values)),
        _ if takes_path(&arg) || !arg.get_action().takes_values() => arg,
        // Shells would offer files.
        _ => arg.value_hint(ValueHint::Other),
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_values))
}

/// The names that an option takes; none where it takes no names, or says them itself.
fn values(arg: &Arg) -> Vec<&'static str> {
    let is_known = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    match arg.get_long().unwrap_or(arg.get_id().as_str()) {
        "greedy-structure" | "resume-background" => vec!["on", "off"],
        _ if !is_known || !arg.get_possible_values().is_empty() => Vec::new(),
        "type" => Mixture::all_names().collect(),
        "pooling" => Pooling::names().to_vec(),
        "cache-isolation" => CacheIsolation::ALL.map(|(name, _)| name).to_vec(),
        "weights-preload" => vec!["auto", "off"],
        "kv-block" => engine::BLOCKS.to_vec(),
        "mode" => [Mode::Exact, Mode::Fast].map(Mode::name).to_vec(),
        "bits" => Bits::ALL.map(Bits::name).to_vec(),
        "device" => {
            let names = devices::DEVICES.iter().map(|device| device.name);
            std::iter::once("auto").chain(names).collect()
        }
        "kv-type" | "b-kv-type" => KvType::ALL.map(KvType::name).to_vec(),
        "cache-rounding" => CacheRounding::ALL.map(|(_, name)| name).to_vec(),
        "kv-dir-write" => DiskWrite::ALL.map(|(_, name)| name).to_vec(),
        "tool-format" => ToolFormat::ALL.iter().map(|format| format.name).collect(),
        "shape" => synth::shape_names().collect(),
        "speculate" => vec!["auto", "off", "suffix", "mtp", "model", "ngram:4"],
        "weights-memory" => vec!["auto", "all"],
        _ => Vec::new(),
    }
}

/// Whether an option takes a file or a folder.
fn takes_path(arg: &Arg) -> bool {
    let paths = [TypeId::of::<PathBuf>(), TypeId::of::<OsString>(), TypeId::of::<AdapterSource>()];
    paths.iter().any(|path| arg.get_value_parser().type_id() == *path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// What follows an option in a script of bash.
    fn offered<'a>(script: &'a str, flag: &str) -> Vec<&'a str> {
        let case = format!(" --{flag})\n");
        let after = script.split(&case).skip(1);
        after.map(|after| after.split("return 0").next().unwrap_or_default()).collect()
    }

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
        for (flag, values) in [
            ("pooling", "\"mean cls last"),
            ("cache-isolation", "\"off key user\""),
            ("greedy-structure", "\"on off\""),
            ("resume-background", "\"on off\""),
            ("weights-preload", "\"auto off\""),
            ("kv-block", "\"16 32 64"),
        ] {
            let offered = offered(&script, flag);
            assert!(!offered.is_empty(), "{flag}");
            for offered in offered {
                assert!(offered.contains(values), "{flag}: {offered}");
            }
        }
        assert!(offered(&script, "type").iter().all(|offered| offered.contains("q4_k_m")));
        for flag in ["session", "pre-fallback", "temp"] {
            assert!(offered(&script, flag).iter().all(|it| !it.contains("-f")), "{flag}");
        }
        assert!(offered(&script, "placement").iter().all(|offered| offered.contains("-f")));
    }
}
