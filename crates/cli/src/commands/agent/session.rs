//! The session of an agent: its log in the state folder, held like other sessions.

use super::kept::{EXTENSION, KEPT};
use super::past;
use super::tools::ToolArgs;
use crate::output::note;
use crate::sessions::{HeldSession, SessionFolder, SessionName, StateDirArgs};
use agent::{AgentSession, Record, ResumedSession, SessionLog};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most sessions whose requests are offered, and most requests.
const MAX_PAST_SESSIONS: usize = 20;
const MAX_PAST_REQUESTS: usize = 300;

/// The arguments for the session of an agent.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sessions")]
pub(super) struct SessionArgs {
    /// Continue the session of this name, or begin it [default: begin one named after the time]
    #[arg(long, value_name = "NAME")]
    session: Option<SessionName>,
    /// Continue the last session of this folder
    #[arg(long = "continue", conflicts_with = "session")]
    last: bool,
    /// Continue in a new session, which begins as a copy
    #[arg(long, value_name = "NAME")]
    fork: Option<SessionName>,
    /// Keep nothing
    #[arg(long, conflicts_with_all = ["session", "last", "fork"])]
    no_session: bool,
    #[command(flatten)]
    state: StateDirArgs,
}

/// A session that is open.
pub(super) struct OpenSession {
    /// Holds it for this process.
    held: Option<HeldSession>,
    /// Its log, if it has begun.
    log: Option<SessionLog>,
    /// What was written before.
    pub resumed: Option<ResumedSession>,
}

impl SessionArgs {
    /// The arguments for the session of this name, or for a new one.
    pub fn of(&self, name: Option<SessionName>) -> Self {
        Self { session: name, last: false, fork: None, ..self.clone() }
    }

    /// Whether sessions are kept.
    pub fn is_kept(&self) -> bool {
        !self.no_session
    }

    /// Whether there is a session of this name.
    pub fn has(&self, name: &SessionName) -> bool {
        let folder = self.state.agent_sessions();
        self.is_kept() && folder.is_ok_and(|folder| folder.path(name, EXTENSION).is_file())
    }

    /// Opens the session that was asked for, of the folder of `tools`.
    ///
    /// # Errors
    ///
    /// If it cannot be held or read, or is one of another folder, or the tools could write logs of
    /// sessions.
    pub fn open(&self, tools: &ToolArgs) -> Result<OpenSession> {
        let (workspace, folder) = (&tools.workspace()?, self.state.agent_sessions());
        for writable in tools.writable()? {
            if folder.as_ref().is_ok_and(|folder| folder.overlaps(&writable)) {
                bail!("--state-dir: expected a folder outside of {}", writable.display());
            }
        }
        if self.no_session {
            return Ok(OpenSession { held: None, log: None, resumed: None });
        }
        let folder = folder?;
        let from = match (&self.session, self.last) {
            (Some(name), _) => Some(name.clone()),
            (None, true) => Some(last(&folder, workspace)?),
            (None, false) => None,
        };
        let held = match (&self.fork, from) {
            (Some(new), Some(from)) => copied(&folder.hold_unread(from)?, new.clone())?,
            (Some(_), None) => bail!("--fork: expected --session or --continue, which is copied"),
            (None, Some(name)) => folder.hold_unread(name)?,
            (None, None) => unused(&folder)?,
        };
        let file = path(&held, EXTENSION);
        let (log, records) = match file.exists() {
            true => Some(SessionLog::open(&file)?).unzip(),
            false => (None, None),
        };
        let resumed = records.and_then(ResumedSession::of);
        if let Some(resumed) = resumed.as_ref().filter(|it| it.workspace != *workspace) {
            bail!(
                "session {}: expected the folder {}, in which it was begun, found {}",
                held.name(),
                resumed.workspace.display(),
                workspace.display()
            );
        }
        Ok(OpenSession { held: Some(held), log, resumed })
    }

    /// Opens a session of its own name that begins now, or one that is not kept if none is.
    ///
    /// # Errors
    ///
    /// If it cannot be held.
    pub fn open_new(&self) -> Result<OpenSession> {
        if self.no_session {
            return Ok(OpenSession { held: None, log: None, resumed: None });
        }
        let held = unused(&self.state.agent_sessions()?)?;
        Ok(OpenSession { held: Some(held), log: None, resumed: None })
    }

    /// The user's requests in the last sessions of the folder `workspace`, oldest first. What
    /// cannot be read is left out.
    pub fn past_requests(&self, workspace: &Path) -> Vec<String> {
        let folder = self.state.agent_sessions().ok().filter(|_| !self.no_session);
        let sessions = folder.map(|folder| {
            let mut sessions = sessions_of(&folder, workspace).unwrap_or_default();
            sessions.sort();
            let first = sessions.len().saturating_sub(MAX_PAST_SESSIONS);
            let paths = sessions.drain(first..).map(|(_, name)| folder.path(&name, EXTENSION));
            paths.collect::<Vec<_>>()
        });
        let requests = sessions.into_iter().flatten().flat_map(|path| past::requests(&path));
        let mut requests: Vec<String> = requests.collect();
        requests.drain(..requests.len().saturating_sub(MAX_PAST_REQUESTS));
        requests
    }
}

impl OpenSession {
    /// The name; `None` of a session that is not kept.
    pub fn name(&self) -> Option<&SessionName> {
        self.held.as_ref().map(HeldSession::name)
    }

