//! Input lines of a conversation: edited on a terminal, with a saved history, or piped in.

use crate::{folders, terminal};
use anyhow::{Context, Result};
use rustyline::DefaultEditor;
use rustyline::config::Config;
use rustyline::error::ReadlineError;
use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::path::PathBuf;

/// Maximum number of lines in the history.
const HISTORY: usize = 1000;

/// The source of lines.
pub(super) enum ChatLines {
    /// A terminal with line editing.
    Edited { editor: Box<DefaultEditor>, history: Option<PathBuf> },
    /// A pipe or a file.
    Piped,
}

/// An input event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatInput {
    Line(String),
    /// Ctrl-C on the line.
    Cancelled,
    End,
}

impl ChatLines {
    /// Edits lines if standard input and output are terminals.
    pub fn open() -> Result<Self> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Ok(Self::Piped);
        }
        terminal::remember();
        let config = Config::builder().max_history_size(HISTORY)?.auto_add_history(true).build();
        let mut editor =
            DefaultEditor::with_config(config).context("cannot edit lines on this terminal")?;
        let history = folders::state().map(|state| state.join("chat-history"));
        if let Some(history) = &history
            && let Err(error) = editor.load_history(history)
        {
            tracing::debug!("{}: {error}", history.display());
        }
        Ok(Self::Edited { editor: Box::new(editor), history })
    }

    /// Whether lines are edited on a terminal.
    pub fn is_interactive(&self) -> bool {
        matches!(self, Self::Edited { .. })
    }

    /// The next line.
    pub fn next(&mut self) -> Result<ChatInput> {
        let Self::Edited { editor, .. } = self else { return piped() };
        match editor.readline("> ") {
            Ok(line) => Ok(ChatInput::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(ChatInput::Cancelled),
            Err(ReadlineError::Eof) => Ok(ChatInput::End),
            Err(error) => Err(error).context("cannot read from the terminal"),
        }
    }
}

impl Drop for ChatLines {
    fn drop(&mut self) {
        let Self::Edited { editor, history: Some(history) } = self else { return };
        let folder = history.parent().map_or(Ok(()), std::fs::create_dir_all);
        let saved =
            folder.map_err(ReadlineError::from).and_then(|()| editor.append_history(history));
        if let Err(error) = saved {
            tracing::warn!("cannot keep the history in {}: {error}", history.display());
        }
    }
}

fn piped() -> Result<ChatInput> {
    let mut line = String::new();
    let bytes = stdin().lock().read_line(&mut line).context("cannot read standard input")?;
    match bytes {
        0 => Ok(ChatInput::End),
        _ => Ok(ChatInput::Line(line.trim_end_matches(['\n', '\r']).to_owned())),
    }
}
