//! The link to a server, of either kind.

use super::context::McpContext;
use super::fault::LinkFault;
use super::http::HttpLink;
use super::message::{ProtocolEra, RpcOutcome, RpcRequest, cancellation};
use super::settings::{McpServerSettings, endpoint};
use super::stdio::StdioLink;
use serde_json::Value;
use std::process::ExitStatus;
use std::time::Duration;

/// A link to a server.
#[derive(Debug)]
pub(super) enum ServerLink {
    /// To a process.
    Stdio(StdioLink),
    /// To an address.
    Http(HttpLink),
}

/// What links to a server are opened with.
#[derive(Debug)]
pub(super) struct LinkOpener {
    /// The name of the server.
    pub name: String,
    /// How it is reached.
    pub settings: McpServerSettings,
    /// What the agent gives.
    pub context: McpContext,
}

impl LinkOpener {
    /// Opens a link: starts the process of a server that is one, within the runtime.
    ///
    /// # Errors
    ///
    /// If the process cannot be started, or there is no TLS.
    pub(super) fn open(&self) -> Result<ServerLink, LinkFault> {
        match &self.settings {
            McpServerSettings::Command(command) => {
                let process = (self.context.launcher)(&self.name, command);
                let link = process.and_then(StdioLink::start).map_err(|error| {
                    let program = command.command.first().map_or("", String::as_str);
                    LinkFault::Failed(format!("`{program}` cannot be started: {error}"))
                });
                Ok(ServerLink::Stdio(link?))
            }
            McpServerSettings::Url(url) => {
                let uri = endpoint(url).map_err(LinkFault::Failed)?;
                Ok(ServerLink::Http(HttpLink::new(&uri)?))
            }
        }
    }
}

impl ServerLink {
    /// Sends `request` with the number `id`, and waits for the answer.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) async fn request(
        &mut self,
        id: u64,
        request: &RpcRequest,
        era: &ProtocolEra,
    ) -> Result<RpcOutcome, LinkFault> {
        match self {
            Self::Stdio(link) => link.begin(id, &request.message(id, era)).await?.outcome().await,
            Self::Http(link) => link.request(id, request, era).await,
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, message: &Value, era: &ProtocolEra) {
        match self {
            Self::Stdio(link) => link.notify(message),
            Self::Http(link) => link.notify(message, era).await,
        }
    }

    /// Says that the request `id`, whose answer is no longer awaited, is cancelled.
    pub(super) fn cancel(&self, id: u64, era: &ProtocolEra) {
        match self {
            Self::Stdio(_) if *era == ProtocolEra::Initializing => {}
            Self::Stdio(link) => link.notify(&cancellation(id)),
            Self::Http(link) => link.cancel(id, era),
        }
    }

    /// Whether the process has ended of a server that is one.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Stdio(link) if link.has_ended())
    }

    /// Ends the server or the session with it; a process has twice `most`. Returned are the status
    /// of a process that has ended of itself, and its last lines.
    pub(super) async fn end(
        self,
        most: Duration,
        era: &ProtocolEra,
    ) -> (Option<ExitStatus>, Vec<u8>) {
        match self {
            Self::Stdio(link) => link.end(most).await,
            Self::Http(link) => {
                link.end(era).await;
                (None, Vec::new())
            }
        }
    }
}
