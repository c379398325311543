//! The file system as the store uses it, behind a trait so that tests can make it fail.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Bytes of a file.
    pub bytes: u64,
    /// Time of modification, in nanoseconds since the Unix epoch.
    pub modified: i64,
}

/// A file that is read or written.
pub trait DiskFile: Send {
    /// Bytes of the file.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn length(&self) -> io::Result<u64>;

    /// Fills `bytes` from `offset` on. Of files in whole pages, both are whole pages.
    ///
    /// # Errors
    ///
    /// If the file ends before, or the system gives an error.
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// A lock that is held until it is dropped.
pub trait DiskLock: Send {
    /// The number that the last holder left; 0 at first.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn number(&self) -> io::Result<u64>;

    /// Leaves a number to the next holder.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn set_number(&mut self, number: u64) -> io::Result<()>;
}

/// A file system.
pub trait Disk: Send + Sync {
    /// The entries of a folder, in any order.
    ///
    /// # Errors
    ///
    /// If there is no such folder, or the system gives another error.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    /// Creates a folder that only its owner may enter, and those above it. One that exists is left
    /// as it is.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Opens a file to be read in whole pages.
    ///
    /// # Errors
    ///
    /// If there is no such file, or the system gives another error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file of which little is read, so that the system may keep it in memory.
    ///
    /// # Errors
    ///
    /// If there is no such file, or the system gives another error.
    fn open_cached(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a file of `length` zeros that only its owner may read, to be written in whole pages.
    ///
    /// # Errors
    ///
    /// If there is such a file, or the system gives another error.
    fn create(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a file with this text that only its owner may read.
    ///
    /// # Errors
    ///
    /// If there is such a file, or the system gives another error.
    fn write_text(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Gives a file another name, in place of a file that has it.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// If there is no such file, or the system gives another error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Sets a file's time of modification.
    ///
    /// # Errors
    ///
    /// If there is no such file, or the system gives another error.
    fn set_modified(&self, path: &Path, modified: i64) -> io::Result<()>;

    /// Bytes that may still be written, and bytes of the whole file system.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn space(&self, folder: &Path) -> io::Result<(u64, u64)>;

    /// Waits for the lock that is a file, which no other process holds then.
    ///
    /// # Errors
    ///
    /// If the system gives one.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

/// Permissions of folders and files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

impl Disk for Files {
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata())
            else {
                // It has no name of ours, or was removed in the meantime.
                continue;
            };
            let modified = nanos(metadata.modified()?);
            let is_folder = metadata.is_dir();
            entries.push(Entry { name, is_folder, bytes: metadata.len(), modified });
        }
        Ok(entries)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let [mut direct, mut cached] = [(); 2].map(|()| OpenOptions::new());
        Ok(Box::new(open_direct(direct.read(true), cached.read(true), path)?))
    }

    fn open_cached(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn create(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        let [mut direct, mut cached] = [(); 2].map(|()| OpenOptions::new());
        direct.write(true).mode(FILE_MODE).create_new(true);
        // The first attempt may have created the file.
        cached.write(true).mode(FILE_MODE).create(true).truncate(true);
        let file = open_direct(&mut direct, &mut cached, path)?;
        file.set_len(length)?;
        Ok(Box::new(file))
    }

    fn write_text(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(FILE_MODE).open(path)?;
        file.write_all_at(text.as_bytes(), 0)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn set_modified(&self, path: &Path, modified: i64) -> io::Result<()> {
        File::open(path)?.set_modified(time(modified))
    }

    fn space(&self, folder: &Path) -> io::Result<(u64, u64)> {
        let space = rustix::fs::statvfs(folder)?;
        let unit = space.f_frsize;
        Ok((space.f_bavail.saturating_mul(unit), space.f_blocks.saturating_mul(unit)))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = options.open(path)?;
        file.lock()?;
        Ok(Box::new(Locked(file)))
    }
}

/// Opens a file without the page cache, or with it on file systems that have no other way.
fn open_direct(
    direct: &mut OpenOptions,
    cached: &mut OpenOptions,
    path: &Path,
) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    match direct.custom_flags(libc::O_DIRECT).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => cached.open(path),
        opened => opened,
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = cached;
        direct.open(path)
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// A file that is locked until it is closed.
struct Locked(File);

impl DiskLock for Locked {
    fn number(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match self.0.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read.map(|()| u64::from_le_bytes(bytes)),
        }
    }

    fn set_number(&mut self, number: u64) -> io::Result<()> {
        self.0.write_all_at(&number.to_le_bytes(), 0)
    }
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn nanos(time: SystemTime) -> i64 {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    }
}

fn time(nanos: i64) -> SystemTime {
    let duration = Duration::from_nanos(nanos.unsigned_abs());
    let time = match nanos < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(duration),
        false => SystemTime::UNIX_EPOCH.checked_add(duration),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapMut;

    #[test]
    fn files_are_written_renamed_read_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, inner) = (Files, folder.path().join("a/b"));
        disk.create_folder(&inner).unwrap();
        disk.create_folder(&inner).unwrap();
        let (from, to) = (inner.join("from"), inner.join("to"));
        let mut page = MmapMut::map_anon(8192).unwrap();
        page[..4096].fill(7);
        disk.create(&from, 8192).unwrap().write(&page[..4096], 0).unwrap();
        disk.create(&from, 0).map(drop).unwrap_err();
        disk.rename(&from, &to).unwrap();
        let file = disk.open(&to).unwrap();
        assert_eq!(file.length().unwrap(), 8192);
        page.fill(1);
        file.read(&mut page[..4096], 4096).unwrap();
        assert_eq!((page[0], page[4095], page[4096]), (0, 0, 1));
        disk.open_cached(&to).unwrap().read(&mut page[..5], 2).unwrap();
        assert_eq!(page[..6], [7, 7, 7, 7, 7, 0]);
        file.read(&mut page, 4096).unwrap_err();
        let modified = 1_700_000_000_123_456_789;
        disk.set_modified(&to, modified).unwrap();
        let expected = Entry { name: "to".into(), is_folder: false, bytes: 8192, modified };
        assert_eq!(disk.list(&inner).unwrap(), [expected]);
        disk.remove(&to).unwrap();
        disk.open(&to).map(drop).unwrap_err();
        let (free, total) = disk.space(&inner).unwrap();
        assert!(free <= total && total > 0);
    }

    #[test]
    fn only_the_owner_may_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("kv");
        Files.create_folder(&inner).unwrap();
        let file = inner.join("file");
        Files.create(&file, 0).map(drop).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&inner), mode(&file)], [0o700, 0o600]);
    }

    #[test]
    fn a_lock_has_one_holder_and_keeps_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let add = || {
            let mut lock = Files.lock(&path).unwrap();
            let number = lock.number().unwrap();
            std::thread::yield_now();
            lock.set_number(number + 1).unwrap();
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| (0..50).for_each(|_| add()))));
        });
        assert_eq!(Files.lock(&path).unwrap().number().unwrap(), 200);
    }

    #[test]
    fn times_before_the_epoch_are_times() {
        for nanos_of in [0, 1, -1, 1_790_000_000_000_000_001, -5_000_000_000_123] {
            assert_eq!(nanos(time(nanos_of)), nanos_of);
        }
    }
}
