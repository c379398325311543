//! The arguments of the command.

use super::session::SessionArgs;
use super::tools::ToolArgs;
use crate::args::{AnswerSamplingArgs, most_tokens};
use crate::exit::WrongUsage;
use crate::load::SourceArgs;
use crate::reasoning::ReasoningArgs;
use agent::{AllowRule, CONFIRMS, Confirm};
use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::time::Duration;

/// What cannot be with `--acp`, whose client gives prompts, folders and sessions.
const NOT_ACP: [&str; 8] =
    ["prompt", "print", "json", "output_schema", "dir", "session", "last", "fork"];

/// Let a model work on the files of a folder
///
/// The model reads and changes files and runs commands in --dir, in a process that cannot leave it.
/// Exits with 0 if the work is done, 3 if it is done but something was refused, 4 at a limit.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to do, `-` for standard input [default: standard input, or with --continue or --session
    /// what is unfinished]
    #[arg(value_name = "PROMPT")]
    pub(super) prompt: Option<String>,
    /// Carry PROMPT out and end
    #[arg(short = 'p', long)]
    pub(super) print: bool,
    /// Ask the model of an OpenAI-compatible server, --model or its first one
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// File with the key of that server (setting: server-key-file)
    #[arg(long = "api-key-file", id = "server_key_file", value_name = "FILE")]
    pub(super) api_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reasoning: ReasoningArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(super) tools: ToolArgs,
    /// When to ask before a call: outside (what the sandbox does not contain), writes (also
    /// changes), refuse (never: such calls are errors) or allow [default: outside with a terminal,
    /// else refuse]
    #[arg(long, value_name = "WHEN", value_parser = confirms(), help_heading = "Questions")]
    pub(super) confirm: Option<Confirm>,
    /// Allow calls without a question, such as `bash: cargo test`; may be repeated
    #[arg(long, value_name = "RULE", help_heading = "Questions")]
    pub(super) allow: Vec<AllowRule>,
    /// Maximum number of answers to a request
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = crate::size::count)]
    #[arg(help_heading = "Limits of a request")]
    pub(super) max_turns: usize,
    /// Maximum number of generated tokens of all answers to a request together; -1 for any number
    /// [default: -1]
    #[arg(short = 'n', long = "max-tokens", id = "work_tokens", value_name = "N")]
    #[arg(visible_aliases = ["predict", "n-predict"], value_parser = most_tokens)]
    #[arg(help_heading = "Limits of a request")]
    pub(super) work_tokens: Option<i64>,
    /// End the work on a request this many seconds after it has begun (setting: work-timeout)
    /// [default: no limit]
    #[arg(long, id = "work_timeout", value_name = "S", value_parser = crate::durations::seconds)]
    #[arg(help_heading = "Limits of a request")]
    pub(super) timeout: Option<Duration>,
    #[command(flatten)]
    pub(super) session: SessionArgs,
    /// Print one JSON object a line for each event; answers to questions are read as lines of
    /// standard input: {"answer":"once"}, "session" or "no" with a "reason"
    #[arg(long, help_heading = "Programs and editors")]
    pub(super) json: bool,
    /// Print the result of the work as JSON that fits the schema of this file, and nothing else;
    /// with --json it is the member `result` of the event `end`
    #[arg(long, value_name = "FILE", help_heading = "Programs and editors")]
    pub(super) output_schema: Option<PathBuf>,
    /// Serve an editor by the Agent Client Protocol on standard input and output; each session has
    /// the folder that the editor names
    #[arg(long, conflicts_with_all = NOT_ACP, help_heading = "Programs and editors")]
    pub(super) acp: bool,
    /// Replace the system text by that of a file
    #[arg(long = "system", id = "system_file", value_name = "FILE", help_heading = "Instructions")]
    pub(super) system: Option<PathBuf>,
    /// Leave AGENTS.md out
    #[arg(long, help_heading = "Instructions")]
    pub(super) no_instructions: bool,
    #[command(flatten)]
    pub(super) sampling: AnswerSamplingArgs,
    /// The arguments of the command line alone, without settings.
    #[arg(skip)]
    pub(super) given: Option<Box<Self>>,
}

impl Args {
    /// An error if the command line gives a key for no server.
    pub(super) fn check_key(&self) -> Result<()> {
        let is_key_given = self.given.as_ref().is_some_and(|given| given.api_key_file.is_some());
        if is_key_given && self.url.is_none() {
            let problem = "--api-key-file: expected --url, or the setting url";
            return Err(WrongUsage::new(problem).into());
        }
        Ok(())
    }

    /// When the user is asked, who may not be there.
    pub(super) fn confirm(&self, can_ask: bool) -> Confirm {
        let usual = if can_ask { Confirm::Outside } else { Confirm::Refuse };
        self.confirm.unwrap_or(usual)
    }
}

fn confirms() -> impl TypedValueParser<Value = Confirm> {
    PossibleValuesParser::new(CONFIRMS.map(|(name, _)| name))
        .map(|name| name.parse().expect("one of the names"))
}
