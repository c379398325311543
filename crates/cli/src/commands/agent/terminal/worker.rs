//! The thread of the terminal, which draws and follows keys. Another one reads them.
//!
//! Invariant: when the drawing thread ends, for whatever reason, the terminal is restored and who
//! waits for the user is woken.

use super::backend::Screenful;
use super::input::Input;
use super::input_queue::InputQueue;
use super::keys;
use super::restore;
use super::screen::{Effect, Screen};
use super::shown::TerminalEvent;
use super::view::InlineView;
use crate::held_lines;
use crossterm::event::Event;
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui_core::backend::Backend;
use std::io::{self, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most inputs that wait for the drawing thread.
const MAX_INPUTS: usize = 64;
/// Most keys that wait for it.
const MAX_KEYS: usize = 1024;
/// Most inputs between two drawings.
const BATCH: usize = 64;
/// Longest time between two looks at the size and the state of the terminal.
const TICK: Duration = Duration::from_millis(100);
/// Shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(15);

/// The drawing thread.
struct Worker {
    view: InlineView<Screenful>,
    screen: Screen,
    keys: Receiver<Event>,
    queue: Arc<InputQueue>,
    /// Whether the process is to end.
    is_ending: fn() -> bool,
    is_over: Arc<AtomicBool>,
    last_frame: Instant,
    /// Whether there is something to draw.
    has_changed: bool,
}

/// Starts the threads on an open terminal. The terminal ends when the sender is dropped.
///
/// # Errors
///
/// If a thread cannot be started, or the terminal is gone.
pub(super) fn start(
    screenful: Screenful,
    screen: Screen,
    (queue, is_ending): (Arc<InputQueue>, fn() -> bool),
) -> io::Result<Arc<SyncSender<Input>>> {
    let (sender, inputs) = sync_channel(MAX_INPUTS);
    let (keys_sender, keys) = sync_channel(MAX_KEYS);
    let sender = Arc::new(sender);
    let is_over = Arc::new(AtomicBool::new(false));
    let height = screenful.size().map(|size| screen.height(size.width, size.height))?;
    let mut worker = Worker {
        view: InlineView::new(screenful, height)?,
        screen,
        keys,
        queue,
        is_ending,
        is_over: is_over.clone(),
        last_frame: Instant::now(),
        has_changed: true,
    };
    worker.draw()?;
    let wake = Arc::downgrade(&sender);
    thread::Builder::new().name("gannet-terminal".into()).spawn(move || worker.run(&inputs))?;
    let reading = move || keys::read(&keys_sender, &wake, &is_over);
    thread::Builder::new().name("gannet-keys".into()).spawn(reading)?;
    Ok(sender)
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        restore::restore();
        self.queue.close();
    }
}

impl Worker {
    /// Works until the agent has dropped the terminal, or the terminal is gone.
    fn run(mut self, inputs: &Receiver<Input>) {
        while let Ok(true) = self.step(inputs) {}
    }

    /// Follows what has come; whether there is more to come.
    fn step(&mut self, inputs: &Receiver<Input>) -> io::Result<bool> {
        thread::sleep(FRAME.saturating_sub(self.last_frame.elapsed()));
        let mut next = match inputs.recv_timeout(TICK) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return self.end(),
        };
        self.follow_keys()?;
        self.take_lines();
        if (self.is_ending)() {
            self.queue.end();
        }
        for _ in 0..BATCH {
            match next.take() {
                Some(input) => self.follow(input),
                None => break,
            }
            next = inputs.try_recv().ok();
        }
        if let Some(input) = next {
            self.follow(input);
        }
        self.check_size()?;
        if std::mem::take(&mut self.has_changed) {
            self.draw()?;
        }
        Ok(true)
    }

    fn follow(&mut self, input: Input) {
        self.has_changed = true;
        match input {
            Input::Shown(shown) => self.screen.show(shown),
            Input::Ask(question, choices) => self.screen.ask(&question, choices),
            Input::Taken(text) => self.screen.taken(&text),
            Input::Keys => {}
        }
    }

    /// Shows what was said on standard error meanwhile.
    fn take_lines(&mut self) {
        for line in held_lines::take() {
            self.has_changed = true;
            self.screen.show(TerminalEvent::Note(line));
        }
    }

    fn follow_keys(&mut self) -> io::Result<()> {
        loop {
            let event = match self.keys.try_recv() {
                Ok(event) => event,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(gone()),
            };
            self.has_changed = true;
            let effect = match event {
                Event::Key(key) => self.screen.key(key),
                Event::Paste(text) => {
                    self.screen.paste(&text);
                    None
                }
                _ => None,
            };
            match effect {
                Some(Effect::Suspend) => self.suspend()?,
                Some(Effect::Redraw) => {
                    let _held = restore::hold().ok_or_else(gone)?;
                    self.view.redraw()?;
                }
                Some(effect) => self.queue.push(effect),
                None => {}
            }
        }
    }

    /// Begins anew where the terminal has another size.
    fn check_size(&mut self) -> io::Result<()> {
        let Some(mut screenful) = self.view.backend().with_current_size()? else { return Ok(()) };
        drop(restore::hold().ok_or_else(gone)?);
        screenful.find_cursor();
        let _held = restore::hold().ok_or_else(gone)?;
        self.screen.stream.set_width(screenful.size()?.width.into());
        self.has_changed = true;
        self.view.resize(screenful)
    }

    /// Draws, unless the terminal was restored.
    fn draw(&mut self) -> io::Result<()> {
        let mut held = restore::hold().ok_or_else(gone)?;
        self.last_frame = Instant::now();
        queue!(stdout(), BeginSynchronizedUpdate)?;
        self.view.show(&mut self.screen)?;
        held.begins_at(self.view.top());
        queue!(stdout(), EndSynchronizedUpdate)?;
        stdout().flush()
    }

    /// Draws what is left, and removes the rest.
    fn end(&mut self) -> io::Result<bool> {
        self.take_lines();
        self.screen.stream.end_text();
        self.draw()?;
        let _held = restore::hold().ok_or_else(gone)?;
        self.view.remove()?;
        Ok(false)
    }

    /// Stops the process, as the terminal does when its keys are not read one by one.
    fn suspend(&mut self) -> io::Result<()> {
        let held = restore::hold().ok_or_else(gone)?;
        self.view.remove()?;
        held.suspend();
        stop_process();
        restore::resume()?;
        let screenful = Screenful::new()?;
        let size = screenful.size()?;
        self.screen.stream.set_width(size.width.into());
        self.view = InlineView::new(screenful, self.screen.height(size.width, size.height))?;
        Ok(())
    }
}

fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::BrokenPipe)
}

#[cfg(unix)]
fn stop_process() {
    let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
    // Another thread may take the signal, and stops this one a moment later.
    thread::sleep(TICK);
}

#[cfg(not(unix))]
fn stop_process() {}
