//! A session of the client: its agent, which works on the thread of the session.

use super::call_shown::OpenCalls;
use super::editor_user::EditorUser;
use super::modes;
use super::params::SessionParams;
use super::replay::replay;
use super::session_handle::{SessionHandle, SessionWork, WorkState};
use super::shared::AcpShared;
use super::wire::AcpError;
use crate::commands::agent::maker::MadeAgent;
use crate::commands::agent::tools::ToolArgs;
use crate::sessions::SessionName;
use agent::{AgentError, CONFIRMS, WorkEnd};
use api::Finish;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// An open session.
struct AcpSession<'a> {
    shared: &'a AcpShared<'a>,
    id: String,
    made: MadeAgent,
    workspace: PathBuf,
    mode: &'static str,
    /// Whether the tools have ended by themselves.
    has_lost_tools: bool,
    calls: OpenCalls,
    state: Arc<WorkState>,
}

/// Opens the session that `params` name, or a new one, answers the request, and works until the
/// session is closed. A panic ends the session alone, and answers the request that it works on.
pub(super) fn serve(shared: &AcpShared<'_>, request: &Value, params: &SessionParams) {
    match shared.place() {
        // The place is free again after a panic, too.
        Ok(_place) => {
            let _ = catch_unwind(AssertUnwindSafe(|| serve_one(shared, request, params)));
        }
        Err(error) => shared.outbox.reply(request, Err(error)),
    }
}

/// A request that a panic answers with an error, with which the session ends.
struct UnansweredRequest<'a> {
    shared: &'a AcpShared<'a>,
    request: &'a Value,
    session: Option<&'a str>,
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        if let Some(session) = self.session {
            self.shared.sessions().remove(session);
        }
        let error = AcpError::internal("the session has ended by an internal error");
        self.shared.outbox.reply(self.request, Err(error));
    }
}

fn serve_one(shared: &AcpShared<'_>, request: &Value, params: &SessionParams) {
    let unanswered = UnansweredRequest { shared, request, session: None };
    let opened = AcpSession::open(shared, params);
    drop(unanswered);
    match opened {
        Ok((mut session, work)) => {
            let result = session.opened(params);
            shared.outbox.reply(request, Ok(result));
            if params.mcp_servers.as_ref().is_some_and(|servers| !servers.is_empty()) {
                let text = "MCP servers are those of gannet.yaml; the client's are not started";
                shared.notice(&session.id, text);
            }
            session.run(&work);
        }
        Err(error) => shared.outbox.reply(request, Err(error)),
    }
}

fn internal(error: &anyhow::Error) -> AcpError {
    AcpError::internal(format!("{error:#}"))
}

/// The tools in the folder of a request, and that folder without links.
fn tools_of(
    shared: &AcpShared<'_>,
    params: &SessionParams,
) -> Result<(ToolArgs, PathBuf), AcpError> {
    let tools = shared.settings.tools.at(params.folder()?);
    let workspace = tools.workspace();
    let workspace =
        workspace.map_err(|error| AcpError::invalid_params(format!("cwd: {error:#}")))?;
    Ok((tools, workspace))
}

impl<'a> AcpSession<'a> {
    fn open(
        shared: &'a AcpShared<'a>,
        params: &SessionParams,
    ) -> Result<(Self, Receiver<SessionWork>), AcpError> {
        let (tools, workspace) = tools_of(shared, params)?;
        let args = shared.settings.session;
        let name = match &params.session_id {
            Some(id) => {
                // What is no name is the id of no session.
                let name = id.parse::<SessionName>().ok().filter(|name| args.has(name));
                Some(name.ok_or_else(|| AcpError::no_session(id))?)
            }
            None => None,
        };
        let open = args.of(name).open(&tools).map_err(|error| internal(&error))?;
        let id = open.name().map_or_else(|| shared.unkept_id(), ToString::to_string);
        let confirm = shared.settings.confirm;
        let made = shared.maker.make(open, (&tools, confirm), &|| shared.end.has_come());
        let made = made.map_err(|error| internal(&error))?;
        let (handle, work, state) = SessionHandle::new();
        shared.add(&id, handle)?;
        let mode = CONFIRMS.iter().find(|(_, known)| *known == confirm);
        let session = Self {
            shared,
            id,
            made,
            workspace,
            mode: mode.map_or(modes::PLAN, |(name, _)| name),
            has_lost_tools: false,
            calls: OpenCalls::default(),
            state,
        };
        Ok((session, work))
    }

