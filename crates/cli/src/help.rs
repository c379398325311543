//! The form of help: one to three lines for each option. `--help` has all options, `-h` the most
//! used ones.

use crate::{lacking, logging, output};
use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// Most options of a command that `-h` shows all of.
const FEW: usize = 30;

/// The options under a heading that `-h` shows too.
const MAIN: [&str; 28] = [
    "alias",
    "acp",
    "api-key-file",
    "confirm",
    "ctx",
    "device",
    "host",
    "json",
    "kv-dir",
    "kv-memory",
    "max-tokens",
    "mode",
    "model",
    "models",
    "parallel",
    "port",
    "effort",
    "seed",
    "session",
    "state-dir",
    "stop",
    "temp",
    "threads",
    "tls-cert",
    "tls-key",
    "top-k",
    "top-p",
    "weights-memory",
];

/// Paragraphs come after the first line, as in `about`, and options at once.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

/// The arguments, with `help COMMAND` as `COMMAND --help`.
pub(crate) fn arguments(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|arg| arg == "help") {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// Ends the process with an error of `program` or with its help, as clap does; arguments that are
/// not UTF-8 are named, and so is what this build lacks.
pub(crate) fn exit(error: clap::Error, args: &[OsString], program: &mut Command) -> ! {
    if let Some(problem) = lacking::problem(&error) {
        output::failure(problem);
        std::process::exit(error.exit_code())
    }
    if error.kind() != ErrorKind::InvalidUtf8 {
        end(&error)
    }
    let wrong = args.iter().filter(|arg| arg.to_str().is_none());
    let wrong: Vec<_> = wrong.map(|arg| format!("{arg:?}")).collect();
    let problem = format!("expected UTF-8 in text, found {}", wrong.join(", "));
    end(&program.error(ErrorKind::InvalidUtf8, problem))
}

/// Ends the process with wrong usage or with help; an error is a log line where those are JSON.
pub(crate) fn end(error: &clap::Error) -> ! {
    if !error.use_stderr() || !logging::is_json() {
        error.exit()
    }
    output::failure(error.to_string().trim_start_matches("error: ").trim_end());
    std::process::exit(error.exit_code())
}

/// The program with this form of help, for these arguments.
pub(crate) fn shaped(program: Command, args: &[OsString]) -> Command {
    shape(program, args.iter().any(|arg| arg == "--help"))
}

fn shape(command: Command, shows_all: bool) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |inner| shape(inner, shows_all))
    });
    let is_cut = !shows_all && command.get_arguments().count() > FEW;
    let command = with_paragraphs(command).help_template(TEMPLATE);
    let command = match is_cut {
        true => command
            .mut_args(|arg| if is_main(&arg) { arg } else { arg.hide(true) })
            .after_help("--help lists all options."),
        false => command,
    };
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort);
    let help = help.help_heading(Resettable::Reset).help("Print help; -h prints a summary");
    command.disable_help_flag(true).arg(help)
}

fn is_main(arg: &Arg) -> bool {
    arg.get_help_heading().is_none() || arg.get_long().is_some_and(|long| MAIN.contains(&long))
}

/// The command with the paragraphs of its description before its usage.
fn with_paragraphs(command: Command) -> Command {
    let Some(text) = command.get_long_about().map(ToString::to_string) else { return command };
    let Some((_, paragraphs)) = text.split_once("\n\n") else { return command };
    let paragraphs = paragraphs.to_owned();
    command.long_about(Resettable::Reset).before_help(paragraphs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn help(command: &str, flag: &str) -> String {
        let args = ["gannet", command, flag].map(OsString::from);
        let mut program = shaped(crate::Cli::command().term_width(100), &args);
        program.try_get_matches_from_mut(args).unwrap_err().to_string()
    }

    #[track_caller]
    fn check_lines(command: &str, flag: &str, most: usize) {
        let help = help(command, flag);
        assert!(help.lines().count() <= most, "{} lines: {help}", help.lines().count());
    }

    #[test]
    fn help_is_short() {
        check_lines("run", "-h", 70);
        check_lines("run", "--help", 190);
        check_lines("serve", "-h", 90);
        check_lines("serve", "--help", 310);
        check_lines("embed", "--help", 130);
    }

    #[test]
    fn all_options_and_paragraphs_are_in_the_long_form() {
        let long = help("serve", "--help");
        assert!(long.contains("--sse-ping-interval") && long.contains("SIGHUP reloads keys"));
        let short = help("serve", "-h");
        assert!(!short.contains("--sse-ping-interval") && short.contains("--port"));
        assert!(short.ends_with("--help lists all options.\n"), "{short}");
    }

    #[test]
    fn commands_offer_no_options_that_they_do_not_use() {
        for command in ["embed", "rerank"] {
            let help = help(command, "--help");
            for flag in ["--chat-template", "--tool-format", "--kv-dir"] {
                assert!(!help.contains(flag), "{command} {flag}");
            }
        }
        for command in ["run", "chat", "rerank", "perplexity", "compare"] {
            assert!(!help(command, "--help").contains("--pooling"), "{command}");
        }
        for command in ["perplexity", "compare"] {
            assert!(!help(command, "--help").contains("--state-"), "{command}");
        }
    }

    #[test]
    fn the_options_of_a_summary_exist() {
        let mut longs = Vec::new();
        let program = crate::Cli::command();
        for command in program.get_subcommands() {
            longs.extend(command.get_arguments().filter_map(Arg::get_long));
        }
        let missing: Vec<_> = MAIN.iter().filter(|name| !longs.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
