//! The messages of a conversation, and their file.
//!
//! Invariant: after the optional system message, user and assistant messages alternate.

use crate::input;
use crate::new_file::NewFile;
use crate::streamed_answer::StreamedAnswer;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;

/// Maximum size of a loaded file in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conversation {
    pub system: Option<String>,
    turns: Vec<Value>,
    /// The seed of each answer, where it is known.
    seeds: Vec<Option<u64>>,
}

impl Conversation {
    /// An empty one.
    pub fn new(system: Option<String>) -> Self {
        Self { system, ..Self::default() }
    }

    /// A conversation of these messages, with the seed of each answer.
    ///
    /// # Errors
    ///
    /// If they are not the messages of one.
    pub fn of(system: Option<String>, turns: Vec<Value>, seeds: Vec<Option<u64>>) -> Result<Self> {
        for (index, message) in turns.iter().enumerate() {
            content(index, message)?;
        }
        let conversation = Self { system, turns, seeds };
        conversation.check_turns()?;
        let (expected, found) = (conversation.turns.len() / 2, conversation.seeds.len());
        if expected != found {
            bail!("expected {expected} seeds, found {found}");
        }
        Ok(conversation)
    }

    /// The messages of the user and of the model.
    pub fn turns(&self) -> &[Value] {
        &self.turns
    }

    /// The seed of each answer, where it is known.
    pub fn seeds(&self) -> &[Option<u64>] {
        &self.seeds
    }

    /// All messages in the form that templates read.
    pub fn messages(&self) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        system.chain(self.turns.iter().cloned()).collect()
    }

    /// The messages as text, with the role of each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for message in self.messages() {
            let part = |name: &str| message[name].as_str().unwrap_or_default();
            let reasoning = part("reasoning_content");
            if !reasoning.is_empty() {
                text += &format!("[reasoning]\n{reasoning}\n\n");
            }
            text += &format!("[{}]\n{}\n\n", part("role"), part("content"));
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    /// Adds a user message.
    pub fn ask(&mut self, content: &str) {
        self.turns.push(json!({"role": "user", "content": content}));
    }

    /// Adds the answer to the last user message, drawn with a seed. An answer that was stopped
    /// before its first word removes that message instead.
    pub fn answer(&mut self, answer: &StreamedAnswer, seed: Option<u64>) {
        if answer.done.is_none() && answer.text.is_empty() {
            return self.take_back();
        }
        let mut message = json!({"role": "assistant", "content": answer.text});
        if !answer.reasoning.is_empty() {
            message["reasoning_content"] = json!(answer.reasoning);
        }
        self.turns.push(message);
        self.seeds.push(seed);
    }

    /// Removes the last user message.
    pub fn take_back(&mut self) {
        self.turns.pop();
    }

    /// Removes the last `count` questions with their answers.
    ///
    /// # Errors
    ///
    /// If there are fewer.
    pub fn rewind(&mut self, count: usize) -> Result<()> {
        let all = self.seeds.len();
        let Some(left) = all.checked_sub(count) else {
            match all {
                0 => bail!("there is no question to remove"),
                _ => bail!("expected to remove at most {all}, found {count}"),
            }
        };
        self.seeds.truncate(left);
        self.turns.truncate(2 * left);
        Ok(())
    }

    /// Writes the messages to a file; over an existing one only if `force` says so.
    ///
    /// # Errors
    ///
    /// If there is one, or it cannot be written.
    pub fn save(&self, path: &Path, force: bool) -> Result<()> {
        let text = format!("{:#}\n", json!({"messages": self.messages()}));
        NewFile::write(path, force, text.as_bytes())
    }

    /// Reads what [`Conversation::save`] wrote.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(&input::read_limited(path, MAX_BYTES)?)
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("expected JSON")?;
        let messages = value["messages"].as_array().context("expected an array of messages")?;
        let (mut system, mut turns) = (None, Vec::new());
        for (index, message) in messages.iter().enumerate() {
            let content = content(index, message)?;
            match message["role"].as_str() {
                Some("system") if index == 0 => system = Some(content.to_owned()),
                Some("user" | "assistant") => turns.push(message.clone()),
                _ => bail!("message {index}: expected role user or assistant (system only first)"),
            }
        }
        let seeds = vec![None; turns.len() / 2];
        Self::of(system, turns, seeds)
    }

    fn check_turns(&self) -> Result<()> {
        let wrong =
            |(index, turn): &(usize, &Value)| turn["role"] != ["user", "assistant"][index % 2];
        if let Some((index, _)) = self.turns.iter().enumerate().find(wrong) {
            bail!("turn {}: expected user and assistant messages by turns", index + 1);
        }
        if self.turns.len() % 2 == 1 {
            bail!("expected an answer to the last user message, found none");
        }
        Ok(())
    }
}

/// The content of a message.
fn content(index: usize, message: &Value) -> Result<&str> {
    message["content"].as_str().with_context(|| format!("message {index} has no content"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> StreamedAnswer {
        StreamedAnswer {
            text: text.into(),
            reasoning: String::new(),
            tokens: Vec::new(),
            done: None,
        }
    }

    #[test]
    fn what_was_saved_is_loaded_again() {
        let mut conversation = Conversation::new(Some("Be brief.".into()));
        conversation.ask("Hello");
        conversation.answer(&answered("Hi"), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        conversation.save(&path, false).unwrap();
        assert_eq!(Conversation::load(&path).unwrap(), conversation);
        assert!(Conversation::default().save(&path, false).is_err());
        Conversation::default().save(&path, true).unwrap();
        assert!(Conversation::load(&path).unwrap().messages().is_empty());
    }

    #[test]
    fn an_answer_stopped_before_its_first_word_takes_the_question_with_it() {
        let mut conversation = Conversation::default();
        conversation.ask("Hello");
        conversation.answer(&answered(""), Some(1));
        assert!(conversation.messages().is_empty());
        conversation.ask("Hello");
        conversation.answer(&answered("H"), Some(2));
        assert_eq!(conversation.messages().len(), 2);
        assert_eq!(conversation.seeds(), [Some(2)]);
    }

    #[test]
    fn rewinding_removes_questions_with_their_answers() {
        let mut conversation = Conversation::new(Some("Be brief.".into()));
        for (seed, question) in ["one", "two", "three"].into_iter().enumerate() {
            conversation.ask(question);
            conversation.answer(&answered("yes"), Some(seed as u64));
        }
        assert!(conversation.rewind(4).unwrap_err().to_string().contains("at most 3"));
        conversation.rewind(2).unwrap();
        assert_eq!((conversation.turns().len(), conversation.seeds()), (2, &[Some(0)][..]));
        assert_eq!(conversation.turns()[0]["content"], "one");
    }

    fn check_refused(text: &str, expected: &str) {
        let error = format!("{:#}", Conversation::parse(text).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn files_that_are_not_conversations_are_refused() {
        check_refused("[", "JSON");
        check_refused("{}", "array of messages");
        check_refused(r#"{"messages":[{"role":"user"}]}"#, "message 0");
        check_refused(r#"{"messages":[{"role":"user","content":"a"}]}"#, "last user message");
        check_refused(r#"{"messages":[{"role":"assistant","content":"a"}]}"#, "turn 1");
        check_refused(r#"{"messages":[{"role":"dog","content":"a"}]}"#, "role");
    }
}
