//! Settings of the server, each with a default that suits one machine and a few clients.

use crate::http::keys::ApiKeys;
use crate::http::limits::RateLimits;
use api::{CacheIsolation, ReceiptKey};
use state::StateDir;
use std::path::PathBuf;
use std::time::Duration;

/// How the server treats its clients.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Keys of which every request must carry one, but those to `/health`, `/ready` and the page.
    pub keys: ApiKeys,
    /// Origin besides the server's own that browsers may call from: one origin, `localhost` for
    /// those of this machine at any port, or `*`. `None` sends no CORS headers, and OPTIONS is a
    /// method that no route has.
    pub cors_origin: Option<String>,
    /// Names of hosts besides addresses, `localhost` and the machine's name, for which a server
    /// without keys that listens on this machine alone answers.
    pub allowed_hosts: Vec<String>,
    /// Serve the pages at `/` and `/docs`.
    pub ui: bool,
    /// Serve `/slots`.
    pub slots: bool,
    /// The folder in which the prefixes of slots are saved; `None` to save none.
    pub slot_files: Option<PathBuf>,
    /// Serve `/metrics`.
    pub metrics: bool,
    /// Load and unload adapters on request.
    pub adapter_updates: bool,
    /// What each caller may take.
    pub rates: RateLimits,
    /// Most connections at one time. Further ones get an error and are closed.
    pub connections: usize,
    /// Most bytes of a request's head, at least 8192.
    pub header_limit: usize,
    /// Longest time a request's head may take to arrive, and a connection may be idle.
    pub header_timeout: Duration,
    /// Largest request body, or message of a WebSocket, in bytes.
    pub body_limit: usize,
    /// Longest time a body may take to arrive.
    pub body_timeout: Duration,
    /// Deepest nesting of a body's JSON, at most [`MAX_JSON_DEPTH`](Self::MAX_JSON_DEPTH).
    pub json_depth: usize,
    /// Longest silence of an event stream before a comment is sent to keep it open.
    pub ping_interval: Duration,
    /// Longest time a client may leave its answer unread before it is given up.
    pub stall_timeout: Duration,
    /// Longest time a WebSocket may be open. An answer that has begun is finished.
    pub websocket_lifetime: Duration,
    /// Longest time the engine may have work and get nowhere while `/ready` still says so.
    pub progress_timeout: Duration,
    /// How long running requests may continue after shutdown was asked.
    pub grace: Duration,
    /// Most responses of the Responses API that are kept for the next turn.
    pub stored_responses: usize,
    /// Most bytes that these hold in memory, their histories included.
    pub stored_response_bytes: usize,
    /// Longest time that these are kept.
    pub stored_response_age: Duration,
    /// Where these are kept across restarts, with turns that called tools; `None` for memory only.
    pub state: Option<StateDir>,
    /// Compute responses in the background again that the end of the last server has cut off.
    pub resume_background: bool,
    /// Time between two looks at the files of keys and certificates.
    pub reload: Duration,
    /// Give a receipt of every answer, unless its request says otherwise.
    pub receipts: bool,
    /// The key that signs receipts.
    pub receipt_key: Option<ReceiptKey>,
    /// Log the texts of prompts and answers.
    pub log_prompts: bool,
    /// Who shares the caches of prompts with whom; `None` for [`CacheIsolation::Key`] while there
    /// are two keys or more, and [`CacheIsolation::Off`] otherwise.
    pub cache_isolation: Option<CacheIsolation>,
}

impl ServerOptions {
    /// Who shares the caches of prompts with whom, with the keys of this moment.
    pub fn isolation(&self) -> CacheIsolation {
        self.cache_isolation.unwrap_or(match self.keys.len() {
            0 | 1 => CacheIsolation::Off,
            _ => CacheIsolation::Key,
        })
    }

    /// The deepest JSON that can be allowed.
    pub const MAX_JSON_DEPTH: usize = 127;
    /// The fewest bytes that heads of requests can be limited to.
    pub const MIN_HEADER_LIMIT: usize = 8192;
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            keys: ApiKeys::default(),
            cors_origin: None,
            allowed_hosts: Vec::new(),
            ui: true,
            slots: true,
            slot_files: None,
            metrics: true,
            adapter_updates: false,
            rates: RateLimits::default(),
            connections: 1024,
            header_limit: 64 << 10,
            header_timeout: Duration::from_secs(30),
            body_limit: 32 << 20,
            body_timeout: Duration::from_secs(60),
            json_depth: Self::MAX_JSON_DEPTH,
            ping_interval: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            websocket_lifetime: Duration::from_secs(3600),
            progress_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            stored_responses: 1000,
            stored_response_bytes: 256 << 20,
            stored_response_age: Duration::from_secs(30 * 24 * 3600),
            state: None,
            resume_background: true,
            reload: Duration::from_secs(60),
            receipts: false,
            receipt_key: None,
            log_prompts: false,
            cache_isolation: None,
        }
    }
}
