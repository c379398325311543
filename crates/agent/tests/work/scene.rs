//! A folder, a scripted model and a user for tests.

use crate::tool_process::tool_process;
use agent::{
    Agent, AgentEvent, AgentModel, AgentSession, AgentUser, AnswerStart, Confirm, Policy, Question,
    Record, Reply, ResumedSession, Sandbox, SessionLog, ToolFolders, WorkLimits,
};
use api::{
    AnswerOptions, ApiError, Done, Finish, Message, SettledAnswer, TextEvent, ToolCall,
    TranscriptMark, Usage,
};
use engine::Timings;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// Answers by their number in the conversation, so that what comes next follows from the messages
/// alone.
#[derive(Debug)]
pub struct ScriptedModel {
    pub messages: Vec<Message>,
    script: Vec<Message>,
    context: usize,
    summary: Option<String>,
    /// What was asked for.
    asked: Rc<RefCell<Vec<AskedAnswer>>>,
    steps: usize,
    /// Answers that are no longer among the messages.
    forgotten: usize,
}

/// An answer that was asked for.
#[derive(Clone, Debug)]
pub struct AskedAnswer {
    /// Tokens of the conversation before it.
    pub used: usize,
    pub options: AnswerOptions,
}

impl AskedAnswer {
    /// Whether it is a summary.
    pub fn is_summary(&self) -> bool {
        self.options.grammar.is_some()
    }
}

impl ScriptedModel {
    fn is_summing_up(&self) -> bool {
        let last = self.messages.last().and_then(Message::text).unwrap_or_default();
        last.starts_with("The conversation is about to be replaced")
    }

    /// The next answer, without its calls if it is longer than was asked for, and whether it is
    /// whole.
    fn scripted(&self) -> Option<(Message, bool)> {
        let answer = self.script.get(self.answers() + self.forgotten).cloned()?;
        let most = self.asked.borrow().last().and_then(|it| it.options.sampling.max_tokens);
        let mut text = answer.text().unwrap_or_default();
        match most.map(|tokens| 3 * tokens).filter(|bytes| *bytes < text.len()) {
            Some(bytes) => {
                text.truncate(bytes);
                Some((Message::assistant(text), false))
            }
            None => Some((answer, true)),
        }
    }

    fn answers(&self) -> usize {
        self.messages.iter().filter(|it| it.role == "assistant".into()).count()
    }
}

impl AgentModel for ScriptedModel {
    fn messages(&self) -> &[Message] {
        &self.messages
    }

    fn extend(&mut self, messages: Vec<Message>) {
        self.messages.extend(messages);
    }

    fn begin(
        &mut self,
        options: &AnswerOptions,
        _: &dyn Fn() -> bool,
    ) -> Result<AnswerStart, ApiError> {
        self.steps = 0;
        let (used, options) = (self.used(), options.clone());
        self.asked.borrow_mut().push(AskedAnswer { used, options });
        Ok(AnswerStart { prompt_tokens: 10, rendered_anew: None })
    }

    fn next(&mut self, _: &dyn Fn() -> bool) -> Option<TextEvent> {
        self.steps += 1;
        let usage = Usage { completion_tokens: 5, ..Usage::default() };
        let is_cut = !self.is_summing_up() && self.scripted().is_some_and(|it| !it.1);
        let finish = if is_cut { Finish::Length } else { Finish::Complete };
        let timings = Timings::default();
        let event = match self.steps {
            1 => TextEvent::Prefill { cached: 0, done: 1, total: 1 },
            2 => TextEvent::Done(Done { finish, usage, timings, receipt: None }),
            _ => return None,
        };
        Some(event)
    }

    fn settle(&mut self) -> Option<SettledAnswer> {
        let message = match self.is_summing_up() {
            true => Message::assistant(self.summary.clone()?),
            false => self.scripted()?.0,
        };
        self.messages.push(message.clone());
        Some(SettledAnswer { message, tokens: None, dropped: 0 })
    }

