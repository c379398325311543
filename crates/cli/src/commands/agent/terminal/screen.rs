//! The state of the terminal: keys, pastes and what is shown go in, effects come out.
//!
//! Invariant: a question is answered by nothing but a key of it that was typed and sent alone; what
//! was being written when it came is kept for afterwards. All that is kept is bounded.

use super::completion::{self, Commands, Meaning};
use super::editor::Editor;
use super::history::History;
use super::look::{Look, Theme};
use super::shown::{TerminalEvent, TurnStatus};
use super::stream::TextStream;
use super::typed::{AnswerChoice, Chosen, Typed};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::collections::VecDeque;

/// Most messages that wait.
const MAX_WAITING: usize = 32;
/// What `/help` says of keys.
const KEYS: &str = "Enter sends; while the model works, the message comes before its next answer. \
Alt-Enter: at the end of the turn. Ctrl-J: a new line. Up, Down: messages before. Tab: the rest of \
a command. Ctrl-C: stop the answer or the tool, twice end. Ctrl-D: end. Ctrl-L: draw again. A \
message that begins with // begins with one slash.";

/// What a key does outside of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A message comes before the model's next answer.
    Steer(String),
    /// A message or a command comes when the model has ended its turn.
    Queue(Typed),
    /// The work is to stop; the second time the program ends.
    Interrupt,
    /// The question is answered.
    Answer(Chosen),
    /// The program is stopped like others by Ctrl-Z.
    Suspend,
    /// The screen is drawn anew.
    Redraw,
}

/// A message that was sent and is not yet with the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitingMessage {
    /// Its text.
    pub text: String,
    /// Whether it comes before the next answer.
    pub is_steering: bool,
}

/// A question that is open.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    /// The answers with a key.
    pub choices: Vec<AnswerChoice>,
    /// Where the answer is written.
    pub editor: Editor,
}

/// The state.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) commands: Commands,
    pub(super) theme: Theme,
    /// What is shown.
    pub stream: TextStream,
    pub(super) message: Editor,
    pub(super) status: TurnStatus,
    pub(super) is_working: bool,
    /// Whether Ctrl-C was the last key, in an empty editor.
    is_closing: bool,
    pub(super) waiting: VecDeque<WaitingMessage>,
    pub(super) asked: Option<OpenQuestion>,
    /// What the last key had to say.
    pub(super) hint: Option<String>,
}

impl Screen {
    /// An idle terminal of `width` cells.
    pub fn new(commands: Commands, history: Vec<String>, theme: Theme, width: usize) -> Self {
        Self {
            commands,
            theme,
            stream: TextStream::new(width.max(1)),
            message: Editor::new(History::new(history)),
            status: TurnStatus::default(),
            is_working: false,
            is_closing: false,
            waiting: VecDeque::new(),
            asked: None,
            hint: None,
        }
    }

    /// Shows something.
    pub fn show(&mut self, shown: TerminalEvent) {
        match shown {
            TerminalEvent::Text(text) => self.stream.piece(Look::Plain, &text),
            TerminalEvent::Reasoning(text) => self.stream.piece(Look::Dim, &text),
            TerminalEvent::Call { tool, detail } => self.stream.call(&tool, &detail),
            TerminalEvent::Result { ok, text } => self.stream.result(ok, &text),
            TerminalEvent::Note(text) => self.stream.note(Look::Note, &text),
            TerminalEvent::Status(status) => self.status = status,
            TerminalEvent::Working(is_working) => {
                self.is_working = is_working;
                self.hint = None;
                if !is_working {
                    // One that is over by time.
                    self.asked = None;
                    self.stream.end_text();
                }
            }
        }
    }

    /// Asks a question.
    pub fn ask(&mut self, question: &str, choices: Vec<AnswerChoice>) {
        self.stream.note(Look::Question, question);
        self.asked = Some(OpenQuestion { choices, editor: Editor::new(History::default()) });
        self.hint = None;
    }

    /// Shows a message that is with the model, or a command that is carried out.
    pub fn taken(&mut self, text: &str) {
        if let Some(at) = self.waiting.iter().position(|it| it.text == text) {
            self.waiting.remove(at);
        }
        self.stream.message(text);
    }

    /// Inserts a pasted text, which sends nothing.
    pub fn paste(&mut self, text: &str) {
        self.is_closing = false;
        let is_whole = self.editor().insert(text);
        self.hint = (!is_whole).then(|| "the text is too long and was cut".to_owned());
    }

