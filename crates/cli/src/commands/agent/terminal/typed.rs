//! What the user types: messages, commands and answers.

/// What the user has typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// A message.
    Message(String),
    /// A command of the list.
    Command {
        /// Its name, without the slash.
        name: String,
        /// What follows the name.
        argument: String,
    },
    /// The end: Ctrl-D, Ctrl-C twice, or the terminal is gone.
    End,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerChoice {
    /// The key for it.
    pub key: char,
    /// What it is; its first word may be typed instead of the key.
    pub name: String,
}

/// What the user has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The choice with this key.
    Key(char),
    /// A text that is no choice.
    Text(String),
    /// Nothing: Ctrl-C, Ctrl-D, or the terminal is gone.
    Nothing,
}

impl AnswerChoice {
    /// Whether an answer is the key or the first word of the name.
    pub(super) fn is_meant_by(&self, text: &str) -> bool {
        let mut key = [0; 4];
        let word = self.name.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default();
        let is = |other: &str| !other.is_empty() && other.to_lowercase() == text.to_lowercase();
        is(self.key.encode_utf8(&mut key)) || is(word)
    }
}

impl Typed {
    /// What was typed.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Message(text) => text.clone(),
            Self::Command { name, argument } => format!("/{name} {argument}").trim_end().to_owned(),
            Self::End => String::new(),
        }
    }
}
