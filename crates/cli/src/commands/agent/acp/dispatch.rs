//! Messages of the client in their order: each is answered at once, or given to the thread of its
//! session.

use super::modes;
use super::params::{
    self, InitializeParams, PromptParams, SessionIdParams, SessionParams, SetModeParams,
};
use super::session;
use super::session_handle::{SessionHandle, SessionWork};
use super::shared::AcpShared;
use super::wire::{AcpError, AcpMessage};
use crate::output;
use serde_json::{Value, json};
use std::thread::{Builder, Scope};

/// The version of the protocol.
const VERSION: u16 = 1;

/// Takes messages.
pub(super) struct Dispatcher<'scope, 'env> {
    shared: &'scope AcpShared<'env>,
    scope: &'scope Scope<'scope, 'env>,
    is_initialized: bool,
}

impl<'scope, 'env> Dispatcher<'scope, 'env> {
    /// Sessions have threads of `scope`.
    pub fn new(shared: &'scope AcpShared<'env>, scope: &'scope Scope<'scope, 'env>) -> Self {
        Self { shared, scope, is_initialized: false }
    }

    /// Takes a message.
    pub fn take(&mut self, message: AcpMessage) {
        let outbox = &self.shared.outbox;
        match message {
            AcpMessage::Malformed { id, error } => outbox.reply(&id, Err(error)),
            AcpMessage::Answer { id, result } => self.shared.questions.answer(&id, result),
            AcpMessage::Notification { method, params } => self.notified(&method, params),
            AcpMessage::Request { id, method, params } => {
                match self.request(&id, &method, params) {
                    Ok(None) => {}
                    Ok(Some(result)) => self.shared.outbox.reply(&id, Ok(result)),
                    Err(error) => self.shared.outbox.reply(&id, Err(error)),
                }
            }
        }
    }

    /// Carries a request out; `None` where a session answers it.
    fn request(
        &mut self,
        id: &Value,
        method: &str,
        params: Value,
    ) -> Result<Option<Value>, AcpError> {
        let request = id.clone();
        match method {
            "initialize" => return self.initialize(params).map(Some),
            _ if !self.is_initialized => {
                return Err(AcpError::invalid_request("expected initialize before all else"));
            }
            "session/new" => {
                let params = SessionParams { session_id: None, ..params::read(params)? };
                self.open(request, params)?;
            }
            "session/load" => self.load(request, params::read(params)?)?,
            "session/prompt" => {
                let params: PromptParams = params::read(params)?;
                let work = SessionWork::Prompt { request, text: params.text()? };
                self.with(&params.session_id, |session| session.begin(work))?;
            }
            "session/set_mode" => {
                let SetModeParams { session_id, mode_id } = params::read(params)?;
                let Some(mode) = modes::mode(&mode_id) else {
                    let ids = modes::ids();
                    let text = format!("modeId: expected one of {ids}, found {mode_id:?}");
                    return Err(AcpError::invalid_params(text));
                };
                let work = SessionWork::SetMode { request, mode };
                self.with(&session_id, |session| session.queue(work))?;
            }
            "session/close" => self.close(request, &params::read(params)?)?,
            _ => return Err(AcpError::no_method(method)),
        }
        Ok(None)
    }

    fn initialize(&mut self, params: Value) -> Result<Value, AcpError> {
        let InitializeParams { client_capabilities, .. } = params::read(params)?;
        self.is_initialized = true;
        self.shared.set_notices(client_capabilities["session"]["notices"].is_object());
        Ok(json!({
            "protocolVersion": VERSION,
            "agentCapabilities": {
                "loadSession": self.shared.settings.session.is_kept(),
                "promptCapabilities": {"image": false, "audio": false, "embeddedContext": true},
                "mcpCapabilities": {"http": false, "sse": false},
                "sessionCapabilities": {"close": {}},
            },
            "agentInfo": {
                "name": "gannet", "title": "Gannet", "version": env!("CARGO_PKG_VERSION"),
            },
            "authMethods": [],
        }))
    }

    /// Loads a session: where one is open, it shows what was said.
    fn load(&self, request: Value, params: SessionParams) -> Result<(), AcpError> {
        let Some(id) = &params.session_id else {
            return Err(AcpError::invalid_params("params: missing field `sessionId`"));
        };
        let folder = params.folder()?.to_owned();
        if let Some(session) = self.shared.sessions().get(id) {
            return session.begin(SessionWork::Load { request, folder });
        }
        self.open(request, params)
    }

    /// Opens a session on a thread of its own.
    fn open(&self, request: Value, params: SessionParams) -> Result<(), AcpError> {
        let shared = self.shared;
        let thread = Builder::new().name("gannet-session".to_owned());
        let begun = thread.spawn_scoped(self.scope, move || {
            session::serve(shared, &request, &params);
        });
        begun.map(drop).map_err(|error| AcpError::internal(format!("no thread: {error}")))
    }

    fn close(&self, request: Value, params: &SessionIdParams) -> Result<(), AcpError> {
        let id = &params.session_id;
        let session = self.shared.sessions().remove(id);
        let session = session.ok_or_else(|| AcpError::no_session(id))?;
        session.cancel();
        session.queue(SessionWork::Close { request })
    }

    fn notified(&self, method: &str, params: Value) {
        // Others are of protocols to come, and notifications have no answer.
        if method != "session/cancel" {
            return;
        }
        let cancelled = params::read(params).and_then(|SessionIdParams { session_id }| {
            self.with(&session_id, |session| {
                session.cancel();
                Ok(())
            })
        });
        if let Err(error) = cancelled {
            output::note(format_args!("session/cancel: {}", error.to_json()["message"]));
        }
    }

    fn with(
        &self,
        id: &str,
        act: impl FnOnce(&SessionHandle) -> Result<(), AcpError>,
    ) -> Result<(), AcpError> {
        match self.shared.sessions().get(id) {
            Some(session) => act(session),
            None => Err(AcpError::no_session(id)),
        }
    }
}
