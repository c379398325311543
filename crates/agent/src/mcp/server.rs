//! A server in a session: it is started, its tools are listed once, and calls go to it.
//!
//! Invariant: a process that has ended is started again once.

use super::answer::{McpAnswer, answer};
use super::connection::Connection;
use super::context::McpLimits;
use super::fault::{LinkFault, McpError};
use super::headers::call_headers;
use super::link::LinkOpener;
use super::listing::{ListedTool, ToolListing};
use super::message::{ProtocolEra, RpcRequest};
use super::settings::{McpCommand, McpServerSettings};
use super::stop::{StopSignal, within};
use serde_json::{Map, Value};
use std::time::Duration;

/// Time that a server has to end whose output has, or whose start is cancelled.
const MAX_LAST: Duration = Duration::from_millis(200);

/// A server.
#[derive(Debug)]
pub(super) struct McpServer {
    opener: LinkOpener,
    /// `None` while it does not run.
    connection: Option<Connection>,
    era: Option<ProtocolEra>,
    was_started_again: bool,
    /// Whether it was ended only to be started in another way.
    is_resting: bool,
    /// Its tools.
    pub tools: Vec<ListedTool>,
}

impl McpServer {
    /// A server that does not run.
    pub(super) fn new(opener: LinkOpener) -> Self {
        Self {
            opener,
            connection: None,
            era: None,
            was_started_again: false,
            is_resting: false,
            tools: Vec::new(),
        }
    }

    /// Its name in the settings.
    pub(super) fn name(&self) -> &str {
        &self.opener.name
    }

    /// How it is, in words.
    pub(super) fn state(&self) -> &'static str {
        match &self.connection {
            Some(connection) if !connection.has_ended() => "running",
            None if self.is_resting => "the next call starts it",
            _ if self.was_started_again => "ended",
            _ => "ended, the next call starts it again",
        }
    }

    fn limits(&self) -> McpLimits {
        self.opener.context.limits
    }

    /// Starts the server and lists its tools. Returned is which tools are left out.
    ///
    /// # Errors
    ///
    /// If it does not start, with a printable text.
    pub(super) async fn start(&mut self, stop: &StopSignal) -> Result<Vec<String>, String> {
        let limit = self.limits().start;
        let work = async {
            self.connect().await?;
            self.list(limit, stop).await
        };
        let problems = within(work, limit, stop).await;
        match problems {
            Ok(problems) => Ok(problems),
            Err(fault) => Err(self.ended(fault).await),
        }
    }

    async fn connect(&mut self) -> Result<(), LinkFault> {
        let connection = self.connection.insert(Connection::open(&self.opener)?);
        connection.begin(&self.opener, self.era.as_ref()).await?;
        self.era = Some(connection.era().clone());
        Ok(())
    }

    async fn list(&mut self, limit: Duration, stop: &StopSignal) -> Result<Vec<String>, LinkFault> {
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let mut listing = ToolListing::new(&self.opener.name, connection.repeats_arguments());
        let mut is_more = connection.has_tools();
        let mut params = Map::new();
        while is_more {
            let request = RpcRequest::new("tools/list", params.clone());
            let page = connection.request(&request, limit, stop).await?.map_err(|error| {
                LinkFault::Failed(format!("it lists no tools: {} ({})", error.message, error.code))
            })?;
            let cursor = listing.add(&page, &self.opener.context).map_err(LinkFault::Failed)?;
            is_more = cursor.is_some();
            params.insert("cursor".to_owned(), cursor.into());
        }
        self.tools = listing.tools;
        Ok(listing.problems)
    }

    /// Calls the tool at `index`.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub(super) async fn call(
        &mut self,
        index: usize,
        arguments: Value,
        stop: &StopSignal,
    ) -> Result<McpAnswer, McpError> {
        if self.connection.as_ref().is_some_and(Connection::has_ended) {
            self.ended(LinkFault::Cancelled).await;
        }
        if self.connection.is_none() {
            self.start_again(stop).await?;
        }
        let (limit, server) = (self.limits().call, self.name().to_owned());
        let request = self.tools.get(index).map(|tool| call_request(tool, arguments));
        let (Some(connection), Some(request)) = (&mut self.connection, request) else {
            return Err(McpError::Failed { server, problem: "it does not run".to_owned() });
        };
        let shown = |text: &str| self.opener.context.shown(text);
        match connection.request(&request, limit, stop).await {
            Ok(Ok(result)) => answer(&result, &self.opener.context)
                .map_err(|problem| McpError::Failed { server, problem }),
            Ok(Err(error)) => {
                let message = shown(&error.message);
                Err(McpError::Refused { server, code: error.code, message })
            }
            Err(LinkFault::Cancelled) => Err(McpError::Cancelled(server)),
            Err(LinkFault::TimedOut) => Err(McpError::TimedOut { server, limit }),
            Err(fault @ LinkFault::Ended(_)) => {
                Err(McpError::Ended { problem: self.ended(fault).await, server })
            }
            Err(fault) => Err(McpError::Failed { problem: shown(&fault.text()), server }),
        }
    }

    async fn start_again(&mut self, stop: &StopSignal) -> Result<(), McpError> {
        let server = self.name().to_owned();
        if self.was_started_again && !self.is_resting {
            let problem = "it was started again once already".to_owned();
            return Err(McpError::Ended { server, problem });
        }
        self.was_started_again |= !self.is_resting;
        self.is_resting = false;
        let limit = self.limits().start;
        match within(self.connect(), limit, stop).await {
            Ok(()) => Ok(()),
            Err(LinkFault::Cancelled) => {
                self.ended(LinkFault::Cancelled).await;
                Err(McpError::Cancelled(server))
            }
            Err(fault) => Err(McpError::Ended { problem: self.ended(fault).await, server }),
        }
    }

    /// Ends what is left of a server that has ended or does not start. Returned is how, printable.
    async fn ended(&mut self, fault: LinkFault) -> String {
        let has_ended = matches!(fault, LinkFault::Ended(_));
        let is_done = has_ended || fault == LinkFault::Cancelled;
        let mut text = self.opener.context.shown(&fault.text());
        let Some(connection) = self.connection.take() else { return text };
        let most = if is_done { MAX_LAST } else { self.limits().end };
        let (status, log) = connection.end(most).await;
        if let Some(status) = status.filter(|_| has_ended) {
            text.push_str(&format!(" ({status})"));
        }
        if !log.is_empty() {
            text.push_str("; its last lines:\n");
            text.push_str(&(self.opener.context.printable)(&log));
        }
        text
    }

    /// Ends a process that is confined, which the next call starts again in the sandbox of then.
    pub(super) async fn rest(&mut self) {
        if let McpServerSettings::Command(McpCommand { is_confined: true, .. }) =
            &self.opener.settings
            && self.connection.is_some()
        {
            self.end().await;
            self.is_resting = true;
        }
    }

    /// Ends the server.
    pub(super) async fn end(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.end(self.limits().end).await;
        }
    }
}

fn call_request(tool: &ListedTool, arguments: Value) -> RpcRequest {
    let name = &tool.tool.tool;
    let headers = call_headers(name, &tool.headers, &arguments);
    let mut params = Map::new();
    params.insert("name".to_owned(), name.clone().into());
    let arguments = if arguments.is_null() { Value::Object(Map::new()) } else { arguments };
    params.insert("arguments".to_owned(), arguments);
    RpcRequest { method: "tools/call", params, headers }
}