    /// Follows a key.
    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let was_closing = std::mem::take(&mut self.is_closing);
        self.hint = None;
        let control = key.modifiers == KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Char('c') if control => return self.interrupt(was_closing),
            KeyCode::Char('d') if control && self.editor().is_empty() => return self.end(),
            KeyCode::Char('z') if control => return Some(Effect::Suspend),
            KeyCode::Char('l') if control => return Some(Effect::Redraw),
            KeyCode::Enter if key.modifiers.contains(KeyModifiers::ALT) => return self.send(true),
            KeyCode::Enter if key.modifiers.is_empty() => return self.send(false),
            KeyCode::Enter => self.editor().new_line(),
            KeyCode::Char('m') if control => return self.send(false),
            KeyCode::Tab => self.complete(),
            _ => self.editor().key(key),
        }
        None
    }

    /// The editor that keys go to.
    pub(super) fn editor(&mut self) -> &mut Editor {
        self.asked.as_mut().map_or(&mut self.message, |asked| &mut asked.editor)
    }

    fn interrupt(&mut self, was_closing: bool) -> Option<Effect> {
        let had_question = self.asked.take().is_some();
        if self.is_working {
            self.hint = Some("it stops; Ctrl-C again ends the program".to_owned());
            return Some(Effect::Interrupt);
        }
        if had_question {
            return Some(Effect::Answer(Chosen::Nothing));
        }
        if !self.message.is_empty() {
            self.message.clear();
            return None;
        }
        if was_closing {
            return Some(Effect::Queue(Typed::End));
        }
        self.is_closing = true;
        self.hint = Some("Ctrl-C again ends the program".to_owned());
        None
    }

    /// Ends the input.
    fn end(&mut self) -> Option<Effect> {
        if self.asked.take().is_some() {
            return Some(Effect::Answer(Chosen::Nothing));
        }
        if self.is_working {
            self.hint = Some("the program ends after this turn".to_owned());
        }
        Some(Effect::Queue(Typed::End))
    }

    /// Sends what the editor has.
    fn send(&mut self, is_later: bool) -> Option<Effect> {
        if self.asked.is_some() {
            return self.answer();
        }
        let text = self.message.text();
        if text.trim().is_empty() {
            return None;
        }
        match completion::meaning(self.commands, &text) {
            Meaning::Unknown(name) => {
                self.hint = Some(format!("/{name}: no such command; /help lists them"));
                None
            }
            Meaning::Command { name: "help", .. } => {
                self.message.take();
                let help = completion::help(self.commands);
                self.stream.note(Look::Dim, &format!("{help}{KEYS}"));
                None
            }
            Meaning::Command { name, argument } => {
                self.wait(Typed::Command { name: name.to_owned(), argument }, false)
            }
            Meaning::Message(text) => self.wait(Typed::Message(text), !is_later),
        }
    }

    /// Has a message wait for the model.
    fn wait(&mut self, typed: Typed, may_steer: bool) -> Option<Effect> {
        if self.waiting.len() >= MAX_WAITING {
            self.hint = Some(format!("{MAX_WAITING} messages wait already"));
            return None;
        }
        self.message.take();
        let is_steering = may_steer && self.is_working;
        self.waiting.push_back(WaitingMessage { text: typed.text(), is_steering });
        match typed {
            Typed::Message(text) if is_steering => Some(Effect::Steer(text)),
            typed => Some(Effect::Queue(typed)),
        }
    }

    /// Answers the question with what was written.
    fn answer(&mut self) -> Option<Effect> {
        let asked = self.asked.as_ref()?;
        let text = asked.editor.text().trim().to_owned();
        if text.is_empty() {
            return None;
        }
        let chosen = asked.choices.iter().find(|choice| choice.is_meant_by(&text));
        let chosen = chosen.map_or(Chosen::Text(text.clone()), |choice| Chosen::Key(choice.key));
        self.asked = None;
        self.stream.message(&text);
        Some(Effect::Answer(chosen))
    }

    fn complete(&mut self) {
        if self.asked.is_some() {
            return;
        }
        let text = self.message.text();
        if let Some(completed) = completion::completed(self.commands, &text) {
            self.message.set(&completed);
        } else if !text.starts_with('/') {
            self.message.insert("    ");
        }
    }
}
