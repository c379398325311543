//! Settings of the server, each with a default that suits one machine and a few clients.

use std::time::Duration;

/// How the server listens to its clients.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Bearer key that every request must carry, but for `/health`, `/ready` and the page at `/`.
    pub api_key: Option<String>,
    /// Origin that browsers may call from: `*`, or one origin. `None` sends no CORS headers.
    pub cors_origin: Option<String>,
    /// Largest request body in bytes.
    pub body_limit: usize,
    /// Longest time a body may take to arrive.
    pub body_timeout: Duration,
    /// Longest silence of an event stream before a comment is sent to keep it open.
    pub keep_alive: Duration,
    /// Longest time a client may leave its stream unread before it is given up.
    pub stall_timeout: Duration,
    /// Longest time the engine may have work and get nowhere while `/ready` still says so.
    pub progress_timeout: Duration,
    /// How long running requests may go on after shutdown was asked.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            api_key: None,
            cors_origin: None,
            body_limit: 32 << 20,
            body_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            progress_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(30),
        }
    }
}
