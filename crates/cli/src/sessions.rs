//! Sessions: conversations in a folder, each a file of JSON that one process holds at a time.
//!
//! Invariant: a file is replaced as a whole, after the new one is on the disk. A process that ends
//! at any moment leaves the file as it was before the turn or after it.

mod content;
mod sampling;

use crate::folders;
use anyhow::{Context, Result, bail};
pub(crate) use content::{Session, SessionModel, SessionSettings, printable, printable_lines};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most bytes of a file.
const MAX_BYTES: u64 = 64 << 20;
/// Most bytes of a name.
const MAX_NAME: usize = 100;
/// Extension of the files.
const EXTENSION: &str = "json";

/// The argument for the folder of what is kept between runs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StateDirArgs {
    /// Folder in which sessions are kept [default: gannet in the user's state folder]
    #[arg(long, value_name = "DIR", global = true)]
    state_dir: Option<PathBuf>,
}

impl StateDirArgs {
    /// The folder of sessions, which need not exist yet.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn sessions(&self) -> Result<SessionFolder> {
        self.folder("sessions")
    }

    /// The folder of the sessions of agents, which need not exist yet.
    ///
    /// # Errors
    ///
    /// If there is none.
    #[cfg(feature = "agent")]
    pub fn agent_sessions(&self) -> Result<SessionFolder> {
        self.folder("agent")
    }

    fn folder(&self, name: &str) -> Result<SessionFolder> {
        let folder = match &self.state_dir {
            Some(named) if folders::is_off(named) => bail!("--state-dir is off: sessions need one"),
            Some(folder) => folder.clone(),
            None => folders::state().context("no HOME for sessions: name a folder, --state-dir")?,
        };
        Ok(SessionFolder(folder.join(name)))
    }
}

/// The name of a session, which is that of its file too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionName(String);

impl FromStr for SessionName {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let is_inner = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | ' ');
        let begins = name.starts_with(char::is_alphanumeric);
        let ends = !name.ends_with(['.', ' ']);
        if !begins || !ends || name.len() > MAX_NAME || !name.chars().all(is_inner) {
            bail!(
                "expected a name of letters, digits, '-', '_', '.' and ' ' that begins with a \
                 letter or digit, at most {MAX_NAME} bytes, found {name:?}"
            );
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A folder of sessions.
#[derive(Clone, Debug)]
pub(crate) struct SessionFolder(PathBuf);

/// A session in a list.
pub(crate) struct ListedSession {
    pub name: SessionName,
    pub content: Result<Session>,
}

impl SessionFolder {
    fn file(&self, name: &SessionName) -> PathBuf {
        self.path(name, EXTENSION)
    }

    /// A file of this process beside that of a session, which no session has as its own.
    fn hidden(&self, name: &SessionName, extension: &str) -> PathBuf {
        self.0.join(format!(".{name}.{extension}"))
    }

    /// Whether the folder holds another one or is in it: see [`folders::overlap`].
    #[cfg(feature = "agent")]
    pub fn overlaps(&self, other: &Path) -> bool {
        folders::overlap(&self.0, other)
    }

    /// All sessions, the last used first.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<ListedSession>> {
        let content = |name: SessionName| ListedSession { content: self.read(&name), name };
        let mut sessions: Vec<_> = self.names(EXTENSION)?.into_iter().map(content).collect();
        let updated = |it: &ListedSession| it.content.as_ref().map_or(0, |content| content.updated);
        sessions.sort_by(|one, other| {
            updated(other).cmp(&updated(one)).then_with(|| one.name.cmp(&other.name))
        });
        Ok(sessions)
    }

    /// The names of the files with this extension that are names of sessions.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub fn names(&self, extension: &str) -> Result<Vec<SessionName>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("cannot list {}", self.0.display()))?,
        };
        let name = |entry: io::Result<fs::DirEntry>| {
            let file = entry.ok()?.file_name().into_string().ok()?;
            file.strip_suffix(extension)?.strip_suffix('.')?.parse().ok()
        };
        Ok(entries.filter_map(name).collect())
    }

    /// The file of a session with this extension.
    pub fn path(&self, name: &SessionName, extension: &str) -> PathBuf {
        self.0.join(format!("{name}.{extension}"))
    }

    /// Reads a session.
    ///
    /// # Errors
    ///
    /// If there is none of this name, or the file is not one.
    pub fn read(&self, name: &SessionName) -> Result<Session> {
        match self.read_if_there(name)? {
            Some(session) => Ok(session),
            None => bail!("{}: no such session", self.file(name).display()),
        }
    }

    fn read_if_there(&self, name: &SessionName) -> Result<Option<Session>> {
        let path = self.file(name);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file
                .map_err(anyhow::Error::from)
                .and_then(read_session)
                .map(Some)
                .with_context(|| path.display().to_string()),
        }
    }

    /// Holds a session, which need not exist, until the value is dropped. Returns what it contains.
    ///
    /// # Errors
    ///
    /// If another process holds it, or its file cannot be read.
    pub fn hold(&self, name: SessionName) -> Result<(HeldSession, Option<Session>)> {
        let held = self.hold_unread(name)?;
        let content = self.read_if_there(&held.name)?;
        Ok((held, content))
    }

    /// Holds a session, which need not exist or be readable.
    ///
    /// # Errors
    ///
    /// If another process holds it.
    pub fn hold_unread(&self, name: SessionName) -> Result<HeldSession> {
        let folder = &self.0;
        folders::create_private(folder)?;
        let lock = lock(&self.hidden(&name, "lock"))
            .with_context(|| format!("cannot hold the session {name}"))?;
        Ok(HeldSession { folder: self.clone(), name, _lock: lock })
    }

    /// Holds a name that no session has.
    ///
    /// # Errors
    ///
    /// If a session has it, or another process holds it.
    pub fn hold_new(&self, name: SessionName) -> Result<HeldSession> {
        match self.hold(name) {
            Ok((held, None)) => Ok(held),
            Ok((held, Some(_))) => bail!("there is a session {} already", held.name),
            Err(error) => Err(error),
        }
    }
}

