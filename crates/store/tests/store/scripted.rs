//! A file system that fails as scripted.

use base::Rng;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Disk, DiskFile, DiskLock, Entry, Files};

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    List,
    Create,
    Open,
    Read,
    Write,
    Rename,
    SetModified,
    Lock,
}

/// The files of this machine, as long as nothing else is scripted.
#[derive(Clone, Default)]
pub struct Scripted {
    failing: Arc<Mutex<Vec<(Op, i32)>>>,
    random: Arc<Mutex<Option<Rng>>>,
}

/// Errors that come at random.
const ERRORS: [i32; 4] = [libc::EIO, libc::ENOENT, libc::ENOSPC, libc::EACCES];

impl Scripted {
    /// Makes an operation fail with an error of the system from now on.
    pub fn fail(&self, op: Op, error: i32) {
        self.failing.lock().unwrap().push((op, error));
    }

    /// Makes one operation in five fail from now on, and one in five slow.
    pub fn fail_at_random(&self, seed: u64) {
        *self.random.lock().unwrap() = Some(Rng::new(seed));
    }

    /// Ends all failures.
    pub fn heal(&self) {
        self.failing.lock().unwrap().clear();
        *self.random.lock().unwrap() = None;
    }

    fn check(&self, op: Op) -> io::Result<()> {
        let mut random = self.random.lock().unwrap();
        let draw = random.as_mut().map(|rng| (rng.below(5), rng.below(5) as usize));
        drop(random);
        match draw {
            Some((0, 4)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some((0, error)) => return Err(io::Error::from_raw_os_error(ERRORS[error])),
            Some((1, time)) => std::thread::sleep(Duration::from_millis(time as u64)),
            _ => {}
        }
        let failing = self.failing.lock().unwrap();
        let error = failing.iter().find(|(failing, _)| *failing == op);
        error.map_or(Ok(()), |(_, error)| Err(io::Error::from_raw_os_error(*error)))
    }

    fn file(&self, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(ScriptedFile { disk: self.clone(), inner })
    }
}

struct ScriptedFile {
    disk: Scripted,
    inner: Box<dyn DiskFile>,
}

impl DiskFile for ScriptedFile {
    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.check(Op::Read)?;
        self.inner.read(bytes, offset)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.check(Op::Write)?;
        self.inner.write(bytes, offset)
    }
}

impl Disk for Scripted {
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        self.check(Op::List)?;
        Files.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        Files.create_folder(folder)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.check(Op::Open)?;
        Ok(self.file(Files.open(path)?))
    }

    fn open_cached(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Files.open_cached(path)
    }

    fn create(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        self.check(Op::Create)?;
        Ok(self.file(Files.create(path, length)?))
    }

    fn write_text(&self, path: &Path, text: &str) -> io::Result<()> {
        Files.write_text(path, text)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Op::Rename)?;
        Files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Files.remove(path)
    }

    fn set_modified(&self, path: &Path, modified: i64) -> io::Result<()> {
        self.check(Op::SetModified)?;
        Files.set_modified(path, modified)
    }

    fn space(&self, folder: &Path) -> io::Result<(u64, u64)> {
        Files.space(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.check(Op::Lock)?;
        Files.lock(path)
    }
}