    fn mark(&self) -> TranscriptMark {
        TranscriptMark(self.messages.len())
    }

    fn rewind(&mut self, mark: TranscriptMark) {
        self.messages.truncate(mark.0);
    }

    fn restart(&mut self, messages: Vec<Message>) -> Result<(), ApiError> {
        let before = self.answers();
        let kept = messages.iter().filter(|it| it.role == "assistant".into()).count();
        self.forgotten += before - kept;
        self.messages = messages;
        Ok(())
    }

    fn used(&self) -> usize {
        self.messages.iter().map(|it| it.text().unwrap_or_default().len()).sum::<usize>() / 3
    }

    fn context(&self) -> usize {
        self.context
    }
}

/// An answer that makes calls.
pub fn calls(calls: &[(&str, &str, Value)]) -> Message {
    let call = |(id, name, arguments): &(&str, &str, Value)| ToolCall {
        id: Some((*id).to_owned()),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
        ..ToolCall::default()
    };
    Message { calls: calls.iter().map(call).collect(), ..Message::assistant("") }
}

/// A call of `write`.
pub fn write(path: &str, content: &str) -> Value {
    json!({"path": path, "content": content})
}

/// A call of `bash`.
pub fn bash(command: &str) -> Value {
    json!({"command": command, "wait_s": 60})
}

/// A user who follows a plan.
#[derive(Debug, Default)]
pub struct Person {
    /// What happened, in order.
    pub events: Vec<String>,
    /// What is answered to questions, in order; then no.
    pub replies: Vec<Reply>,
    /// What is written before the call with this number.
    pub writes: Option<(usize, &'static str)>,
    /// The number of looks after which the work is to stop.
    pub stops_after: Option<usize>,
    /// The number of events after which the process ends.
    pub dies_after: Option<usize>,
    /// The event after which the process ends.
    pub dies_at: Option<&'static str>,
    pub looks: Cell<usize>,
    pub calls: usize,
}

impl AgentUser for Person {
    fn show(&mut self, event: AgentEvent<'_>) {
        self.events.push(match event {
            AgentEvent::Call(call) => {
                self.calls += 1;
                format!("call {}", call.name)
            }
            AgentEvent::Result(call, answer) => format!("result {} {}", call.name, answer.ok),
            AgentEvent::Refused(_, why) => format!("refused: {why}"),
            AgentEvent::Compacted(_) => "compacted".to_owned(),
            AgentEvent::NotCompacted => "not compacted".to_owned(),
            AgentEvent::Begun(_) => "answer".to_owned(),
            AgentEvent::Answer(_) => "event".to_owned(),
        });
        let is_at =
            self.dies_at.is_some() && self.events.last().map(String::as_str) == self.dies_at;
        if is_at || self.dies_after == Some(self.events.len()) {
            std::panic::resume_unwind(Box::new("the process ends"));
        }
    }

    fn ask(&mut self, question: &Question<'_>, _: Option<Instant>) -> Reply {
        self.events.push(match question {
            Question::Call(call, rule, difference) => {
                let rule = rule.as_ref().map(ToString::to_string);
                let shown = rule.or(difference.clone()).unwrap_or_default();
                format!("asked {} {shown}", call.name)
            }
            Question::Guarded(report) => format!("asked {}", report.path),
        });
        if self.replies.is_empty() { Reply::No(None) } else { self.replies.remove(0) }
    }

    fn is_interrupted(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.stops_after.is_some_and(|looks| self.looks.get() > looks)
    }