/// Reads a session.
///
/// # Errors
///
/// If it is too long, or not a session.
pub(crate) fn read_session(file: impl Read) -> Result<Session> {
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        bail!("expected at most {MAX_BYTES} bytes, found more");
    }
    Session::parse(&text)
}

/// A session that no other process changes.
#[derive(Debug)]
pub(crate) struct HeldSession {
    folder: SessionFolder,
    name: SessionName,
    _lock: SessionLock,
}

impl HeldSession {
    /// Its name.
    pub fn name(&self) -> &SessionName {
        &self.name
    }

    /// Its folder.
    pub fn folder(&self) -> &SessionFolder {
        &self.folder
    }

    /// Replaces the file of the session, once the new one is on the disk.
    ///
    /// # Errors
    ///
    /// If it could not be read again, or cannot be written; the old one stays.
    pub fn save(&self, session: &Session) -> Result<()> {
        let path = self.folder.file(&self.name);
        let text = readable(session).and_then(|text| Ok(self.replace(&path, text.as_bytes())?));
        text.with_context(|| format!("cannot write {}", path.display()))
    }

    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        // What a process left that was killed here is overwritten.
        let unfinished = self.folder.hidden(&self.name, "tmp");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&unfinished)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        self.sync()
    }

    /// Waits until names of files are on the disk.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder.0)?.sync_all()
    }

    /// Gives the session another name, which no other has.
    ///
    /// # Errors
    ///
    /// If another session has it, or the file cannot be renamed.
    pub fn rename(&mut self, name: SessionName) -> Result<()> {
        let renamed = self.folder.hold_new(name)?;
        let [from, to] = [&self.name, &renamed.name].map(|name| self.folder.file(name));
        match fs::rename(&from, &to) {
            // A session without a turn has no file yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done
                .and_then(|()| self.sync())
                .with_context(|| format!("cannot rename {}", from.display()))?,
        }
        *self = renamed;
        Ok(())
    }

    /// Removes the session.
    ///
    /// # Errors
    ///
    /// If there is no file of it, or it cannot be removed.
    pub fn remove(self) -> Result<()> {
        let path = self.folder.file(&self.name);
        let removed = fs::remove_file(&path).and_then(|()| self.sync());
        removed.with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// The text of a session, which can be read again.
fn readable(session: &Session) -> Result<String> {
    let text = session.text()?;
    if text.len() as u64 > MAX_BYTES {
        bail!("a session has at most {MAX_BYTES} bytes, this one would have {}", text.len());
    }
    Session::parse(&text).context("it could not be read again")?;
    Ok(text)
}

/// A file that is locked while the value lives, and removed with it.
#[derive(Debug)]
struct SessionLock {
    path: PathBuf,
    file: File,
}

fn lock(path: &Path) -> Result<SessionLock> {
    loop {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("another process holds it"),
            // Some file systems do not support locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        // The last holder may have removed the file after it was opened here.
        let lock = SessionLock { path: path.to_owned(), file };
        if lock.is_current() {
            return Ok(lock);
        }
    }
}

impl SessionLock {
    /// Whether the path still names the file that is locked.
    fn is_current(&self) -> bool {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let own = self.file.metadata().map(id);
        fs::metadata(&self.path).map(id).is_ok_and(|named| own.is_ok_and(|own| own == named))
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        if self.is_current() {
            // What is left does not matter: the next holder takes it.
            let _ = fs::remove_file(&self.path).is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SessionName {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_names_of_files() {
        for good in ["a", "Reise nach Köln", "v1.2_b-c", &"x".repeat(100)] {
            assert_eq!(name(good).to_string(), good);
        }
        let long = "x".repeat(101);
        for wrong in
            ["", ".", "..", ".a", "a/b", "a\\b", "a.", " a", "a ", "a\n", "-a", "a\0", &long]
        {
            assert!(wrong.parse::<SessionName>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_session_has_one_holder() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SessionFolder(folder.path().join("sessions"));
        let (held, content) = sessions.hold(name("a")).unwrap();
        assert!(content.is_none());
        let refused = format!("{:#}", sessions.hold(name("a")).unwrap_err());
        assert_eq!(refused, "cannot hold the session a: another process holds it");
        held.save(&Session::new()).unwrap();
        drop(held);
        let (mut held, content) = sessions.hold(name("a")).unwrap();
        assert!(content.is_some());
        assert!(sessions.hold_new(name("b")).is_ok());
        held.rename(name("b")).unwrap();
        assert!(sessions.hold(name("a")).unwrap().1.is_none());
        assert!(sessions.hold(name("b")).is_err());
        held.remove().unwrap();
        assert_eq!(fs::read_dir(&sessions.0).unwrap().count(), 0);
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SessionFolder(folder.path().to_owned());
        let (held, _) = sessions.hold(name("a")).unwrap();
        let old = Session::new();
        held.save(&old).unwrap();
        let mut long = old.clone();
        long.title = "x".repeat(MAX_BYTES as usize);
        let mut wrong = old.clone();
        wrong.sampling.logit_bias = vec![(1, f32::NAN)];
        for (session, expected) in [(long, "at most 67108864 bytes"), (wrong, "logit_bias")] {
            let error = format!("{:#}", held.save(&session).unwrap_err());
            assert!(error.contains("cannot write") && error.contains(expected), "{error}");
            assert_eq!(sessions.read(held.name()).unwrap(), old);
        }
    }

    #[test]
    fn many_holders_of_one_name_hold_it_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SessionFolder(folder.path().to_owned());
        let holders = std::sync::atomic::AtomicUsize::new(0);
        let hold = || {
            for _ in 0..200 {
                let Ok((held, _)) = sessions.hold(name("a")) else { continue };
                assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                std::thread::yield_now();
                holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                drop(held);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(hold))));
    }

    #[test]
    fn sessions_are_listed_with_what_is_wrong_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SessionFolder(folder.path().to_owned());
        assert!(SessionFolder(folder.path().join("none")).list().unwrap().is_empty());
        let mut session = Session::new();
        for (at, of) in ["old", "new"].into_iter().enumerate() {
            session.updated = at as u64;
            sessions.hold_new(name(of)).unwrap().save(&session).unwrap();
        }
        fs::write(folder.path().join("broken.json"), "{").unwrap();
        fs::write(folder.path().join("other.txt"), "").unwrap();
        fs::write(folder.path().join(".hidden.json"), "{}").unwrap();
        let listed = sessions.list().unwrap();
        let names = listed.iter().map(|it| (it.name.0.as_str(), it.content.is_ok()));
        assert_eq!(names.collect::<Vec<_>>(), [("new", true), ("broken", false), ("old", true)]);
    }
}
