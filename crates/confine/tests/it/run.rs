//! The parent, which starts each attempt twice, and the child, which carries one out.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use confine::{Confinement, Network};

use crate::report::{Outcome, Report, say};
use crate::scene::{Outside, Scene, as_user};
use crate::{attempts, calls, processes, sockets, work};

/// One thing to try.
pub struct Attempt {
    pub name: &'static str,
    pub act: Act,
    /// What the kernel says to a confined process: error numbers, or a signal as a negative one.
    pub refused: &'static [i32],
}

/// How it is tried.
pub enum Act {
    Rust(fn(&Scene) -> io::Result<()>),
    /// Lines of Python, after those of `calls.py`.
    Python(&'static str),
    /// A system call: its number is `N` in the lines.
    Call(libc::c_long, &'static str),
    /// A command of the shell, which ends with 0.
    Shell(&'static str),
}

/// The user `nobody` of most systems.
const NOBODY: u32 = 65534;

pub fn main() -> ExitCode {
    if let Ok(name) = std::env::var("CONFINE_ATTEMPT") {
        return child(&name);
    }
    let mut report = Report::new();
    if let Err(missing) = confine::support() {
        report.test("confinement", || Outcome::Skipped(missing.to_string()));
        return report.end();
    }
    let folder = tempfile::tempdir().unwrap();
    let program = shared_copy(folder.path());
    let users = if rustix::process::geteuid().is_root() {
        vec![("root", None), ("nobody", Some(NOBODY))]
    } else {
        vec![("user", None)]
    };
    for (user_name, user) in users {
        let machine = Machine { program: &program, user };
        nothing_outside_is_reached(&mut report, &machine, user_name);
        ordinary_work_is_done_inside(&mut report, &machine, user_name);
        processes::tests(&mut report, &machine, user_name);
    }
    report.end()
}

/// Another user may not reach the folder that this program was built in.
fn shared_copy(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let copy = folder.join("it");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

fn nothing_outside_is_reached(report: &mut Report, machine: &Machine<'_>, user: &str) {
    for (mode, attempts) in all_attempts() {
        for attempt in attempts {
            let name = format!("{user}::{mode}::{}", attempt.name);
            report.test(&name, || refused(machine, mode, attempt));
        }
    }
}

fn all_attempts() -> [(&'static str, &'static [Attempt]); 5] {
    [
        ("confined", attempts::FILES),
        ("confined", calls::CALLS),
        ("confined", sockets::SOCKETS),
        ("internet", sockets::OTHER_THAN_INTERNET),
        ("read_only", attempts::WRITES),
    ]
}

/// What kernels before Linux 6.12 do not prevent.
const NEEDING_SCOPES: [&str; 3] =
    ["signal_outside", "end_the_starter", "signal_outside_by_descriptor"];

fn refused(machine: &Machine<'_>, mode: &str, attempt: &Attempt) -> Outcome {
    let free = machine.carry_out("free", attempt.name);
    if free != "ok" {
        return Outcome::Skipped(format!("unconfined: {free}"));
    }
    if NEEDING_SCOPES.contains(&attempt.name) && !confine::support().is_ok_and(|s| s.scopes) {
        return Outcome::Skipped("the kernel does not limit signals".into());
    }
    let confined = machine.carry_out(mode, attempt.name);
    let mut expected = attempt.refused.iter().map(|number| match number {
        0.. => format!("errno {number}"),
        _ => format!("signal {}", -number),
    });
    if expected.any(|expected| expected == confined) {
        return Outcome::Passed;
    }
    Outcome::Failed(format!("{confined}, expected one of {:?}", attempt.refused))
}

fn ordinary_work_is_done_inside(report: &mut Report, machine: &Machine<'_>, user: &str) {
    for (mode, works) in all_work() {
        for work in works {
            report.test(&format!("{user}::work_{mode}::{}", work.name), || {
                let free = machine.carry_out("free", work.name);
                if free != "ok" {
                    return Outcome::Skipped(format!("unconfined: {free}"));
                }
                match machine.carry_out(mode, work.name).as_str() {
                    "ok" => Outcome::Passed,
                    other => Outcome::Failed(other.to_string()),
                }
            });
        }
    }
}

fn all_work() -> [(&'static str, &'static [Attempt]); 3] {
    [
        ("confined", work::WORK),
        ("internet", work::WITH_INTERNET),
        ("read_only", work::IN_A_WORKSPACE_THAT_IS_READ),
    ]
}

/// How children are started.
pub struct Machine<'a> {
    pub program: &'a Path,
    pub user: Option<u32>,
}

impl Machine<'_> {
    /// What a child says that makes the attempt: `ok`, `errno N`, or anything else.
    fn carry_out(&self, mode: &str, name: &str) -> String {
        let outside = Outside::new(self.user);
        let mut command = self.command(&outside, mode, name);
        let output = command.stdin(Stdio::null()).output().unwrap();
        said(&output)
    }

    pub fn command(&self, outside: &Outside, mode: &str, name: &str) -> Command {
        let mut command = as_user(self.program, self.user);
        command.envs(outside.variables()).env("HOME", outside.scene.base.join("home"));
        command.env("CONFINE_MODE", mode).env("CONFINE_ATTEMPT", name);
        command
    }
}

/// The last line of a child's output, or how it ended.
pub fn said(output: &std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    match (output.status.signal(), text.lines().last()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(line)) => line.to_string(),
        (None, None) => String::from_utf8_lossy(&output.stderr).replace('\n', " | "),
    }
}

/// Confines this process, if it is to be, and makes the attempt.
fn child(name: &str) -> ExitCode {
    let scene = Scene::at(std::env::var("CONFINE_SCENE").unwrap());
    if let Some(confinement) = mode(&scene)
        && let Err(error) = confinement.apply()
    {
        say(&format!("not confined: {error}"));
        return ExitCode::FAILURE;
    }
    std::env::set_current_dir(scene.workspace()).unwrap();
    if let Some(said) = processes::child(name) {
        say(&said);
        return ExitCode::SUCCESS;
    }
    let mut known = all_attempts().into_iter().chain(all_work()).flat_map(|(_, list)| list);
    match &known.find(|attempt| attempt.name == name).expect("a known name").act {
        Act::Rust(act) => say(&described(act(&scene))),
        Act::Python(lines) => python(0, lines),
        Act::Call(number, lines) => python(*number, lines),
        Act::Shell(line) => shell(&scene, line),
    }
    ExitCode::SUCCESS
}

fn mode(scene: &Scene) -> Option<Confinement> {
    match std::env::var("CONFINE_MODE").unwrap().as_str() {
        "free" => None,
        "confined" => Some(scene.confinement()),
        "internet" => Some(scene.confinement_with(Network::Internet)),
        "read_only" => Some(Confinement { read_only: true, ..scene.confinement() }),
        other => panic!("no mode {other}"),
    }
}

fn described(result: io::Result<()>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(error) => match error.raw_os_error() {
            Some(number) => format!("errno {number}"),
            None => error.to_string(),
        },
    }
}

fn python(number: libc::c_long, lines: &str) {
    let indented = lines.trim().lines().map(|line| format!("\n    {line}"));
    let script = include_str!("calls.py").replace("\n    ...", &indented.collect::<String>());
    let mut command = Command::new("python3");
    command.args(["-I", "-c", &script, &number.to_string()]).stdin(Stdio::null());
    match command.output() {
        Ok(output) => say(&said(&output)),
        Err(error) => say(&format!("python3: {error}")),
    }
}

/// With the environment that commands of a confined process have, and the names of the scene.
fn shell(scene: &Scene, line: &str) {
    let temporary = scene.temporary();
    let passed = confine::environment(std::env::vars_os(), &temporary, &temporary.join("git"));
    let ours = std::env::vars().filter(|(name, _)| name.starts_with("CONFINE_"));
    let mut command = Command::new("sh");
    command.args(["-e", "-c", line]).env_clear().envs(passed).envs(ours).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => say("ok"),
        Ok(output) => say(&String::from_utf8_lossy(&output.stderr).replace('\n', " | ")),
        Err(error) => say(&format!("sh: {error}")),
    }
}
