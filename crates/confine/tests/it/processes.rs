//! Laws about processes: threads, limits, privileges, signals to the starter, descendants.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use confine::ConfineError;
use rustix::process::{Pid, Signal, getppid, kill_process, test_kill_process};

use crate::report::{Outcome, Report};
use crate::run::{Machine, said};
use crate::scene::{Outside, Scene};

/// A law, the mode that its child runs in, and what the child says if it holds.
struct Law {
    name: &'static str,
    mode: &'static str,
    child: fn() -> String,
    expected: &'static str,
}

const LAWS: &[Law] = &[
    Law {
        name: "a_process_with_two_threads_is_not_confined",
        mode: "free",
        child: second_thread,
        expected: "threads 2",
    },
    Law {
        name: "no_capability_is_left_and_none_comes_back",
        mode: "confined",
        child: capabilities,
        expected: "CapInh 0 CapPrm 0 CapEff 0 CapAmb 0 NoNewPrivs 1 Seccomp 2",
    },
    Law {
        name: "limits_are_set_for_files_and_core_dumps",
        mode: "confined",
        child: limits,
        expected: "core 0 file 17179869184",
    },
    Law {
        name: "a_second_confinement_allows_no_more_than_the_first",
        mode: "confined",
        child: again,
        expected: "applied refused",
    },
    Law {
        name: "protected_ancestors_are_neither_signalled_nor_opened_and_their_files_not_written",
        mode: "confined",
        child: ancestors,
        expected: "before true true true true after false false false true",
    },
    Law {
        name: "no_descendant_survives_whose_number_changes_all_the_time",
        mode: "confined",
        child: hopping_descendants,
        expected: "survivors 0",
    },
    Law {
        name: "no_descendant_survives",
        mode: "confined",
        child: descendants,
        expected: "survivors 0",
    },
    Law {
        name: "no_descendant_survives_that_starts_others_all_the_time",
        mode: "confined",
        child: busy_descendants,
        expected: "survivors 0",
    },
];

pub fn tests(report: &mut Report, machine: &Machine<'_>, user: &str) {
    for law in LAWS {
        report.test(&format!("{user}::{}", law.name), || {
            let outside = Outside::new(machine.user);
            let mut command = machine.command(&outside, law.mode, law.name);
            let said = said(&command.stdin(Stdio::null()).output().unwrap());
            if said == law.expected {
                return Outcome::Passed;
            }
            Outcome::Failed(format!("{said}, expected {}", law.expected))
        });
    }
}

/// What the child says for the law of that name.
pub fn child(name: &str) -> Option<String> {
    LAWS.iter().find(|law| law.name == name).map(|law| (law.child)())
}

fn scene() -> Scene {
    Scene::at(std::env::var("CONFINE_SCENE").unwrap())
}

fn second_thread() -> String {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    let result = scene().confinement().apply();
    drop(stop);
    let _ended = thread.join();
    match result {
        Err(ConfineError::Threads { count }) => format!("threads {count}"),
        other => format!("{other:?}"),
    }
}

/// Of a program that this process executes, which root's get all of otherwise.
fn capabilities() -> String {
    let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let names = ["CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp"];
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let wanted = fields.filter(|(name, _)| names.contains(name));
    let values = wanted.map(|(name, value)| match value.trim().trim_start_matches('0') {
        "" => format!("{name} 0"),
        value => format!("{name} {value}"),
    });
    values.collect::<Vec<_>>().join(" ")
}

fn limits() -> String {
    use rustix::process::{Resource, getrlimit};
    let of = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
    format!("core {} file {}", of(Resource::Core), of(Resource::Fsize))
}

/// A confinement that would allow more allows no more, and may be applied.
fn again() -> String {
    let scene = scene();
    let mut wider = scene.confinement();
    wider.write = vec![scene.base.join("home")];
    wider.user.home = None;
    let applied = if wider.apply().is_err() { "refused" } else { "applied" };
    let read = if std::fs::read(scene.key()).is_err() { "refused" } else { "read" };
    format!("{applied} {read}")
}

/// A child stands between this process and the command, as `protect_ancestors` says.
fn ancestors() -> String {
    if std::env::var_os("CONFINE_COMMAND").is_some() {
        let parent = getppid().unwrap();
        let confinement = scene().confinement();
        let inner = confinement.temporary.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let look = || {
            let descriptors = std::fs::read_link(format!("/proc/{}/fd/0", parent.as_raw_nonzero()));
            let is_written = |folder: &Path| std::fs::write(folder.join("file"), "x").is_ok();
            let signalled = test_kill_process(parent).is_ok();
            let written = [&confinement.temporary, &inner].map(|folder| is_written(folder));
            format!("{signalled} {} {} {}", descriptors.is_ok(), written[0], written[1])
        };
        let before = look();
        confine::protect_ancestors(std::slice::from_ref(&inner)).unwrap();
        return format!("before {before} after {}", look());
    }
    let mut command = Command::new("/proc/self/exe");
    command.env("CONFINE_COMMAND", "1").env("CONFINE_MODE", "free");
    said(&command.output().unwrap())
}

/// Sleeping processes whose parents have ended, in groups and sessions of their own.
fn descendants() -> String {
    let script = "sleep 99 & (sleep 99 & sleep 99 &); setsid sleep 99 &";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::null()).status().unwrap();
    let started = Instant::now();
    while sleeping().len() < 4 {
        assert!(started.elapsed() < Duration::from_secs(10), "they start");
        std::thread::sleep(Duration::from_millis(5));
    }
    end_of(&sleeping())
}

fn busy_descendants() -> String {
    let script =
        "s() { i=0; while [ $i -lt 2000 ]; do i=$((i+1)); (sleep 99 &); done; }; s & s & s";
    let mut command = Command::new("sh");
    let mut shell = command.args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut pids = sleeping();
    pids.push(Pid::from_child(&shell));
    let said = end_of(&pids);
    let _reaped = shell.wait();
    said
}

/// Chains of processes that start the next one and end.
fn hopping_descendants() -> String {
    let script = "h() { [ $1 -gt 0 ] && h $(($1 - 1)) & }; h 3000 & h 3000 & h 3000 & wait";
    let mut command = Command::new("sh");
    let mut shell = command.args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let said = end_of(&[Pid::from_child(&shell)]);
    let _reaped = shell.wait();
    let left = running("sh");
    end_of(&left);
    if left.is_empty() { said } else { format!("{said}, and {left:?}") }
}

fn end_of(pids: &[Pid]) -> String {
    if let Err(error) = confine::kill_descendants() {
        return error.to_string();
    }
    let survivors = pids.iter().filter(|pid| test_kill_process(**pid).is_ok()).count();
    for pid in pids {
        let _ended = kill_process(*pid, Signal::KILL);
    }
    format!("survivors {survivors}")
}

fn sleeping() -> Vec<Pid> {
    running("sleep")
}

/// Processes of this test with this name: those whose environment has the scene.
fn running(name: &str) -> Vec<Pid> {
    let scene = std::env::var("CONFINE_SCENE").unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("comm").starts_with(name.as_bytes())
            && String::from_utf8_lossy(&read("environ")).contains(&scene)
    };
    pids.filter(ours).filter_map(Pid::from_raw).collect()
}