    /// Whether `conversation` is the digest that the tokens were computed under; says so if not.
    pub fn has_tokens_of(&self, conversation: &str) -> bool {
        let Some(resumed) = &self.resumed else { return false };
        let is_same = resumed.conversation == conversation;
        if !is_same {
            let model = &resumed.model;
            note(format_args!(
                "{model} answered last, or with another template or other tools: the messages are \
                 rendered anew"
            ));
        }
        is_same
    }

    /// The session that continues; `head` is its first record, where it begins or its tokens are
    /// others from now on. `before` is the folder of contents before changes where none are kept.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn begin(
        self,
        head: Option<Record>,
        before: PathBuf,
    ) -> Result<(AgentSession, SessionHold)> {
        let log = match (&self.held, self.log) {
            (Some(_), Some(log)) => Some(log),
            (Some(held), None) => Some(SessionLog::open(&path(held, EXTENSION))?.0),
            (None, _) => None,
        };
        let kept = self.held.as_ref().map_or(before, |held| path(held, KEPT));
        let mut session = AgentSession::new(log, kept);
        if let Some(resumed) = &self.resumed {
            session = session.resumed(resumed);
        }
        if let Some(head) = head {
            session.add(&head)?;
        }
        Ok((session, SessionHold { held: self.held }))
    }
}

/// A file of a session.
fn path(held: &HeldSession, extension: &str) -> PathBuf {
    held.folder().path(held.name(), extension)
}

/// Holds the session while it lives.
pub(super) struct SessionHold {
    held: Option<HeldSession>,
}

/// The name of a session, as it is shown.
pub(super) struct SessionTitle(Option<SessionName>);

impl SessionHold {
    /// The user's requests so far, as far as they are kept.
    pub fn requests(&self) -> Vec<String> {
        let held = self.held.as_ref();
        held.map_or_else(Vec::new, |held| past::requests(&path(held, EXTENSION)))
    }

    /// Continues `session`, which this holds, in a new one of the name `new`, which begins as a
    /// copy. The one before stays as it is.
    ///
    /// # Errors
    ///
    /// If none is kept, or there is one of this name.
    pub fn fork(&mut self, session: &mut AgentSession, new: SessionName) -> Result<()> {
        let Some(held) = &self.held else { bail!("expected a session, found that none is kept") };
        session.sync()?;
        let copy = copied(held, new)?;
        let (log, _) = SessionLog::open(&path(&copy, EXTENSION))?;
        session.continue_in(log, path(&copy, KEPT));
        self.held = Some(copy);
        Ok(())
    }

    /// The name.
    pub fn title(&self) -> SessionTitle {
        SessionTitle(self.held.as_ref().map(|held| held.name().clone()))
    }
}

impl fmt::Display for SessionTitle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "session {name}"),
            None => f.write_str("no session is kept"),
        }
    }
}

/// The session of `workspace` that was written last.
fn last(folder: &SessionFolder, workspace: &Path) -> Result<SessionName> {
    let last = sessions_of(folder, workspace)?.into_iter().max().map(|(_, name)| name);
    last.with_context(|| format!("--continue: no session of {}", workspace.display()))
}

/// The sessions of `workspace`, with the times at which they were written last.
fn sessions_of(folder: &SessionFolder, workspace: &Path) -> Result<Vec<(SystemTime, SessionName)>> {
    let mut found = Vec::new();
    for name in folder.names(EXTENSION)? {
        let path = folder.path(&name, EXTENSION);
        let first = agent::first_record(&path);
        let is_own =
            matches!(first, Ok(Some(Record::Head { workspace: it, .. })) if it == workspace);
        if let (true, Ok(written)) = (is_own, path.metadata().and_then(|it| it.modified())) {
            found.push((written, name));
        }
    }
    Ok(found)
}

/// A new session of the name `new` that begins as a copy.
fn copied(from: &HeldSession, new: SessionName) -> Result<HeldSession> {
    if from.name() == &new {
        bail!("the session is {new} already");
    }
    let held = from.folder().hold_unread(new)?;
    let [source, target] = [from, &held].map(|it| path(it, EXTENSION));
    if target.exists() {
        bail!("there is a session {} already", held.name());
    }
    let failed = || format!("cannot copy the session {}", from.name());
    let [files, kept] = [from, &held].map(|it| path(it, KEPT));
    if files.exists() {
        fs::create_dir_all(&kept).with_context(failed)?;
        for entry in files.read_dir().with_context(failed)? {
            let entry = entry.with_context(failed)?;
            fs::copy(entry.path(), kept.join(entry.file_name())).with_context(failed)?;
        }
    }
    fs::copy(source, target).with_context(failed)?;
    Ok(held)
}

/// A session whose name is the time and which no other process has.
fn unused(folder: &SessionFolder) -> Result<HeldSession> {
    let now = chrono::Local::now().format("%Y-%m-%d-%H%M%S").to_string();
    for number in 1..1000 {
        let name = if number == 1 { now.clone() } else { format!("{now}-{number}") };
        let held = folder.hold_unread(name.parse()?);
        match held {
            Ok(held) if !path(&held, EXTENSION).exists() => return Ok(held),
            Ok(_) | Err(_) => {}
        }
    }
    bail!("no name for a session is free: name one, --session NAME")
}
