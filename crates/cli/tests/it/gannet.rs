//! Running the binary, and models small enough to run often.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// A folder for this run of the tests, removed by the system's own rules.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gannet-it");
    std::fs::create_dir_all(&folder).unwrap();
    folder
});

/// The binary with its user's folders inside the tests' own, and no settings of this machine.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    let ours = |name: &OsStr| name.to_string_lossy().starts_with("GANNET_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    for variable in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "HF_HOME"] {
        command.env(variable, FOLDER.join("home"));
    }
    command.current_dir(&*FOLDER).stdin(Stdio::null());
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the binary to its end.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Ended {
    command().args(args).output().unwrap().into()
}

/// As [`run`], with `input` piped in.
pub fn run_with_input<S: AsRef<OsStr>>(args: &[S], input: &str) -> Ended {
    let mut command = command();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// Runs what must succeed; gives its standard output.
pub fn succeed<S: AsRef<OsStr>>(args: &[S]) -> String {
    let ended = run(args);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    ended.out
}

/// Whether standard error is one `error:` line that says `expected`, with indented causes.
pub fn check_error(ended: &Ended, expected: &str) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let mut lines = ended.err.lines();
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("error: "), "{}", ended.err);
    assert!(lines.all(|line| line.starts_with("  ")), "{}", ended.err);
    assert!(ended.err.contains(expected), "{expected} is not in: {}", ended.err);
}

/// Whether a command ended as after wrong usage, which standard error names.
pub fn check_usage(ended: &Ended, expected: &str) {
    assert_eq!((ended.code, &*ended.out), (Some(2), ""), "{ended:?}");
    assert!(ended.err.starts_with("error: ") && ended.err.contains(expected), "{}", ended.err);
}

/// A path in the tests' folder.
pub fn path(name: &str) -> String {
    FOLDER.join(name).to_str().unwrap().to_owned()
}

/// A file in the tests' folder.
pub fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    // Tests may write the same file at the same time, and read it meanwhile.
    let temporary = path(&format!("{name}.{:?}", std::thread::current().id()));
    std::fs::write(&temporary, content).unwrap();
    std::fs::rename(temporary, path(name)).unwrap();
    path(name)
}

/// A synthetic checkpoint, made by the binary itself, once.
pub fn tiny() -> String {
    static TINY: LazyLock<String> = LazyLock::new(|| {
        succeed(&["synth", "tiny-qwen3", "--force", "-o", &path("tiny"), "--seed", "3"]);
        path("tiny")
    });
    TINY.clone()
}

/// Waits until `condition` holds, for at most a minute.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}
