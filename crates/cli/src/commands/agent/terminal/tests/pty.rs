//! A run of a program on a pseudo-terminal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for anything.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(20);
/// Held while a program is started.
static STARTS: Mutex<()> = Mutex::new(());

/// A run of the program.
pub(super) struct PtyRun {
    child: Child,
    /// The side of the terminal emulator; `None` after it was closed.
    terminal: Option<File>,
    /// The side of the program, whose settings are looked at.
    program: File,
    before: Termios,
    /// What the program has written.
    pub output: String,
    /// Questions for the position of the cursor that are answered.
    answered: usize,
    answers: bool,
    /// Bytes of the output that were waited for.
    seen: usize,
}

impl PtyRun {
    /// Starts a program, and waits until it edits lines and has written `ready`. The terminal says
    /// where its cursor is if it `answers`.
    pub fn start(command: Command, ready: &str, answers: bool) -> Self {
        let mut run = Self::begin(command, ready, answers);
        assert!(!run.is_restored(), "raw mode is on");
        run
    }

    /// Starts a program, and waits until it has written `ready`.
    pub fn begin(mut command: Command, ready: &str, answers: bool) -> Self {
        // The programs of other tests are not to have this terminal.
        let _one = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        fcntl_setfd(&terminal, FdFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let program = File::options().read(true).write(true).open(name).unwrap();
        let before = tcgetattr(&program).unwrap();
        let side = || Stdio::from(program.try_clone().unwrap());
        let child = command.process_group(0).stdin(side()).stdout(side()).stderr(side()).spawn();
        let (child, terminal) = (child.unwrap(), Some(File::from(terminal)));
        let mut run = Self {
            child,
            terminal,
            program,
            before,
            output: String::new(),
            answered: 0,
            answers,
            seen: 0,
        };
        run.resize(80, 24);
        run.wait_until("the program is ready", |run| run.output.contains(ready));
        run
    }

    pub fn write(&self, bytes: &[u8]) {
        self.terminal.as_ref().unwrap().write_all(bytes).unwrap();
    }

    pub fn kill(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the program, after which the terminal is as it was before.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.wait();
        assert!(self.is_restored(), "the settings are those from before");
        self.read();
        assert!(self.output.contains("\x1b[?2004l"), "marks of pastes are off");
        let cursor = self.output.rfind("\x1b[?25h") > self.output.rfind("\x1b[?25l");
        assert!(cursor, "the cursor is seen");
        status
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        self.wait_until("the program ends", |run| {
            status = run.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits until the program has written this since the last time.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |run| run.output[run.seen..].contains(text));
        self.seen = self.output.len();
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.program, size).unwrap();
    }

    /// Closes the terminal.
    pub fn close(&mut self) {
        self.terminal = None;
    }

    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + MAX_WAIT;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.output);
            self.read();
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads the output, and says where the cursor is as often as the program asks.
    fn read(&mut self) {
        let Some(mut terminal) = self.terminal.as_ref() else { return };
        let mut polled = [PollFd::from_borrowed_fd(terminal.as_fd(), PollFlags::IN)];
        while poll(&mut polled, Some(&Timespec::default())).unwrap() > 0 {
            let mut bytes = [0; 4096];
            let count = terminal.read(&mut bytes).unwrap();
            self.output.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        while self.answers && self.output.matches("\x1b[6n").count() > self.answered {
            terminal.write_all(b"\x1b[2;1R").unwrap();
            self.answered += 1;
        }
    }

    pub fn is_restored(&mut self) -> bool {
        let now = tcgetattr(&self.program).unwrap();
        let modes = |of: &Termios| (of.local_modes, of.input_modes, of.output_modes);
        let is_same = modes(&now) == modes(&self.before);
        assert_eq!(is_same, now.local_modes.contains(LocalModes::ICANON));
        is_same
    }
}

impl Drop for PtyRun {
    fn drop(&mut self) {
        // A test that has failed leaves no program.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
