//! Where clients connect, over TCP, TLS or a Unix socket, and how their connections are served.

mod connections;
mod half_close;
mod listener;
mod timeouts;
mod tls;
#[cfg_attr(not(unix), path = "transport/no_unix.rs")]
mod unix;

pub(crate) use connections::Connections;
pub use listener::Listener;
pub use tls::{Tls, TlsError};
pub use unix::UnixSocket;
