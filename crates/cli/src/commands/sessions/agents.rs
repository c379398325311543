//! `gannet sessions --agent`: the sessions of `gannet agent`.

use super::shared::{SessionsCommand, age, say};
use crate::commands::agent::kept::{self, EXTENSION, KEPT};
use crate::new_file::NewFile;
use crate::output;
use crate::sessions::{HeldSession, SessionFolder, SessionName, printable, printable_lines};
use agent::{LogError, Record, ResumedSession, read_log};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, IsTerminal};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn run(folder: &SessionFolder, command: &SessionsCommand) -> Result<()> {
    match command {
        SessionsCommand::List { json } => list(folder, *json),
        SessionsCommand::Show { name, json } => show(folder, name, *json),
        SessionsCommand::Rename { name, new, json } => {
            rename(folder, name, new)?;
            say(*json, &json!({ "name": new.to_string() }))
        }
        SessionsCommand::Remove { names, json } => {
            names.iter().try_for_each(|name| remove(&existing(folder, name)?))?;
            let removed: Vec<String> = names.iter().map(ToString::to_string).collect();
            say(*json, &json!({ "removed": removed }))
        }
        SessionsCommand::Export { name, output: Some(file), force, json } => {
            NewFile::write(file, *force, text(folder, name)?.as_bytes())?;
            let file = file.display().to_string();
            say(*json, &json!({ "name": name.to_string(), "file": file }))
        }
        SessionsCommand::Export { name, .. } => output::text(&text(folder, name)?),
        SessionsCommand::Import { .. } => {
            bail!("--agent: sessions of agents belong to a folder and are not imported")
        }
    }
}

/// A session in a list.
struct ListedAgent {
    name: SessionName,
    content: Result<ResumedSession, LogError>,
    updated: u64,
}

fn list(folder: &SessionFolder, as_json: bool) -> Result<()> {
    let listed = |name: SessionName| {
        let path = folder.path(&name, EXTENSION);
        let time = path.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let updated = time.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
        let content = read_log(&path).map(|log| ResumedSession::of(log).unwrap_or_default());
        ListedAgent { name, content, updated }
    };
    let mut all: Vec<_> = folder.names(EXTENSION)?.into_iter().map(listed).collect();
    all.sort_by(|one, other| {
        other.updated.cmp(&one.updated).then_with(|| one.name.cmp(&other.name))
    });
    let to_json = || all.iter().map(listed_json).collect::<Vec<_>>();
    output::report(as_json, to_json, || match all.is_empty() {
        true => "no sessions\n".to_owned(),
        false => all.iter().map(line).collect(),
    })
}

/// The beginning of the last request, on one line.
fn title(session: &ResumedSession) -> String {
    let text = session.requests().last().map_or("", |request| &request.text);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&line.chars().take(60).collect::<String>())
}

fn listed_json(session: &ListedAgent) -> Value {
    let name = session.name.to_string();
    match &session.content {
        Ok(content) => json!({
            "name": name, "title": title(content), "model": content.model,
            "folder": content.workspace, "messages": content.messages.len(),
            "requests": content.requests().len(), "updated": session.updated,
        }),
        Err(error) => json!({ "name": name, "error": error.to_string() }),
    }
}

fn line(session: &ListedAgent) -> String {
    match &session.content {
        Ok(content) => {
            let (count, age) = (content.requests().len(), age(session.updated));
            let plural = if count == 1 { "" } else { "s" };
            let folder = content.workspace.display().to_string();
            let [model, folder] = [&content.model, &folder].map(|it| printable(it));
            let about = format!("{count} request{plural}, {age}, {model}, {folder}");
            format!("{}  ({about})  {}\n", session.name, title(content))
        }
        Err(error) => {
            format!("{}  cannot be read: {}\n", session.name, printable(&error.to_string()))
        }
    }
}

fn show(folder: &SessionFolder, name: &SessionName, as_json: bool) -> Result<()> {
    existing(folder, name)?;
    let records = read_log(&folder.path(name, EXTENSION))?;
    if as_json {
        return output::json(&serde_json::to_value(&records)?);
    }
    let session = ResumedSession::of(records).unwrap_or_default();
    let text = kept::markdown(&format!("session {name}"), &session.messages);
    match std::io::stdout().is_terminal() {
        true => output::text(&printable_lines(&text)),
        false => output::text(&text),
    }
}

/// The log, whose last line may be cut off.
fn text(folder: &SessionFolder, name: &SessionName) -> Result<String> {
    existing(folder, name)?;
    let records = read_log(&folder.path(name, EXTENSION))?;
    let line = |record: &Record| Ok(serde_json::to_string(record)? + "\n");
    records.iter().map(line).collect()
}

/// Holds a session that there is.
fn existing(folder: &SessionFolder, name: &SessionName) -> Result<HeldSession> {
    let path = folder.path(name, EXTENSION);
    match path.exists() {
        true => folder.hold_unread(name.clone()),
        false => bail!("{}: no such session", path.display()),
    }
}

fn rename(folder: &SessionFolder, name: &SessionName, new: &SessionName) -> Result<()> {
    let _held = existing(folder, name)?;
    let _new = folder.hold_unread(new.clone())?;
    if folder.path(new, EXTENSION).exists() {
        bail!("there is a session {new} already");
    }
    for extension in [KEPT, EXTENSION] {
        match fs::rename(folder.path(name, extension), folder.path(new, extension)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.with_context(|| format!("cannot rename the session {name}"))?,
        }
    }
    Ok(())
}

fn remove(held: &HeldSession) -> Result<()> {
    let path = |extension| held.folder().path(held.name(), extension);
    let failed = || format!("cannot remove the session {}", held.name());
    match fs::remove_dir_all(path(KEPT)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        done => done.with_context(failed)?,
    }
    fs::remove_file(path(EXTENSION)).with_context(failed)
}