    /// The answer to the request that opened the session, after what was said in it.
    fn opened(&mut self, params: &SessionParams) -> Value {
        let modes = modes::state(self.mode);
        match params.session_id {
            Some(_) => {
                self.replay();
                json!({"modes": modes})
            }
            None => json!({"sessionId": self.id, "modes": modes}),
        }
    }

    fn replay(&mut self) {
        let (agent, outbox) = (&self.made.agent, &self.shared.outbox);
        let said = (agent.model.messages(), agent.session.requests());
        let mut update = |update| outbox.update(&self.id, update);
        replay(said, &self.workspace, &mut self.calls, &mut update);
    }

    /// Works until the session is closed or the program ends.
    fn run(mut self, work: &Receiver<SessionWork>) {
        for work in work {
            let (request, result) = match work {
                SessionWork::Prompt { request, text } => {
                    let (shared, id) = (self.shared, self.id.clone());
                    let unanswered =
                        UnansweredRequest { shared, request: &request, session: Some(&id) };
                    let result = self.prompt(&text);
                    drop(unanswered);
                    self.state.finish();
                    (request, result)
                }
                SessionWork::Load { request, folder } => {
                    let result = self.load(folder);
                    self.state.finish();
                    (request, result)
                }
                SessionWork::SetMode { request, mode } => (request, self.set_mode(mode)),
                SessionWork::Close { request } => {
                    let outbox = self.shared.outbox.clone();
                    drop(self);
                    return outbox.reply(&request, Ok(json!({})));
                }
            };
            self.shared.outbox.reply(&request, result);
        }
    }

    /// Loads the session anew: it has what was said.
    fn load(&mut self, folder: PathBuf) -> Result<Value, AcpError> {
        let found = self.shared.settings.tools.at(&folder).workspace();
        if found.ok().as_ref() != Some(&self.workspace) {
            let (expected, found) = (self.workspace.display(), folder.display());
            let text = format!("cwd: expected {expected}, found {found}");
            return Err(AcpError::invalid_params(text));
        }
        self.replay();
        Ok(json!({"modes": modes::state(self.mode)}))
    }

    fn set_mode(&mut self, mode: &'static str) -> Result<Value, AcpError> {
        let confirm = CONFIRMS.iter().find(|(name, _)| *name == mode);
        let changed = match confirm {
            Some((_, confirm)) => {
                let left = self.made.leave_plan();
                left.map(|()| self.made.agent.policy.confirm = *confirm)
            }
            None => self.made.enter_plan(),
        };
        changed.map_err(|error| internal(&error))?;
        self.mode = mode;
        let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": mode});
        self.shared.outbox.update(&self.id, update);
        Ok(json!({}))
    }

    /// Works on a prompt; gives why the work has stopped.
    fn prompt(&mut self, text: &str) -> Result<Value, AcpError> {
        self.find_tools()?;
        self.made.agent.limits = self.shared.maker.limits();
        let temporary = self.made.kept().to_owned();
        let mut user = EditorUser {
            shared: self.shared,
            session: &self.id,
            state: &self.state,
            folders: (&self.workspace, &temporary),
            calls: &mut self.calls,
            finish: None,
        };
        let end = self.made.work(text.trim_end(), &mut user);
        user.finish();
        let is_cut = user.finish == Some(Finish::Length);
        let is_cancelled = agent::AgentUser::is_interrupted(&user);
        match end {
            Ok(end) => {
                if end == WorkEnd::Full {
                    let text = "the context is full, and a summary would not free enough of it";
                    self.shared.notice(&self.id, text);
                }
                Ok(json!({"stopReason": self.stop_reason(end, is_cut)}))
            }
            Err(error) => {
                self.has_lost_tools = matches!(error, AgentError::Host(_));
                match is_cancelled {
                    // Whatever a cancellation has led to.
                    true => Ok(json!({"stopReason": "cancelled"})),
                    false => Err(AcpError::internal(error.to_string())),
                }
            }
        }
    }

    /// Starts the tools again that have ended by themselves.
    fn find_tools(&mut self) -> Result<(), AcpError> {
        if self.has_lost_tools {
            let started = self.made.restart_tools(&self.made.tools.clone());
            started.map_err(|error| internal(&error))?;
            self.has_lost_tools = false;
        }
        Ok(())
    }

    fn stop_reason(&self, end: WorkEnd, is_cut: bool) -> &'static str {
        match end {
            WorkEnd::Interrupted => "cancelled",
            WorkEnd::Full => "max_tokens",
            WorkEnd::Limit if is_cut => "max_tokens",
            WorkEnd::Limit => "max_turn_requests",
            WorkEnd::Done => "end_turn",
        }
    }
}
