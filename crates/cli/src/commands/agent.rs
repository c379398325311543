//! `gannet agent`: a coding agent that works in one folder.

mod acp;
mod answering;
mod args;
mod ask;
mod call_text;
mod events;
pub(crate) mod kept;
mod maker;
mod markdown;
mod mcp;
mod past;
mod plan;
mod plan_notice;
mod session;
mod talk;
mod terminal;
mod tools;

use crate::exit::{self, SilentExit};
use crate::input::{TextSource, read_limited, read_path};
use crate::interrupt::Watch;
use crate::output;
use crate::settings::McpSetting;
use acp::AcpSettings;
use agent::{AgentUser, FinalResult, WorkEnd};
use anyhow::{Context, Result, bail};
pub(crate) use args::Args;
use ask::Asker;
use events::EventLines;
use maker::{AgentMaker, MadeAgent};
use serde_json::{Value, json};
use session::OpenSession;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use talk::Talk;
use terminal::AgentTerminal;

/// Exit code of work that a limit has ended, and of work with something refused.
const LIMIT: u8 = 4;
const REFUSED: u8 = 3;
/// Most bytes of a schema.
const MAX_SCHEMA: u64 = 1 << 20;

/// Is the process of the tools, if `args` say so, before there is a second thread.
pub(crate) fn serve_tools(args: &[OsString]) -> Option<u8> {
    let [_, command, settings, program @ ..] = args else { return None };
    let settings = settings.to_str().filter(|_| command == agent::TOOL_HOST)?;
    Some(agent::serve_tools(settings, program))
}

/// Runs the command. `given` are the arguments of the command line alone, without settings.
pub(crate) fn run(args: Args, given: Option<Args>, mcp: Option<&McpSetting>) -> Result<()> {
    let args = Args { given: given.map(Box::new), ..args };
    let checked = args.check_key();
    if args.acp {
        return checked.and_then(|()| args.serve_editor(mcp));
    }
    let is_for_programs = args.print || args.json || args.output_schema.is_some();
    let is_prompt_typed = args.prompt.as_deref() != Some("-");
    let has_terminal = stdin().is_terminal() && stdout().is_terminal();
    match !is_for_programs && is_prompt_typed && has_terminal {
        true => checked.and_then(|()| args.talk(mcp)),
        false => checked.and_then(|()| args.carry_out(mcp)).map_err(|error| {
            if args.json && !error.is::<SilentExit>() {
                end_with(&format!("{error:#}"));
            }
            not_silent(error)
        }),
    }
}

/// Ends with a line of JSON for an error before the command runs, if `args` ask this command for
/// lines of JSON.
pub(crate) fn say_end(args: &[OsString], error: impl Display) {
    let is_json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    if is_json && args.iter().any(|arg| arg == "agent") {
        end_with(error.to_string().trim_end());
    }
}

/// Prints the event of an end by an error.
fn end_with(error: &str) {
    // What cannot be printed is the error itself, or it is on standard error.
    let _ = output::lines([json!({"event": "end", "end": "error", "error": error})]);
}

/// The error, with which the process never ends as if the work were done: elsewhere the end of the
/// reader of the output is no error.
fn not_silent(error: anyhow::Error) -> anyhow::Error {
    if !output::is_broken_pipe(&error) {
        return error;
    }
    if !output::is_closed(&error) {
        exit::report(&error);
    }
    SilentExit(1).into()
}

/// The schema of a file.
fn output_schema(path: &Path) -> Result<Value> {
    let text = read_limited(path, MAX_SCHEMA)?;
    let failed = || format!("--output-schema {}", path.display());
    let schema: Value = serde_json::from_str(&text).with_context(failed)?;
    if !schema.is_object() {
        bail!("{}: expected a JSON object, found {schema}", failed());
    }
    Ok(schema)
}

