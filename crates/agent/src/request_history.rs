//! The requests of a session with what came of them, and what is known of earlier ones, which a
//! summary has replaced.
//!
//! Invariant: a session at work and the reader of its log take the same steps, so that both have
//! the same history.

use crate::file_change::FileChange;
use crate::known_facts::KnownFacts;
use crate::worked_request::WorkedRequest;
use serde_json::Value;
use std::collections::HashMap;

/// The requests of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestHistory {
    /// The requests that are neither taken back nor part of a summary, and the one that continues
    /// after a summary.
    requests: Vec<WorkedRequest>,
    /// What is known of the requests before the last summary.
    earlier: KnownFacts,
    /// The calls that were started and have no result, by their ids, with tool and arguments.
    begun: HashMap<String, (String, Value)>,
}

impl RequestHistory {
    /// The requests that can be taken back, the last one at the end.
    pub fn requests(&self) -> &[WorkedRequest] {
        &self.requests
    }

    /// Begins a request in these words, whose message has this number.
    pub fn begin(&mut self, text: String, message: usize) {
        self.requests.push(WorkedRequest { text, message, ..WorkedRequest::default() });
    }

    /// Takes what the user wrote while the model worked.
    pub fn write(&mut self, text: String) {
        if let Some(request) = self.requests.last_mut() {
            request.written.push(text);
        }
    }

    /// Begins a call of a tool.
    pub fn begin_call(&mut self, id: &str, tool: &str, arguments: &Value) {
        self.begun.insert(id.to_owned(), (tool.to_owned(), arguments.clone()));
        if let (Some(request), "bash", Some(command)) =
            (self.requests.last_mut(), tool, arguments["command"].as_str())
        {
            request.commands.push(command.to_owned());
        }
    }

    /// Whether a call was started and has no result.
    pub fn is_begun(&self, id: &str) -> bool {
        self.begun.contains_key(id)
    }

    /// Ends a call with its result and what it changed. Says whether it had begun.
    pub fn end_call(&mut self, id: &str, (ok, text): (bool, &str), changed: &[FileChange]) -> bool {
        let begun = self.begun.remove(id);
        if let Some(request) = self.requests.last_mut() {
            request.changes.extend_from_slice(changed);
            if !ok {
                request.failed_calls.push(id.to_owned());
            }
            if let Some((tool, arguments)) = &begun {
                request.facts.take((tool, arguments), ok, text);
            }
        }
        begun.is_some()
    }

    /// Takes back all messages from the one with this number on.
    pub fn rewind(&mut self, messages: usize) {
        self.requests.retain(|request| request.message < messages);
        self.begun.clear();
    }

    /// What is known of all requests, with the words of the last one.
    pub fn facts(&self) -> KnownFacts {
        let mut facts = self.earlier.clone();
        for request in &self.requests {
            facts.merge(&request.facts);
        }
        if let Some(last) = self.requests.last() {
            facts.request = Some(last.words());
        }
        facts
    }

    /// Replaces all requests by a summary of so many messages, with what is known of them. The
    /// last request continues if it is unfinished.
    pub fn compact(&mut self, facts: KnownFacts, is_unfinished: bool, messages: usize) {
        self.requests.clear();
        self.begun.clear();
        if is_unfinished {
            self.begin(facts.request.clone().unwrap_or_default(), messages);
            self.requests[0].is_summed_up = true;
        }
        self.earlier = facts;
    }
}
