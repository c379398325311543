//! `gannet sessions`: the conversations that `gannet chat --session` keeps.

use crate::elapsed::passed_since;
use crate::new_file::NewFile;
use crate::output;
use crate::sessions::{
    ListedSession, Session, SessionFolder, SessionName, StateDirArgs, printable, printable_lines,
    read_session,
};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// List, show and change the sessions of gannet chat --session
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateDirArgs,
    #[command(subcommand)]
    command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List the sessions, the last used first
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the messages of a session
    Show {
        /// The session
        name: SessionName,
        /// Print all that is kept, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a session another name
    Rename {
        /// The session
        name: SessionName,
        /// Its new name, which no session has
        new: SessionName,
        /// Print the new name as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove sessions
    Remove {
        /// The sessions
        #[arg(required = true, value_name = "NAME")]
        names: Vec<SessionName>,
        /// Print the names of what is removed as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a session to a file, which import reads
    Export {
        /// The session
        name: SessionName,
        /// The file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace an existing file
        #[arg(long, requires = "output")]
        force: bool,
        /// Print the name and the file as JSON; what goes to standard output is JSON already
        #[arg(long, requires = "output")]
        json: bool,
    },
    /// Add a session from a file that export wrote
    Import {
        /// The file, `-` for standard input
        file: PathBuf,
        /// The name of the session [default: that of the file, without its extension]
        #[arg(long)]
        name: Option<SessionName>,
        /// Print the name as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
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

/// Prints what was done, where that is to be JSON.
fn say(as_json: bool, done: &Value) -> Result<()> {
    if as_json { output::json(done) } else { Ok(()) }
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

/// How long ago a time is.
fn age(seconds: u64) -> String {
    match passed_since(seconds).unwrap_or_default().as_secs() {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..86400 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86400),
    }
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
