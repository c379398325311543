//! The client of servers of the Model Context Protocol, whose tools the model calls.
//!
//! - [`McpSettings`] names the servers: commands that are started, or addresses.
//! - [`McpServers`] are the servers that run, with their tools and the calls of these.
//! - [`McpContext`] is what the client needs of the agent: how a command is confined, and how text
//!   of servers is made printable.
//!
//! Source: the specification of 2026-07-28, which is without sessions, and of 2025-11-25, whose
//! `initialize` is sent where a server does not know `server/discover`. Of both, tools alone:
//! requests of servers are refused, and notifications are ignored.
//!
//! Invariant: whatever a server sends, memory and time are bounded, and texts are printable. The
//! schemas of tools alone are passed as the server wrote them.

mod answer;
mod connection;
mod context;
mod fault;
mod headers;
mod http;
mod link;
mod listing;
mod log_tail;
mod message;
mod process;
mod server;
mod servers;
mod settings;
mod sse;
mod stdio;
mod stop;
mod web;

#[cfg(test)]
mod tests;

pub use context::{McpContext, McpLauncher, McpLimits, McpProcess};
pub use listing::McpTool;
pub use servers::McpServers;
pub use settings::{McpCommand, McpServerSettings, McpSettings};
