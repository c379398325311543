//! The loop of the agent: the model answers, its calls are carried out, and their results are the
//! next messages, until an answer calls nothing.
//!
//! Invariant: what comes next follows from the messages alone, so that a session that was
//! interrupted anywhere continues where it was. A call is written down before it begins and after
//! it has ended, so that none runs twice.

use crate::host_process::{HostError, HostProcess};
use crate::limits::WorkLimits;
use crate::model::AgentModel;
use crate::other_tools::OtherTools;
use crate::policy::Policy;
use crate::resumed::result_message;
use crate::session::AgentSession;
use crate::session_log::LogError;
use crate::tools::TOOLS;
use crate::user::{AgentEvent, AgentUser};
use api::{
    AnswerOptions, ApiError, Done, Finish, Message, SettledAnswer, TextEvent, Tool, ToolCall,
};

/// The result of a call that was started and has none.
const UNKNOWN: &str = "interrupted, it is not known how far it came";

/// How work on a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkEnd {
    /// The last answer calls nothing.
    Done,
    /// The user stopped it.
    Interrupted,
    /// A limit stopped it.
    Limit,
    /// The context is full, and a compaction has not helped.
    Full,
}

/// Why work on a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The model cannot answer.
    #[error(transparent)]
    Model(#[from] ApiError),
    /// The tools are gone.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The session cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// An agent at work.
#[derive(Debug)]
pub struct Agent {
    /// The conversation.
    pub model: Box<dyn AgentModel>,
    /// The tools.
    pub host: HostProcess,
    /// Further tools, which this process carries out.
    pub others: Vec<Box<dyn OtherTools>>,
    /// What is written down.
    pub session: AgentSession,
    /// What the first request and the message of a compaction begin with: where the agent works,
    /// and the project's instructions.
    pub opening: String,
    /// What the message of the next request says before the user's words.
    pub notice: String,
    /// What runs without a question.
    pub policy: Policy,
    /// Whether the tools are confined, so that what they do is inside.
    pub is_confined: bool,
    /// How answers are made.
    pub options: AnswerOptions,
    /// What ends the work early.
    pub limits: WorkLimits,
    /// Whether the conversation may be compacted by itself: not again before there was space.
    pub may_compact: bool,
    /// Whether something was refused.
    pub has_refused: bool,
}

/// The tools of every agent, strict ones.
pub fn agent_tools() -> Vec<Tool> {
    let tool = |tool: &crate::tool::Tool| Tool {
        name: tool.name.to_owned(),
        description: Some(tool.description.to_owned()),
        parameters: (tool.schema)(),
        strict: true,
        source: None,
    };
    TOOLS.iter().map(tool).collect()
}

impl Agent {
    /// Works on a request of the user until an answer calls nothing.
    ///
    /// # Errors
    /// If the model, the tools or the session fail.
    pub fn work(&mut self, text: &str, user: &mut dyn AgentUser) -> Result<WorkEnd, AgentError> {
        self.skip_open_calls("skipped: the user wrote")?;
        let opening = if self.has_request() { "" } else { &*self.opening };
        let notice = std::mem::take(&mut self.notice);
        let message = Message::user(format!("{opening}{notice}{text}"));
        self.session.add_request(text, self.model.messages().len())?;
        self.add(vec![message])?;
        self.go_on(user)
    }

    /// Whether there is a request of the user, or a summary of some.
    pub fn has_request(&self) -> bool {
        self.model.messages().iter().any(|message| message.role != "system".into())
    }

    /// Whether there is something to continue with: a call or an answer.
    pub fn is_unfinished(&self) -> bool {
        let is_open = |message: &Message| message.role != "assistant".into();
        let began = !self.session.requests().is_empty();
        began
            && (self.model.messages().last().is_some_and(is_open) || !self.open_calls().is_empty())
    }

    /// Continues the work on the last request.
    ///
    /// # Errors
    /// If the model, the tools or the session fail.
    pub fn go_on(&mut self, user: &mut dyn AgentUser) -> Result<WorkEnd, AgentError> {
        loop {
            let (end, has_space) = self.carry_out_calls(user)?;
            if let Some(end) = end {
                return Ok(end);
            }
            if !self.is_unfinished() {
                self.offer_rest(user)?;
                return Ok(WorkEnd::Done);
            }
            if user.is_interrupted() {
                return Ok(WorkEnd::Interrupted);
            }
            if self.limits.allow_answer() && (self.is_nearly_full() || !has_space) {
                self.compact_by_itself(user)?;
            }
            if !self.limits.count_answer() {
                return Ok(WorkEnd::Limit);
            }
            let mark = self.model.mark();
            let (answer, is_whole) = match self.answer(self.leaving_space(), user) {
                Err(AgentError::Model(error)) if error.is_full() => return Ok(WorkEnd::Full),
                answer => answer?,
            };
            self.may_compact |= has_space && !self.is_nearly_full();
            let calls_nothing = answer.is_none_or(|it| it.message.calls.is_empty());
            if calls_nothing && user.is_interrupted() {
                return Ok(WorkEnd::Interrupted);
            }
            if calls_nothing && !is_whole {
                let is_full = self.is_nearly_full() && self.limits.tokens != Some(0);
                if is_full && self.make_space(mark, user)? {
                    continue;
                }
                return Ok(if is_full { WorkEnd::Full } else { WorkEnd::Limit });
            }
        }
    }

    /// Adds messages, which are written down.
    pub(crate) fn add(&mut self, messages: Vec<Message>) -> Result<(), AgentError> {
        self.session.add_messages(&messages)?;
        self.model.extend(messages);
        Ok(())
    }

    /// The calls of the last answer that have no result, in order.
    pub(crate) fn open_calls(&self) -> Vec<ToolCall> {
        let messages = self.model.messages();
        let last = messages.iter().rposition(|it| it.role == "assistant".into());
        let Some(last) = last else { return Vec::new() };
        let results: Vec<&str> =
            messages[last + 1..].iter().filter_map(|it| it.call_id.as_deref()).collect();
        let is_open = |call: &&ToolCall| !results.contains(&id(call));
        messages[last].calls.iter().filter(is_open).cloned().collect()
    }

    /// Carries out the calls of the last answer that have no result, and adds what the user writes
    /// meanwhile, which skips the rest of them. Says whether there was space for all results.
    fn carry_out_calls(
        &mut self,
        user: &mut dyn AgentUser,
    ) -> Result<(Option<WorkEnd>, bool), AgentError> {
        let (mut end, mut has_space) = (None, true);
        let mut written = user.written();
        for call in self.open_calls() {
            if end.is_none() && !self.limits.is_in_time() {
                end = Some(WorkEnd::Limit);
            }
            if user.is_interrupted() {
                end = Some(WorkEnd::Interrupted);
            }
            if self.session.is_begun(id(&call)) || end.is_some() {
                self.skip(&call, "interrupted")?;
            } else if !written.is_empty() {
                self.skip(&call, "skipped: the user wrote")?;
            } else {
                has_space &= self.carry_out(&call, user)?;
                written.extend(user.written());
            }
        }
        for text in written {
            self.session.add_written(&text)?;
            self.model.extend(vec![Message::user(text)]);
        }
        self.session.sync()?;
        Ok((end, has_space))
    }

    /// Answers the calls that have no result.
    pub(crate) fn skip_open_calls(&mut self, text: &str) -> Result<(), AgentError> {
        self.open_calls().iter().try_for_each(|call| self.skip(call, text))
    }

    /// Answers a call that does not run, or that was started and has no result.
    pub(crate) fn skip(&mut self, call: &ToolCall, text: &str) -> Result<(), AgentError> {
        let text = self.session.skip_call(id(call), text, UNKNOWN);
        let message = result_message(id(call).to_owned(), call.name.clone(), text.to_owned());
        self.add(vec![message])
    }

    /// Has the model answer; `None` if nothing came before it was stopped. Says whether the answer
    /// is whole. Of one that fails nothing stays, so that it can be asked for again.
    pub(crate) fn answer(
        &mut self,
        options: AnswerOptions,
        user: &mut dyn AgentUser,
    ) -> Result<(Option<SettledAnswer>, bool), AgentError> {
        let mark = self.model.mark();
        let is_whole = self.sample(options, true, user).inspect_err(|_| self.model.rewind(mark))?;
        let answer = self.model.settle();
        if let Some(answer) = &answer {
            self.session.add_answer(answer)?;
            self.session.sync()?;
        }
        Ok((answer, is_whole))
    }

    /// Has the model begin an answer and shows what comes of it, its text only if `shows_text`
    /// says so. Says whether the answer is whole.
    pub(crate) fn sample(
        &mut self,
        options: AnswerOptions,
        shows_text: bool,
        user: &mut dyn AgentUser,
    ) -> Result<bool, ApiError> {
        let limits = self.limits;
        let is_over = |user: &dyn AgentUser| user.is_interrupted() || !limits.is_in_time();
        let begun = self.model.begin(&limits.over(options), &|| is_over(user))?;
        user.show(AgentEvent::Begun(begun));
        while let Some(event) = self.model.next(&|| is_over(user)) {
            match event {
                TextEvent::Failed(error) => return Err(error),
                TextEvent::Done(Done { usage, ref finish, .. }) => {
                    self.limits.count(usage.completion_tokens);
                    user.show(AgentEvent::Answer(&event));
                    return Ok(*finish != Finish::Length);
                }
                TextEvent::Prefill { .. } => user.show(AgentEvent::Answer(&event)),
                _ if shows_text => user.show(AgentEvent::Answer(&event)),
                _ => {}
            }
            if is_over(user) {
                break;
            }
        }
        Ok(false)
    }
}

/// The id of a call.
pub(crate) fn id(call: &ToolCall) -> &str {
    call.id.as_deref().unwrap_or_default()
}
