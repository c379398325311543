//! A connection to a server: which protocol it speaks, and requests in it.
//!
//! Source: "Backward Compatibility" of the transports of the specification of 2026-07-28. A server
//! that answers `server/discover` is spoken to without a session. Any other answer, or none, is
//! that of an older server, which gets `initialize`; one that ends because of the question is
//! started again for it.

use super::fault::LinkFault;
use super::link::{LinkOpener, ServerLink};
use super::message::{
    LEGACY_VERSIONS, MODERN_VERSION, ProtocolEra, RpcError, RpcOutcome, RpcRequest, client_info,
};
use super::stdio::{AwaitedAnswer, StdioLink};
use super::stop::{StopSignal, within};
use serde_json::{Map, Value, json};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Errors that servers of the protocol without sessions alone have: wrong header fields, a missing
/// capability, and the next.
const MODERN_ERRORS: [i64; 3] = [-32020, -32021, UNSUPPORTED_VERSION];
/// The error that lists the versions of a server.
const UNSUPPORTED_VERSION: i64 = -32022;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Connection {
    link: ServerLink,
    era: ProtocolEra,
    last_id: u64,
    has_tools: bool,
}

/// What the answer to `server/discover` says.
enum Discovered {
    /// The server speaks the protocol without sessions, and has tools or not.
    Modern { has_tools: bool },
    /// The server is an older one.
    Legacy,
}

impl Connection {
    /// Opens the link, and sends nothing.
    ///
    /// # Errors
    ///
    /// If the link cannot be opened.
    pub(super) fn open(opener: &LinkOpener) -> Result<Self, LinkFault> {
        let link = opener.open()?;
        Ok(Self { link, era: ProtocolEra::Modern, last_id: 0, has_tools: true })
    }

    /// Finds out which protocol the server speaks, unless it is `known`, and begins it.
    ///
    /// # Errors
    ///
    /// If the server answers to none.
    pub(super) async fn begin(
        &mut self,
        opener: &LinkOpener,
        known: Option<&ProtocolEra>,
    ) -> Result<(), LinkFault> {
        match known {
            None => self.discover(opener).await,
            Some(ProtocolEra::Modern) => {
                self.set_modern(true);
                Ok(())
            }
            Some(_) => self.initialize().await,
        }
    }

    async fn discover(&mut self, opener: &LinkOpener) -> Result<(), LinkFault> {
        let request = RpcRequest::new("server/discover", Map::new());
        let (id, limit) = (self.next_id(), opener.context.limits.probe);
        let outcome = match &mut self.link {
            ServerLink::Http(link) => {
                let asked = link.request(id, &request, &ProtocolEra::Modern);
                tokio::time::timeout(limit, asked).await.unwrap_or(Err(LinkFault::TimedOut))
            }
            ServerLink::Stdio(link) => {
                match link.begin(id, &request.message(id, &ProtocolEra::Modern)).await {
                    Err(fault) => Err(fault),
                    Ok(mut probe) => match tokio::time::timeout(limit, probe.outcome()).await {
                        Ok(outcome) => outcome,
                        Err(_) => return self.initialize_late(probe).await,
                    },
                }
            }
        };
        match outcome {
            Ok(outcome) => match discovered(&outcome)? {
                Discovered::Modern { has_tools } => {
                    self.set_modern(has_tools);
                    Ok(())
                }
                Discovered::Legacy => self.initialize().await,
            },
            Err(LinkFault::TimedOut | LinkFault::NoMessage(_)) => self.initialize().await,
            Err(LinkFault::Ended(_)) => {
                self.link = opener.open()?;
                self.initialize().await
            }
            Err(fault) => Err(fault),
        }
    }

    /// Sends `initialize` though the answer to the question before may still come: the server is
    /// perhaps not an old one but a slow one.
    async fn initialize_late(&mut self, mut probe: AwaitedAnswer) -> Result<(), LinkFault> {
        let id = self.next_id();
        self.era = ProtocolEra::Initializing;
        let ServerLink::Stdio(link) = &self.link else { return self.initialize().await };
        match either(link, &mut probe, id).await? {
            Ok(has_tools) => {
                self.set_modern(has_tools);
                Ok(())
            }
            Err(outcome) => self.initialized(outcome).await,
        }
    }

    async fn initialize(&mut self) -> Result<(), LinkFault> {
        let id = self.next_id();
        self.era = ProtocolEra::Initializing;
        let outcome = self.link.request(id, &initialize(), &self.era).await?;
        self.initialized(outcome).await
    }

    async fn initialized(&mut self, outcome: RpcOutcome) -> Result<(), LinkFault> {
        let result = outcome.map_err(|error| {
            LinkFault::Failed(format!("it refuses to begin: {} ({})", error.message, error.code))
        })?;
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !LEGACY_VERSIONS.contains(&version) {
            return Err(unknown_versions(&result["protocolVersion"]));
        }
        self.era = ProtocolEra::Legacy(version.to_owned());
        self.has_tools = has_tools(&result);
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.link.notify(&begun, &self.era).await;
        Ok(())
    }

