//! Raw mode ends on every path: this program runs itself on a pseudo-terminal, and looks at the
//! settings of that when it has ended.

use super::super::{AgentTerminal, restore};
use super::pty::{MAX_WAIT, PtyRun};
use super::*;
use rustix::process::Signal;
use std::env;
use std::io;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Names the path that the program takes.
const PATH: &str = "GANNET_TEST_TERMINAL_PATH";
/// What it says when it has the terminal.
const READY: &str = "it is ready";

/// This program on a path.
fn program(path: &str) -> Command {
    let tests = module_path!().split_once("::").unwrap().1;
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", &format!("{tests}::child")]).env(PATH, path);
    command
}

fn start(path: &str) -> PtyRun {
    PtyRun::start(program(path), READY, true)
}

#[test]
fn raw_mode_ends_on_every_path() {
    for (path, code) in [("return", 0), ("error", 1), ("panic", 101), ("exit", 7)] {
        let mut run = start(path);
        run.write(b"go\r");
        assert_eq!(run.end().code(), Some(code), "{path}");
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut run = start("wait");
        run.kill(signal);
        assert_eq!(run.end().code(), Some(code), "{signal:?}");
    }
    let mut run = start("return");
    run.write(b"\x04");
    assert_eq!(run.end().code(), Some(0), "Ctrl-D");
}

#[test]
fn the_program_ends_when_the_terminal_is_gone() {
    let mut run = start("return");
    run.close();
    assert_eq!(run.wait().code(), Some(0));
}

#[test]
fn a_stopped_program_leaves_the_terminal_to_the_shell() {
    let mut run = start("return");
    run.write(b"\x1a");
    run.wait_until("the settings are the shell's", PtyRun::is_restored);
    run.kill(Signal::CONT);
    run.wait_until("raw mode is on again", |run| !run.is_restored());
    run.write(b"go\r");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn a_terminal_that_does_not_say_where_its_cursor_is_can_be_used() {
    let mut run = PtyRun::start(program("return"), READY, false);
    run.write(b"go\r");
    assert_eq!(run.end().code(), Some(0));
}

#[test]
fn what_is_said_on_standard_error_stands_above() {
    let mut run = start("aside");
    run.wait_for("said aside");
    run.write(b"go\r");
    assert_eq!(run.end().code(), Some(0));
    // Above the viewport, and once it has ended as it is.
    assert!(!run.output.contains("said aside\n"), "{:?}", run.output);
    assert!(run.output.contains("said afterwards"), "{:?}", run.output);
    assert!(run.output.contains("the end\r\n"), "{:?}", run.output);
}

#[test]
fn keys_come_to_the_agent() {
    let mut run = start("talk");
    run.write(b"go\r");
    run.wait_for("working");
    run.write("a wörd 漢\r".as_bytes());
    run.write(b"later\x1b\r");
    run.wait_for("may it run?");
    run.write(b"yes\r");
    run.wait_for("step 2 漢字.");
    run.write(b"\x03");
    run.wait_for("step 3");
    run.write(b"\x1b[200~pasted\rlines\x1b[201~");
    run.wait_for("lines");
    run.write(b"\r");
    run.wait_for("step 4");
    run.resize(50, 12);
    run.write(b"/comp\t of it\r");
    run.wait_for("and now?");
    run.write(b"\x03");
    run.wait_for("step 5");
    run.write(b"\x03");
    assert_eq!(run.end().code(), Some(0));
    for mark in ["\x1b[?1049h", "\x1b[38"] {
        assert!(!run.output.contains(mark), "no other screen, no colour of more than sixteen");
    }
}

/// The agent of [`keys_come_to_the_agent`].
fn talk(terminal: &AgentTerminal) {
    let note = |text: &str| terminal.show(TerminalEvent::Note(text.into()));
    assert_eq!(terminal.next(), message("go"));
    terminal.begin_work();
    terminal.show(TerminalEvent::Text("an answer".into()));
    let mut written = Vec::new();
    while written.is_empty() {
        thread::sleep(Duration::from_millis(5));
        written = terminal.written();
    }
    assert_eq!(written, ["a wörd 漢"]);
    let choices = [AnswerChoice { key: 'y', name: "yes, once".into() }];
    assert_eq!(terminal.ask("may it run?", &choices, None), Chosen::Key('y'));
    assert!(!terminal.is_interrupted());
    note("step 2 漢字.");
    while !terminal.is_interrupted() {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(terminal.ask("is it asked after Ctrl-C?", &choices, None), Chosen::Nothing);
    terminal.show(TerminalEvent::Working(false));
    assert_eq!(terminal.next(), message("later"));
    note("step 3");
    assert_eq!(terminal.next(), message("pasted\nlines"));
    note("step 4");
    let compact = Typed::Command { name: "compact".into(), argument: "of it".into() };
    assert_eq!(terminal.next(), compact);
    terminal.begin_work();
    assert!(!terminal.is_interrupted());
    assert_eq!(terminal.ask("and now?", &choices, None), Chosen::Nothing);
    note("step 5");
    assert_eq!(terminal.next(), Typed::End);
    assert!(terminal.is_interrupted());
}

/// The program on the pseudo-terminal: no test by itself.
#[test]
fn child() {
    let Ok(path) = env::var(PATH) else { return };
    handle_signals();
    std::process::exit(act(&path).is_err().into());
}

fn act(path: &str) -> io::Result<()> {
    let terminal = AgentTerminal::open(COMMANDS, Vec::new(), || false)?;
    terminal.show(TerminalEvent::Note(READY.into()));
    if path == "wait" {
        terminal.begin_work();
        thread::sleep(MAX_WAIT);
    }
    if path == "talk" {
        talk(&terminal);
        return Ok(());
    }
    if path == "aside" {
        crate::output::note("said aside");
    }
    let typed = terminal.next();
    match path {
        "aside" => {
            crate::output::note("said afterwards");
            drop(terminal);
            crate::output::note("the end");
            Ok(())
        }
        "error" => Err(io::Error::other("an error")),
        "panic" => panic!("a panic of the agent's thread"),
        "exit" => {
            restore();
            restore();
            std::process::exit(7)
        }
        _ => {
            assert!([Typed::End, message("go")].contains(&typed), "{typed:?}");
            Ok(())
        }
    }
}

/// Ends the process as the program does: in a thread of its own.
fn handle_signals() {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let code = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).unwrap();
            let mut hangup = signal(SignalKind::hangup()).unwrap();
            sender.send(()).unwrap();
            tokio::select! {
                _ = terminate.recv() => 143,
                _ = hangup.recv() => 129,
            }
        });
        restore();
        std::process::exit(code);
    });
    receiver.recv().unwrap();
}
