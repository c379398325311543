//! `gannet sessions`: the conversations that `gannet chat --session` and `gannet agent` keep.

#[cfg(feature = "agent")]
mod agents;
mod shared;

use crate::new_file::NewFile;
use crate::output;
use crate::sessions::{
    ListedSession, Session, SessionFolder, SessionName, StateDirArgs, printable, printable_lines,
    read_session,
};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use shared::{SessionsCommand, age, say};
use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;

/// List, show and change the sessions of gannet chat --session and gannet agent
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateDirArgs,
    /// The sessions of gannet agent
    #[cfg(feature = "agent")]
    #[arg(long, global = true)]
    agent: bool,
    #[command(subcommand)]
    command: SessionsCommand,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    #[cfg(feature = "agent")]
    if args.agent {
        return agents::run(&args.state.agent_sessions()?, &args.command);
    }
    let folder = args.state.sessions()?;
    match &args.command {
        SessionsCommand::List { json } => list(&folder, *json),
        SessionsCommand::Show { name, json: true } => output::text(&folder.read(name)?.text()?),
        SessionsCommand::Show { name, .. } => show(&folder.read(name)?),
        SessionsCommand::Rename { name, new, json } => {
            folder.read(name)?;
            folder.hold(name.clone())?.0.rename(new.clone())?;
            say(*json, &json!({ "name": new.to_string() }))
        }
        SessionsCommand::Remove { names, json } => {
            names.iter().try_for_each(|name| remove(&folder, name))?;
            let removed: Vec<String> = names.iter().map(ToString::to_string).collect();
            say(*json, &json!({ "removed": removed }))
        }
        SessionsCommand::Export { name, output: Some(file), force, json } => {
            NewFile::write(file, *force, folder.read(name)?.text()?.as_bytes())?;
            let file = file.display().to_string();
            say(*json, &json!({ "name": name.to_string(), "file": file }))
        }
        SessionsCommand::Export { name, .. } => output::text(&folder.read(name)?.text()?),
        SessionsCommand::Import { file, name, json } => import(&folder, file, name.clone(), *json),
    }
}

fn list(folder: &SessionFolder, as_json: bool) -> Result<()> {
    let sessions = folder.list()?;
    let to_json = || sessions.iter().map(listed_json).collect::<Vec<_>>();
    output::report(as_json, to_json, || lines(&sessions))
}

fn listed_json(session: &ListedSession) -> Value {
    let name = session.name.to_string();
    match &session.content {
        Ok(Session { title, model, created, updated, .. }) => json!({
            "name": name,
            "title": title,
            "model": model.name,
            "turns": session.content.as_ref().map_or(0, Session::turns),
            "created": created,
            "updated": updated,
        }),
        Err(error) => json!({ "name": name, "error": format!("{error:#}") }),
    }
}

/// A line for each session.
pub(super) fn lines(sessions: &[ListedSession]) -> String {
    if sessions.is_empty() {
        return "no sessions\n".to_owned();
    }
    let line = |session: &ListedSession| match &session.content {
        Ok(content) => {
            let (turns, age) = (content.turns(), age(content.updated));
            let [model, title] = [&content.model.name, &content.title].map(|it| printable(it));
            let plural = if turns == 1 { "" } else { "s" };
            format!("{}  ({turns} turn{plural}, {age}, {model})  {title}\n", session.name)
        }
        Err(error) => {
            let error = printable(&format!("{error:#}"));
            format!("{}  cannot be read: {error}\n", session.name)
        }
    };
    sessions.iter().map(line).collect()
}

/// Prints the messages of a session, on a terminal without what controls it.
fn show(session: &Session) -> Result<()> {
    let text = session.conversation()?.text();
    match std::io::stdout().is_terminal() {
        true => output::text(&printable_lines(&text)),
        false => output::text(&text),
    }
}

fn remove(folder: &SessionFolder, name: &SessionName) -> Result<()> {
    // A damaged one can be removed too, so that it is not read.
    folder.hold_unread(name.clone())?.remove()
}

fn import(
    folder: &SessionFolder,
    file: &Path,
    name: Option<SessionName>,
    as_json: bool,
) -> Result<()> {
    let context = || format!("cannot import {}", file.display());
    let is_stdin = file == Path::new("-");
    let session = match is_stdin {
        true => read_session(std::io::stdin().lock()),
        false => File::open(file).map_err(anyhow::Error::from).and_then(read_session),
    };
    let session = session.with_context(context)?;
    let stem = file.file_stem().filter(|_| !is_stdin);
    let name = match (name, stem.and_then(|stem| stem.to_str())) {
        (Some(name), _) => name,
        (None, Some(stem)) => stem.parse().context("give the session a name: --name")?,
        (None, None) => bail!("{}: give the session a name: --name", file.display()),
    };
    let held = folder.hold_new(name)?;
    held.save(&session)?;
    if !as_json {
        output::note(format_args!("session {}", held.name()));
    }
    say(as_json, &json!({ "name": held.name().to_string() }))
}
