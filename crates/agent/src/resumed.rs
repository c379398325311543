//! The state of a session from its log.

use crate::message_json::message_of;
use crate::request_history::RequestHistory;
use crate::session_log::{LoggedTokens, Record};
use crate::worked_request::WorkedRequest;
use api::{Message, TurnTokens};
use std::path::PathBuf;

/// A session as its log leaves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumedSession {
    /// Name of the model.
    pub model: String,
    /// Digest of the model, its template and the tools.
    pub conversation: String,
    /// The folder that is worked in.
    pub workspace: PathBuf,
    /// The messages.
    pub messages: Vec<Message>,
    /// The tokens of answers among them.
    pub turns: Vec<TurnTokens>,
    /// The requests, and the calls that were started and not finished.
    pub(crate) history: RequestHistory,
    /// The words of the request that begins with the next message.
    begins: Option<String>,
}

impl ResumedSession {
    /// The state after these records; `None` if the first one is no head, or no message follows:
    /// then the session has not begun.
    pub fn of(records: Vec<Record>) -> Option<Self> {
        let mut records = records.into_iter();
        let Some(Record::Head { model, conversation, workspace, .. }) = records.next() else {
            return None;
        };
        let mut state = Self { model, conversation, workspace, ..Self::default() };
        records.for_each(|record| state.take(record));
        (!state.messages.is_empty()).then_some(state)
    }

    /// The requests that can be taken back, the last one at the end.
    pub fn requests(&self) -> &[WorkedRequest] {
        self.history.requests()
    }

    fn take(&mut self, record: Record) {
        match record {
            // The session continues with another model.
            Record::Head { model, conversation, workspace, .. } => {
                (self.model, self.conversation, self.workspace) = (model, conversation, workspace);
                self.turns.clear();
            }
            Record::Request { text } => self.begins = Some(text),
            Record::Message { message, tokens } => self.take_message(message_of(message), tokens),
            Record::CallStarted { id, tool, arguments } => {
                self.history.begin_call(&id, &tool, &arguments);
            }
            Record::CallFinished { id, ok, text, changed } => {
                self.history.end_call(&id, (ok, &text), &changed);
                let name = self.name_of(&id);
                self.messages.push(result_message(id, name, text));
            }
            Record::Question { .. } => {}
            Record::Compaction { messages, facts, is_unfinished } => {
                self.history.compact(facts, is_unfinished, messages.len());
                self.messages = messages.into_iter().map(message_of).collect();
                self.turns.clear();
            }
            Record::Rewind { messages } => {
                self.messages.truncate(messages);
                self.turns.retain(|turn| turn.message < messages);
                self.history.rewind(messages);
            }
        }
    }

    fn take_message(&mut self, message: Message, tokens: Option<LoggedTokens>) {
        let number = self.messages.len();
        let text = message.text().unwrap_or_default();
        if let Some(id) = &message.call_id {
            self.history.end_call(id, (false, &text), &[]);
        }
        match self.begins.take() {
            Some(text) => self.history.begin(text, number),
            None if message.role == "user".into() => self.history.write(text),
            None => {}
        }
        if let Some(LoggedTokens { continues, prompt, sampled }) = tokens {
            self.turns.push(TurnTokens { message: number, continues, prompt, sampled });
        }
        self.messages.push(message);
    }

    /// The name of the tool of a call.
    fn name_of(&self, id: &str) -> String {
        let mut calls = self.messages.iter().rev().flat_map(|message| &message.calls);
        let call = calls.find(|call| call.id.as_deref() == Some(id));
        call.map_or_else(String::new, |call| call.name.clone())
    }
}

/// The message that answers a call of the tool `name`.
pub(crate) fn result_message(id: String, name: String, text: String) -> Message {
    Message { call_id: Some(id), name: Some(name), ..Message::new("tool", text) }
}