impl Args {
    /// Carries the prompt out.
    fn carry_out(&self, mcp: Option<&McpSetting>) -> Result<()> {
        let open = self.session.open(&self.tools)?;
        let asker = Asker::new(self.json, self.prompt.as_deref() != Some("-"));
        let schema = self.output_schema.as_deref().map(output_schema).transpose()?;
        let prompt = self.prompt(&open)?;
        let tools = self.tools.on_this_machine();
        let maker = AgentMaker::new(self, mcp, open.name().is_some())?;
        schema.as_ref().map_or(Ok(()), |schema| maker.check_schema(schema))?;
        let mut lines = EventLines::new(self.json, schema.is_some(), asker);
        lines.session(open.name(), maker.model(), &self.tools.workspace()?)?;
        let asks = self.confirm(lines.can_ask());
        let mut made = maker.make(open, (&tools, asks), &|| lines.is_interrupted())?;
        let end = match prompt {
            Some(prompt) => made.work(&prompt, &mut lines),
            None if made.agent.is_unfinished() => made.agent.go_on(&mut lines),
            // Standard input has answers, and there is nothing to do.
            None if self.json && made.agent.has_request() => Ok(WorkEnd::Done),
            None => made.work(&self.further_prompt(&made)?, &mut lines),
        };
        let end = end.context("the agent has stopped")?;
        let (end, result) = match (end, schema) {
            (WorkEnd::Done, Some(schema)) => match made.agent.result(&schema, &mut lines)? {
                FinalResult::Fits(value) => (end, Some(value)),
                FinalResult::Ended(end) => (end, None),
                FinalResult::Wrong(fault) => bail!("--output-schema: {fault}"),
            },
            (end, _) => (end, None),
        };
        lines.end(end, result.as_ref())?;
        let refused = made.agent.has_refused;
        drop(made);
        maker.finish();
        match end {
            WorkEnd::Limit | WorkEnd::Full => Err(SilentExit(LIMIT).into()),
            WorkEnd::Interrupted => Err(SilentExit(crate::interrupt::code()).into()),
            WorkEnd::Done if refused => Err(SilentExit(REFUSED).into()),
            WorkEnd::Done => Ok(()),
        }
    }

    /// Talks on the terminal.
    fn talk(&self, mcp: Option<&McpSetting>) -> Result<()> {
        let workspace = self.tools.workspace()?;
        let (history, open) =
            (self.session.past_requests(&workspace), self.session.open(&self.tools)?);
        let prompt = self.prompt.as_ref().map(|_| self.prompt(&open)).transpose()?.flatten();
        let tools = self.tools.on_this_machine();
        let maker = AgentMaker::new(self, mcp, open.name().is_some())?;
        let watch = Watch::new();
        let made = maker.make(open, (&tools, self.confirm(true)), &|| watch.check().is_err())?;
        watch.check()?;
        crate::terminal::restore_also(terminal::restore);
        let is_ending = || crate::interrupt::check_end().is_err();
        let terminal = AgentTerminal::open(talk::COMMANDS, history, is_ending)?;
        let mut talk = Talk::new(&maker, &self.session, made, terminal);
        let done = talk.run(prompt.as_deref());
        drop(talk);
        maker.finish();
        done.context("the agent has stopped")
    }

    /// Serves an editor.
    fn serve_editor(&self, mcp: Option<&McpSetting>) -> Result<()> {
        let tools = self.tools.on_this_machine();
        let maker = AgentMaker::new(self, mcp, self.session.is_kept())?;
        let settings =
            AcpSettings { tools: &tools, session: &self.session, confirm: self.confirm(true) };
        let served = acp::serve(&maker, settings);
        maker.finish();
        served
    }

    /// The request of a session in which nothing is unfinished: standard input, if it is a text.
    fn further_prompt(&self, made: &MadeAgent) -> Result<String> {
        let is_free = !self.json && !stdin().is_terminal();
        let text = if is_free { read_path(Path::new("-"))? } else { String::new() };
        match text.trim() {
            "" => bail!("{}: nothing is unfinished: expected a prompt", made.session.title()),
            _ => Ok(text.trim_end().to_owned()),
        }
    }

    /// The request; `None` where a session continues with what is unfinished.
    fn prompt(&self, open: &OpenSession) -> Result<Option<String>> {
        if self.prompt.is_none() && open.resumed.is_some() {
            return Ok(None);
        }
        let source = TextSource { argument: self.prompt.as_deref(), file: None };
        let missing = "a prompt is missing: gannet agent -p \"Why does the test fail?\"";
        let prompt = source.read("agent", missing)?;
        match prompt.trim() {
            "" => bail!("the prompt is empty"),
            _ => Ok(Some(prompt.trim_end().to_owned())),
        }
    }
}
