//! What only some builds have: commands and flags, with the feature that builds each.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A part of the program that a feature builds.
struct BuiltPart {
    feature: &'static str,
    is_built: bool,
    commands: &'static [&'static str],
    flags: &'static [&'static str],
}

const PARTS: [BuiltPart; 4] = [
    BuiltPart {
        feature: "chat",
        is_built: cfg!(feature = "chat"),
        commands: &["chat", "sessions"],
        flags: &[],
    },
    BuiltPart {
        feature: "hub",
        is_built: cfg!(feature = "hub"),
        commands: &[],
        flags: &["--hub-endpoint"],
    },
    BuiltPart {
        feature: "serve",
        is_built: cfg!(feature = "serve"),
        commands: &["serve", "health", "batch", "receipt"],
        flags: &[],
    },
    BuiltPart {
        feature: "tools",
        is_built: cfg!(feature = "tools"),
        commands: &[
            "bench",
            "bench-serve",
            "cache",
            "compare",
            "completions",
            "experts",
            "imatrix",
            "man",
            "pack",
            "perplexity",
            "quantize",
            "replay",
            "splice",
            "synth",
            "verify",
        ],
        flags: &[],
    },
];

/// The problem of arguments that ask for a part which this build lacks.
pub(crate) fn problem(error: &clap::Error) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.as_str()),
        _ => None,
    };
    let lacked = PARTS.iter().filter(|part| !part.is_built);
    let (what, part) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = named(ContextKind::InvalidSubcommand)?;
            (format!("command {name:?}"), lacked.into_iter().find(|it| it.commands.contains(&name)))
        }
        ErrorKind::UnknownArgument => {
            let name = named(ContextKind::InvalidArg)?;
            (format!("flag {name}"), lacked.into_iter().find(|it| it.flags.contains(&name)))
        }
        _ => return None,
    };
    Some(format!("this build has no {what}: build with --features {}", part?.feature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, CommandFactory};

    #[test]
    fn what_a_build_lacks_is_named_with_its_feature_and_the_rest_is_there() {
        let program = crate::Cli::command();
        let commands: Vec<_> = program.get_subcommands().map(|it| it.get_name()).collect();
        let run = program.find_subcommand("run").unwrap();
        let flags: Vec<_> = run.get_arguments().filter_map(Arg::get_long).collect();
        let problem_of = |args: &[&str]| {
            let args = [&["gannet"], args].concat();
            problem(&crate::Cli::command().try_get_matches_from(args).unwrap_err())
        };
        for BuiltPart { feature, is_built, commands: own, flags: own_flags } in PARTS {
            for name in own {
                assert_eq!(commands.contains(name), is_built, "{name}");
                let expected =
                    format!("this build has no command {name:?}: build with --features {feature}");
                let found = problem_of(&[name, "--no-such-flag"]);
                assert_eq!(found, (!is_built).then_some(expected));
            }
            for name in own_flags {
                assert_eq!(flags.contains(&name.trim_start_matches('-')), is_built, "{name}");
                let expected =
                    format!("this build has no flag {name}: build with --features {feature}");
                let found = problem_of(&["run", name, "x", "--no-such-flag"]);
                assert_eq!(found, (!is_built).then_some(expected));
            }
        }
        assert_eq!(problem_of(&["no-such-command"]), None);
        assert_eq!(problem_of(&["run", "--no-such-flag"]), None);
    }
}
