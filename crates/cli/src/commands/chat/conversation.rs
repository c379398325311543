//! The messages of a conversation, and their file.
//!
//! Invariant: after the optional system message, user and assistant messages alternate.

use crate::answer::StreamedAnswer;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;

/// Maximum size of a loaded file in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conversation {
    pub system: Option<String>,
    turns: Vec<Value>,
}

impl Conversation {
    /// An empty one.
    pub fn new(system: Option<String>) -> Self {
        Self { system, turns: Vec::new() }
    }

    /// All messages in the form that templates read.
    pub fn messages(&self) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        system.chain(self.turns.iter().cloned()).collect()
    }

    /// Adds a user message.
    pub fn ask(&mut self, content: &str) {
        self.turns.push(json!({"role": "user", "content": content}));
    }

    /// Adds the answer to the last user message. An answer that was stopped before its first word
    /// removes that message instead.
    pub fn answer(&mut self, answer: &StreamedAnswer) {
        if answer.done.is_none() && answer.text.is_empty() {
            return self.take_back();
        }
        let mut message = json!({"role": "assistant", "content": answer.text});
        if !answer.reasoning.is_empty() {
            message["reasoning_content"] = json!(answer.reasoning);
        }
        self.turns.push(message);
    }

    /// Removes the last user message.
    pub fn take_back(&mut self) {
        self.turns.pop();
    }

    /// Writes the messages to a file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = format!("{:#}\n", json!({"messages": self.messages()}));
        Ok(std::fs::write(path, text)?)
    }

    /// Reads what [`Conversation::save`] wrote.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = path.metadata()?.len();
        if bytes > MAX_BYTES {
            bail!("expected at most {MAX_BYTES} bytes, found {bytes}");
        }
        Self::parse(&std::fs::read_to_string(path)?)
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("expected JSON")?;
        let messages = value["messages"].as_array().context("expected an array of messages")?;
        let mut conversation = Self::default();
        for (index, message) in messages.iter().enumerate() {
            let content = message["content"].as_str();
            let content = content.with_context(|| format!("message {index} has no content"))?;
            match message["role"].as_str() {
                Some("system") if index == 0 => conversation.system = Some(content.to_owned()),
                Some("user" | "assistant") => conversation.turns.push(message.clone()),
                _ => bail!("message {index}: expected role user or assistant (system only first)"),
            }
        }
        conversation.check_turns()?;
        Ok(conversation)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> StreamedAnswer {
        StreamedAnswer { text: text.into(), reasoning: String::new(), done: None }
    }

    #[test]
    fn what_was_saved_is_loaded_again() {
        let mut conversation = Conversation::new(Some("Be brief.".into()));
        conversation.ask("Hello");
        conversation.answer(&answered("Hi"));
        let file = tempfile::NamedTempFile::new().unwrap();
        conversation.save(file.path()).unwrap();
        assert_eq!(Conversation::load(file.path()).unwrap(), conversation);
    }

    #[test]
    fn an_answer_stopped_before_its_first_word_takes_the_question_with_it() {
        let mut conversation = Conversation::default();
        conversation.ask("Hello");
        conversation.answer(&answered(""));
        assert!(conversation.messages().is_empty());
        conversation.ask("Hello");
        conversation.answer(&answered("H"));
        assert_eq!(conversation.messages().len(), 2);
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
