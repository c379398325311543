//! What an agent writes down of its session, if it does, and what it remembers of each request, so
//! that the last one can be taken back.

use crate::file_change::{FileChange, FileContent};
use crate::kept_files::KeptFiles;
use crate::known_facts::KnownFacts;
use crate::message_json::message_json;
use crate::request_history::RequestHistory;
use crate::resumed::ResumedSession;
use crate::session_log::{LogError, LoggedTokens, Record, SessionLog};
use crate::user::{Question, Reply};
use crate::worked_request::WorkedRequest;
use api::{Message, SettledAnswer};
use std::io;
use std::path::PathBuf;

/// The session of an agent.
#[derive(Debug)]
pub struct AgentSession {
    log: Option<SessionLog>,
    /// Contents before changes, where they stay.
    kept: KeptFiles,
    history: RequestHistory,
}

impl AgentSession {
    /// A session that is written to `log`, if there is one, with contents before changes in the
    /// folder `kept`.
    pub fn new(log: Option<SessionLog>, kept: PathBuf) -> Self {
        Self { log, kept: KeptFiles::new(kept), history: RequestHistory::default() }
    }

    /// The same session, which continues from what was written of it.
    #[must_use]
    pub fn resumed(mut self, resumed: &ResumedSession) -> Self {
        self.history.clone_from(&resumed.history);
        self
    }

    /// Continues in another log, a copy of the one before, with contents before changes in the
    /// folder `kept`.
    pub fn continue_in(&mut self, log: SessionLog, kept: PathBuf) {
        (self.log, self.kept) = (Some(log), KeptFiles::new(kept));
    }

    /// The requests that can be taken back, the last one at the end: those since the last summary,
    /// and what came after it of the one that it interrupted.
    pub fn requests(&self) -> &[WorkedRequest] {
        self.history.requests()
    }

    /// What is known of all requests.
    pub(crate) fn facts(&self) -> KnownFacts {
        self.history.facts()
    }

    /// Whether a call was started and has no result.
    pub(crate) fn is_begun(&self, id: &str) -> bool {
        self.history.is_begun(id)
    }

    /// Answers a call that does not run with `text`, or that was started and has no result with
    /// `interrupted`. Gives the text that it is.
    pub(crate) fn skip_call<'a>(
        &mut self,
        id: &str,
        text: &'a str,
        interrupted: &'a str,
    ) -> &'a str {
        let was_begun = self.history.end_call(id, (false, interrupted), &[]);
        if was_begun { interrupted } else { text }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, record: &Record) -> Result<(), LogError> {
        self.log.as_mut().map_or(Ok(()), |log| log.add(record))
    }

    /// Adds messages without tokens.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add_messages(&mut self, messages: &[Message]) -> Result<(), LogError> {
        messages.iter().try_for_each(|message| {
            self.add(&Record::Message { message: message_json(message), tokens: None })
        })
    }

    /// Begins a request of the user in these words, whose message has this number.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add_request(&mut self, text: &str, message: usize) -> Result<(), LogError> {
        self.history.begin(text.to_owned(), message);
        self.add(&Record::Request { text: text.to_owned() })
    }

    /// Adds what the user wrote while the model worked, as a part of the last request.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add_written(&mut self, text: &str) -> Result<(), LogError> {
        self.history.write(text.to_owned());
        self.add_messages(&[Message::user(text)])
    }

    /// Adds what was answered to a question about the call `id`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add_reply(
        &mut self,
        id: &str,
        question: &Question<'_>,
        reply: &Reply,
    ) -> Result<(), LogError> {
        let (id, subject, answer) = (id.to_owned(), question.subject(), reply.to_string());
        self.add(&Record::Question { id, subject, answer })
    }

    /// Adds an answer with its tokens.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add_answer(&mut self, answer: &SettledAnswer) -> Result<(), LogError> {
        let tokens = answer.tokens.clone().map(|tokens| {
            let api::TurnTokens { continues, prompt, sampled, .. } = tokens;
            LoggedTokens { continues, prompt, sampled }
        });
        self.add(&Record::Message { message: message_json(&answer.message), tokens })
    }

    /// Adds that a tool is about to be called.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn begin_call(&mut self, record: &Record) -> Result<(), LogError> {
        if let Record::CallStarted { id, tool, arguments } = record {
            self.history.begin_call(id, tool, arguments);
        }
        self.add(record)
    }

    /// Adds what came of a call, once the contents of the files that it changed are kept, which the
    /// tools have in `of_tools`.
    ///
    /// # Errors
    /// If it cannot be written. Contents that cannot be kept are not known.
    pub(crate) fn end_call(
        &mut self,
        (id, text, ok): (&str, &str, bool),
        mut changed: Vec<FileChange>,
        of_tools: &KeptFiles,
    ) -> Result<(), LogError> {
        for change in &mut changed {
            if let FileContent::Digest(digest) = &change.before
                && of_tools.copy(digest, &self.kept).is_err()
            {
                change.before = FileContent::Unknown;
            }
        }
        self.history.end_call(id, (ok, text), &changed);
        let (id, text) = (id.to_owned(), text.to_owned());
        self.add(&Record::CallFinished { id, ok, text, changed })
    }

    /// Gives the tools, in `of_tools`, the content that a change is to be taken back to.
    ///
    /// # Errors
    /// If it was not kept.
    pub(crate) fn give_back(&self, change: &FileChange, of_tools: &KeptFiles) -> io::Result<()> {
        match &change.before {
            FileContent::Digest(digest) => self.kept.copy(digest, of_tools),
            FileContent::Absent | FileContent::Unknown => Ok(()),
        }
    }

    /// Takes back the messages from the last request on.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn rewind(&mut self) -> Result<(), LogError> {
        let Some(&WorkedRequest { message, .. }) = self.requests().last() else { return Ok(()) };
        self.take_back(message)
    }

    /// Takes back all messages but so many.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn take_back(&mut self, messages: usize) -> Result<(), LogError> {
        self.history.rewind(messages);
        self.add(&Record::Rewind { messages })?;
        self.sync()
    }

    /// Replaces all messages, with what is known of the requests before, of which the last one may
    /// be unfinished. Only what comes after can be taken back.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn compact(
        &mut self,
        messages: &[Message],
        facts: KnownFacts,
        is_unfinished: bool,
    ) -> Result<(), LogError> {
        self.history.compact(facts.clone(), is_unfinished, messages.len());
        let messages = messages.iter().map(message_json).collect();
        self.add(&Record::Compaction { messages, facts, is_unfinished })?;
        self.sync()
    }

    /// Waits until all is on the disk.
    ///
    /// # Errors
    /// If the system cannot say so.
    pub fn sync(&self) -> Result<(), LogError> {
        self.log.as_ref().map_or(Ok(()), SessionLog::sync)
    }
}
