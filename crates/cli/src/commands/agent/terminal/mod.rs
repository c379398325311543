//! The terminal of `gannet agent`: finished text in what the shell scrolls, and below it an editor
//! and a line of numbers.
//!
//! Invariant: raw mode ends on every path: [`AgentTerminal`] ends it when it is dropped, its thread
//! when the terminal is gone, and [`restore()`] for exits that drop nothing. Nothing but printable
//! text of the model, the tools and the user reaches the terminal, and all that waits is bounded.

mod backend;
mod completion;
mod draw;
mod editor;
mod history;
mod input;
mod input_queue;
mod keys;
mod look;
mod poll;
mod printable;
mod restore;
mod screen;
mod shown;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod typed;
mod view;
mod worker;
mod wrap;

use backend::Screenful;
use completion::Commands;
use input::Input;
use input_queue::InputQueue;
use look::Theme;
use ratatui_core::backend::Backend;
pub use restore::restore;
use screen::Screen;
pub use shown::{TerminalEvent, TurnStatus};
use std::io::{self, IsTerminal, stdin, stdout};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
pub use typed::{AnswerChoice, Chosen, Typed};

/// Most bytes of a piece of text.
const MAX_PIECE: usize = 16 << 10;
/// Most bytes of a text that is shown as a whole.
const MAX_WHOLE: usize = 256 << 10;
/// Longest wait for the last drawing.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The terminal. The thread of the agent shows and waits; threads of its own read and draw.
#[derive(Debug)]
pub struct AgentTerminal {
    /// `None` while it is being dropped, which ends the threads.
    inputs: Option<Arc<SyncSender<Input>>>,
    queue: Arc<InputQueue>,
}

impl AgentTerminal {
    /// Opens the terminal of standard input and output. `commands` are names with what `/help` says
    /// of them; `history` are messages, oldest first. `is_ending` is asked again and again whether
    /// the process is to end, which ends the work and the conversation.
    ///
    /// # Errors
    ///
    /// If one of them is no terminal, or the terminal cannot be changed.
    pub fn open(
        commands: Commands,
        history: Vec<String>,
        is_ending: fn() -> bool,
    ) -> io::Result<Self> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Err(io::Error::other("standard input or output is no terminal"));
        }
        restore::begin()?;
        let queue = Arc::new(InputQueue::default());
        let started = Screenful::new().and_then(|screenful| {
            let width = screenful.size()?.width.into();
            let screen = Screen::new(commands, history, Theme::of_environment(), width);
            worker::start(screenful, screen, (queue.clone(), is_ending))
        });
        match started {
            Ok(inputs) => Ok(Self { inputs: Some(inputs), queue }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Shows something.
    pub fn show(&self, shown: TerminalEvent) {
        match shown {
            TerminalEvent::Text(text) => self.pieces(&text, TerminalEvent::Text),
            TerminalEvent::Reasoning(text) => self.pieces(&text, TerminalEvent::Reasoning),
            TerminalEvent::Note(text) => {
                self.send(Input::Shown(TerminalEvent::Note(cut(text, MAX_WHOLE))))
            }
            TerminalEvent::Call { tool, detail } => {
                let (tool, detail) = (cut(tool, MAX_PIECE), cut(detail, MAX_PIECE));
                self.send(Input::Shown(TerminalEvent::Call { tool, detail }));
            }
            TerminalEvent::Result { ok, text } => {
                self.send(Input::Shown(TerminalEvent::Result { ok, text: cut(text, MAX_WHOLE) }));
            }
            TerminalEvent::Working(is_working) => {
                self.queue.set_working(is_working);
                self.send(Input::Shown(shown));
            }
            TerminalEvent::Status(_) => self.send(Input::Shown(shown)),
        }
    }

    /// Asks, and waits for the answer, or until `end`. No choice is taken by itself, or of what was
    /// typed before.
    pub fn ask(&self, question: &str, choices: &[AnswerChoice], end: Option<Instant>) -> Chosen {
        if !self.queue.open_question() {
            return Chosen::Nothing;
        }
        self.send(Input::Ask(cut(question.to_owned(), MAX_WHOLE), choices.to_vec()));
        self.queue.wait_for_answer(end)
    }

    /// Whether the user has stopped the work, or the terminal is gone.
    pub fn is_interrupted(&self) -> bool {
        self.queue.is_interrupted()
    }

    /// Whether the terminal is gone because its thread has panicked, which was said.
    pub fn has_failed(&self) -> bool {
        self.queue.has_failed()
    }

    /// Begins work that the user may stop.
    pub fn begin_work(&self) {
        self.show(TerminalEvent::Working(true));
    }

    /// The messages that come before the model's next answer.
    pub fn written(&self) -> Vec<String> {
        let written = self.queue.steering();
        for text in &written {
            self.send(Input::Taken(text.clone()));
        }
        written
    }

    /// Waits for the next message or command.
    pub fn next(&self) -> Typed {
        let typed = self.queue.next();
        if typed != Typed::End {
            self.send(Input::Taken(typed.text()));
        }
        typed
    }

    fn pieces(&self, mut text: &str, shown: impl Fn(String) -> TerminalEvent) {
        while !text.is_empty() {
            let (piece, rest) = text.split_at(text.floor_char_boundary(MAX_PIECE));
            self.send(Input::Shown(shown(piece.to_owned())));
            text = rest;
        }
    }

    /// Sends something to the thread that draws; it waits while that has much to draw.
    fn send(&self, input: Input) {
        if let Some(inputs) = &self.inputs {
            // Without a terminal there is nothing to show on.
            let _ = inputs.send(input);
        }
    }
}

impl Drop for AgentTerminal {
    fn drop(&mut self) {
        self.inputs = None;
        self.queue.wait_for_close(MAX_WAIT);
        restore();
    }
}

/// The beginning of a text.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}
