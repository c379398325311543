use super::*;
use redb::backends::FileBackend;
use redb::{BackendError, Database, StorageBackend};
use std::fs::OpenOptions;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const TABLE: &str = "t";

fn put(key: &str, value: &str) -> Change {
    Change::put(TABLE, key, value)
}

fn records(state: &StateDir) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut records = Vec::new();
    state.read(TABLE, |key, value| records.push((text(key), text(value))));
    records
}

fn check(state: &StateDir, expected: &[(&str, &str)]) {
    let expected: Vec<_> =
        expected.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    assert_eq!(records(state), expected);
}

#[tokio::test]
async fn committed_records_are_there_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open(folder.path()).unwrap();
    check(&state, &[]);
    state.write([put("a", "1"), put("b", "2")]).wait().await;
    check(&state, &[("a", "1"), ("b", "2")]);
    state.write([Change::remove(TABLE, "a"), put("c", "3")]);
    // The last clone writes what is left.
    drop(state);
    let state = StateDir::open(folder.path()).unwrap();
    check(&state, &[("b", "2"), ("c", "3")]);
    // What has ended gives the folder up, though it is still held.
    state.finish();
    state.write([put("late", "x")]).wait().await;
    let again = StateDir::open(folder.path()).unwrap();
    check(&again, &[("b", "2"), ("c", "3")]);
    check(&state, &[]);
}

#[test]
fn a_folder_has_one_user_and_is_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/state");
    let state = StateDir::open(&path).unwrap();
    let error = StateDir::open(&path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("another server"), "{error}");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("state.redb"))), (0o700, 0o600));
    drop(state);
    StateDir::open(&path).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("file");
    std::fs::write(&taken, "").unwrap();
    let error = StateDir::open(&taken).unwrap_err().to_string();
    assert!(error.contains(taken.to_str().unwrap()), "{error}");
}

/// A disk that is slow, and fails on demand.
#[derive(Debug)]
struct ScriptedDisk {
    file: FileBackend,
    script: &'static Script,
}

#[derive(Debug, Default)]
struct Script {
    fails: AtomicBool,
    is_slow: AtomicBool,
    syncs: AtomicUsize,
}

impl Script {
    const fn new() -> Self {
        Self {
            fails: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            syncs: AtomicUsize::new(0),
        }
    }

    fn check(&self) -> std::io::Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(std::io::Error::from(std::io::ErrorKind::StorageFull)),
            false => Ok(()),
        }
    }

    fn open(&'static self, path: &Path) -> Result<Database, redb::Error> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let disk = ScriptedDisk { file: FileBackend::new(file)?, script: self };
        Ok(Database::builder().create_with_backend(disk)?)
    }
}

impl StorageBackend for ScriptedDisk {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.script.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        if self.script.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.script.syncs.fetch_add(1, Ordering::SeqCst);
        self.script.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.script.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(from, to)
    }

    fn unlock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(from, to)
    }
}

#[tokio::test]
async fn changes_that_arrive_during_a_commit_are_one_group() {
    static SCRIPT: Script = Script::new();
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open_with(folder.path(), |path| SCRIPT.open(path), RETRY).unwrap();
    SCRIPT.is_slow.store(true, Ordering::SeqCst);
    let before = SCRIPT.syncs.load(Ordering::SeqCst);
    let write = |number: usize| state.write([put(&format!("{number:03}"), "x")]);
    let commits: Vec<Commit> = (0..100).map(write).collect();
    for commit in commits {
        commit.wait().await;
    }
    let syncs = SCRIPT.syncs.load(Ordering::SeqCst) - before;
    assert!((1..=12).contains(&syncs), "{syncs} times synced for 100 changes");
    assert_eq!(records(&state).len(), 100);
}

#[tokio::test]
async fn a_failing_disk_fails_no_caller_and_gets_everything_later() {
    static SCRIPT: Script = Script::new();
    let folder = tempfile::tempdir().unwrap();
    let retry = Duration::from_millis(50);
    let state = StateDir::open_with(folder.path(), |path| SCRIPT.open(path), retry).unwrap();
    state.write([put("a", "1"), put("b", "1")]).wait().await;
    SCRIPT.fails.store(true, Ordering::SeqCst);
    state.write([put("a", "2"), Change::insert(TABLE, "c", "2")]).wait().await;
    state.write([Change::remove(TABLE, "b"), Change::remove(TABLE, "c"), put("d", "2")]);
    tokio::time::sleep(retry * 3).await;
    SCRIPT.fails.store(false, Ordering::SeqCst);
    let limit = Instant::now() + Duration::from_secs(20);
    while records(&state) != [("a".into(), "2".into()), ("d".into(), "2".into())] {
        assert!(Instant::now() < limit, "{:?}", records(&state));
        tokio::time::sleep(retry).await;
    }
    state.write([put("e", "3")]).wait().await;
    drop(state);
    check(&StateDir::open(folder.path()).unwrap(), &[("a", "2"), ("d", "2"), ("e", "3")]);
}

#[test]
fn a_damaged_file_is_refused_or_used_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open(folder.path()).unwrap();
    state.write((0..200).map(|at| put(&format!("{at:04}"), &"v".repeat(at * 7))));
    drop(state);
    let path = folder.path().join("state.redb");
    let sound = std::fs::read(&path).unwrap();
    // A linear congruential generator.
    let mut number = 12345u64;
    let mut draw = move |below: usize| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (number >> 33) as usize % below
    };
    let mut refused = 0;
    for round in 0..600 {
        let mut damaged = sound.clone();
        for _ in 0..=round % 4 {
            let at = draw(if round % 2 == 0 { 4096 } else { sound.len() });
            damaged[at] ^= 1 << draw(8);
        }
        if round % 10 == 0 {
            damaged.truncate(draw(sound.len()));
        }
        std::fs::write(&path, &damaged).unwrap();
        let Ok(state) = StateDir::open(folder.path()) else {
            refused += 1;
            continue;
        };
        state.read(TABLE, |_, _| {});
        state.write([put("new", "x")]);
        let thread = lock(&state.0.thread).take();
        lock(&state.0.shared.queue).ended = true;
        state.0.shared.changed.notify_all();
        assert!(thread.is_none_or(|thread| thread.join().is_ok()), "round {round}");
    }
    assert!((1..600).contains(&refused));
}
