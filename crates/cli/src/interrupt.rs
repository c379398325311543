//! Ctrl-C, SIGTERM, SIGQUIT and SIGHUP. A signal ends the process at once, unless a command watches
//! for it to finish its work first. A second signal always ends the process.

use crate::mpi_world;
use crate::terminal;
use base::Interrupted;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// The signal that the current watch, its only receiver, has received.
static SIGNAL: LazyLock<watch::Sender<Option<Signal>>> = LazyLock::new(|| watch::Sender::new(None));

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
    /// SIGQUIT, Ctrl-\\ in a terminal.
    Quit,
}

impl Signal {
    /// The exit code: 128 plus the number of the signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
            Self::Quit => 131,
        }
    }
}

/// The exit code of work that a signal has ended.
pub(crate) fn code() -> u8 {
    SIGNAL.borrow().unwrap_or(Signal::Interrupt).code()
}

/// Ends work that Ctrl-C only interrupts, if another signal has come.
pub(crate) fn check_end() -> Result<(), Interrupted> {
    match *SIGNAL.borrow() {
        Some(Signal::Terminate | Signal::Hangup | Signal::Quit) => Err(Interrupted),
        Some(Signal::Interrupt) | None => Ok(()),
    }
}

/// Whether a signal is what an error comes from.
pub(crate) fn caused(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Interrupted>())
}

/// Leaves SIGHUP to the server, which reads its files anew.
pub(crate) fn leave_hangups() {
    LEAVES_HANGUPS.store(true, Ordering::Relaxed);
}

/// Whether SIGHUP is not for this module.
static LEAVES_HANGUPS: AtomicBool = AtomicBool::new(false);

/// Ends the process as SIGTERM does when standard input ends.
pub(crate) fn end_with_input() -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("gannet-input".into());
    let reading = thread.spawn(|| {
        // An input that cannot be read has ended as well.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        received(Signal::Terminate);
    });
    reading.map(drop)
}

/// Receives the first signal, which then does not end the process. One watch exists at a time.
#[derive(Debug)]
pub(crate) struct Watch {
    signal: watch::Receiver<Option<Signal>>,
}

impl Watch {
    /// Begins to watch.
    pub fn new() -> Self {
        SIGNAL.send_replace(None);
        Self { signal: SIGNAL.subscribe() }
    }

    /// # Errors
    ///
    /// [`Interrupted`] after a signal.
    pub fn check(&self) -> Result<(), Interrupted> {
        self.signal.borrow().map_or(Ok(()), |_| Err(Interrupted))
    }

    /// Waits for a signal.
    pub async fn wait(&mut self) -> Signal {
        match self.signal.wait_for(Option::is_some).await.map(|signal| *signal) {
            Ok(Some(signal)) => signal,
            // The sender is static and the value was waited for.
            _ => std::future::pending().await,
        }
    }
}

/// Installs the signal handlers. Without them, signals end the process by the system's default.
pub(crate) fn install() {
    let thread = std::thread::Builder::new().name("gannet-signals".into());
    let listening = thread.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(listen())
    });
    if let Err(error) = listening {
        tracing::warn!("cannot listen for signals: {error}");
    }
}

#[cfg(unix)]
async fn listen() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // As under nohup, and of what a shell has started in the background.
    let unless_ignored = |kind: SignalKind| match is_ignored(kind.as_raw_value()) {
        true => Ok(None),
        false => signal(kind).map(Some),
    };
    let mut hangup = unless_ignored(SignalKind::hangup())?;
    let mut quit = unless_ignored(SignalKind::quit())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => received(Signal::Interrupt),
            _ = terminate.recv() => received(Signal::Terminate),
            Some(()) = received_by(quit.as_mut()) => received(Signal::Quit),
            Some(()) = received_by(hangup.as_mut()) => {
                if !LEAVES_HANGUPS.load(Ordering::Relaxed) {
                    received(Signal::Hangup);
                }
            }
        }
    }
}

/// Waits for a signal; for ever if it is not listened to.
#[cfg(unix)]
async fn received_by(signal: Option<&mut tokio::signal::unix::Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether the process was started with a signal ignored; so it is where the system does not tell.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is that of signal 1.
    ignored.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(unix))]
async fn listen() -> std::io::Result<()> {
    loop {
        tokio::signal::ctrl_c().await?;
        received(Signal::Interrupt);
    }
}

fn received(signal: Signal) {
    let is_watched = SIGNAL.receiver_count() > 0;
    if !is_watched || SIGNAL.borrow().is_some() {
        terminal::restore();
        mpi_world::leave(signal.code());
        std::process::exit(signal.code().into());
    }
    if matches!(signal, Signal::Terminate | Signal::Quit) {
        mpi_world::ping();
    }
    SIGNAL.send_replace(Some(signal));
}