    fn set_modern(&mut self, has_tools: bool) {
        self.era = ProtocolEra::Modern;
        self.has_tools = has_tools;
        if let ServerLink::Stdio(link) = &self.link {
            link.set_modern();
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// How the server is spoken to.
    pub(super) fn era(&self) -> &ProtocolEra {
        &self.era
    }

    /// Whether the server has tools.
    pub(super) fn has_tools(&self) -> bool {
        self.has_tools
    }

    /// Whether header fields of HTTP repeat arguments of calls.
    pub(super) fn repeats_arguments(&self) -> bool {
        matches!(self.link, ServerLink::Http(_)) && self.era == ProtocolEra::Modern
    }

    /// Sends a request and waits for the answer. A session that the server has lost is begun again.
    ///
    /// # Errors
    ///
    /// If there is no answer within `limit`, or the request is cancelled: the server gets the
    /// cancellation.
    pub(super) async fn request(
        &mut self,
        request: &RpcRequest,
        limit: Duration,
        stop: &StopSignal,
    ) -> Result<RpcOutcome, LinkFault> {
        let end = Instant::now() + limit;
        let mut outcome = self.request_once(request, limit, stop).await;
        if outcome == Err(LinkFault::SessionLost) {
            let left = end.saturating_duration_since(Instant::now());
            within(self.initialize(), left, stop).await?;
            let left = end.saturating_duration_since(Instant::now());
            outcome = self.request_once(request, left, stop).await;
        }
        outcome
    }

    async fn request_once(
        &mut self,
        request: &RpcRequest,
        limit: Duration,
        stop: &StopSignal,
    ) -> Result<RpcOutcome, LinkFault> {
        let id = self.next_id();
        let outcome = within(self.link.request(id, request, &self.era), limit, stop).await;
        if let Err(LinkFault::Cancelled | LinkFault::TimedOut) = outcome {
            self.link.cancel(id, &self.era);
        }
        outcome
    }

    /// Whether the server is known to have ended: see [`ServerLink::has_ended`].
    pub(super) fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    /// Ends the server or the session: see [`ServerLink::end`].
    pub(super) async fn end(self, most: Duration) -> (Option<ExitStatus>, Vec<u8>) {
        self.link.end(most, &self.era).await
    }
}

fn initialize() -> RpcRequest {
    let mut params = Map::new();
    params.insert("protocolVersion".to_owned(), LEGACY_VERSIONS[0].into());
    params.insert("capabilities".to_owned(), json!({}));
    params.insert("clientInfo".to_owned(), client_info());
    RpcRequest::new("initialize", params)
}

/// Sends `initialize` with the number `id`, and waits for the answer to it, or for one to `probe`
/// that says that the server needs none: then, whether the server has tools.
async fn either(
    link: &StdioLink,
    probe: &mut AwaitedAnswer,
    id: u64,
) -> Result<Result<bool, RpcOutcome>, LinkFault> {
    let message = initialize().message(id, &ProtocolEra::Initializing);
    let mut begun = link.begin(id, &message).await?;
    let mut is_probing = true;
    loop {
        tokio::select! {
            biased;
            outcome = probe.outcome(), if is_probing => {
                is_probing = false;
                if let Discovered::Modern { has_tools } = discovered(&outcome?)? {
                    return Ok(Ok(has_tools));
                }
            }
            outcome = begun.outcome() => return Ok(Err(outcome?)),
        }
    }
}

fn discovered(outcome: &RpcOutcome) -> Result<Discovered, LinkFault> {
    let (versions, has_tools) = match outcome {
        Ok(result) => (&result["supportedVersions"], has_tools(result)),
        Err(error) if error.code == UNSUPPORTED_VERSION => (&error.data["supported"], true),
        Err(RpcError { code, message, .. }) if MODERN_ERRORS.contains(code) => {
            return Err(LinkFault::Failed(format!("it refuses to begin: {message} ({code})")));
        }
        Err(_) => return Ok(Discovered::Legacy),
    };
    let Value::Array(list) = versions else { return Ok(Discovered::Legacy) };
    let has = |version: &str| list.iter().any(|it| it == version);
    if has(MODERN_VERSION) {
        return Ok(Discovered::Modern { has_tools });
    }
    match LEGACY_VERSIONS.iter().any(|version| has(version)) {
        true => Ok(Discovered::Legacy),
        false => Err(unknown_versions(versions)),
    }
}

/// Whether a server says that it has tools, or says nothing about it.
fn has_tools(result: &Value) -> bool {
    result["capabilities"].as_object().is_none_or(|it| it.contains_key("tools"))
}

fn unknown_versions(versions: &Value) -> LinkFault {
    let mut text = versions.to_string();
    text.truncate(text.floor_char_boundary(200));
    LinkFault::Failed(format!(
        "expected a server of the protocol of {MODERN_VERSION} or of {} to {}, found {text}",
        LEGACY_VERSIONS[LEGACY_VERSIONS.len() - 1],
        LEGACY_VERSIONS[0],
    ))
}