    fn written(&mut self) -> Vec<String> {
        match self.writes {
            Some((at, text)) if self.calls >= at => {
                self.writes = None;
                vec![text.to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

/// A folder to work in, with one for temporary files and one for sessions.
pub struct Scene {
    pub folder: tempfile::TempDir,
    pub confirm: Confirm,
    pub sandbox: Sandbox,
    pub script: Vec<Message>,
    pub context: usize,
    /// What the model answers when it sums the conversation up.
    pub summary: Option<String>,
    /// What was asked for.
    pub asked: Rc<RefCell<Vec<AskedAnswer>>>,
}

impl Scene {
    pub fn new(script: Vec<Message>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "state"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            folder,
            confirm: Confirm::Refuse,
            sandbox: Sandbox::Workspace,
            script,
            context: 100_000,
            summary: None,
            asked: Rc::default(),
        }
    }

    /// Summaries that were asked for.
    pub fn summaries(&self) -> usize {
        self.asked.borrow().iter().filter(|asked| asked.is_summary()).count()
    }

    /// The folder that is worked in.
    pub fn work(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("work")
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.work().join(file)).unwrap_or_else(|_| "absent".to_owned())
    }

    /// The log of the session.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("state/log.jsonl")
    }

    /// The contents of files before changes.
    pub fn kept(&self) -> PathBuf {
        self.folder.path().join("state/files")
    }

    /// The records of the session.
    pub fn records(&self) -> Vec<Record> {
        SessionLog::open(&self.log()).unwrap().1
    }

    /// An agent that continues with the session, as a new process does.
    pub fn agent(&self) -> Agent {
        let (session, resumed, folders) = self.open();
        let messages = resumed.map_or_else(first_messages, |it| it.messages);
        let is_answer = |it: &&Record| matches!(it, Record::Message { message, .. } if message["role"] == "assistant");
        let records = self.records();
        let is_compacted = records.iter().any(|it| matches!(it, Record::Compaction { .. }));
        let made = records.iter().filter(is_answer).count();
        let left = messages.iter().filter(|it| it.role == "assistant".into()).count();
        let model = ScriptedModel {
            messages,
            script: self.script.clone(),
            steps: 0,
            forgotten: if is_compacted { made - left } else { 0 },
            context: self.context,
            summary: self.summary.clone(),
            asked: Rc::clone(&self.asked),
        };
        self.agent_of(Box::new(model), session, folders)
    }

    /// New folders for the tools.
    pub fn folders(&self) -> ToolFolders {
        let temporary = self.folder.path().join("temporary");
        let _ = std::fs::remove_dir_all(&temporary);
        std::fs::create_dir(&temporary).unwrap();
        ToolFolders::new(&temporary).unwrap()
    }

    /// The session, what was written of it, and new folders for the tools.
    pub fn open(&self) -> (AgentSession, Option<ResumedSession>, ToolFolders) {
        let folders = self.folders();
        let (mut log, records) = SessionLog::open(&self.log()).unwrap();
        let resumed = ResumedSession::of(records);
        if resumed.is_none() {
            log.add(&Record::head("scripted", "0".into(), self.work())).unwrap();
        }
        let mut session = AgentSession::new(Some(log), self.kept());
        match &resumed {
            Some(resumed) => session = session.resumed(resumed),
            None => session.add_messages(&first_messages()).unwrap(),
        }
        (session, resumed, folders)
    }

    /// An agent with this model.
    pub fn agent_of(
        &self,
        model: Box<dyn AgentModel>,
        session: AgentSession,
        folders: ToolFolders,
    ) -> Agent {
        Agent {
            model,
            host: tool_process(&self.work(), &folders, self.sandbox),
            others: Vec::new(),
            session,
            policy: Policy { confirm: self.confirm, ..Policy::default() },
            is_confined: self.sandbox != Sandbox::Off,
            options: AnswerOptions::default(),
            limits: WorkLimits::default(),
            opening: String::new(),
            notice: String::new(),
            may_compact: true,
            has_refused: false,
        }
    }
}

/// What a conversation begins with.
pub fn first_messages() -> Vec<Message> {
    vec![Message::system("You work.")]
}

/// The texts of messages, with roles.
pub fn texts(messages: &[Message]) -> Vec<String> {
    let text = |it: &Message| format!("{}: {}", it.role.name(), it.text().unwrap_or_default());
    messages.iter().map(text).collect()
}
