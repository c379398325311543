//! Where clients connect, over TCP, TLS or a Unix socket, and how their connections are served.

mod connections;
mod timeouts;
mod tls;
#[cfg_attr(not(unix), path = "transport/no_unix.rs")]
mod unix;

pub(crate) use connections::Connections;
pub use tls::{Tls, TlsError};
pub use unix::UnixSocket;

use crate::http::caller::Peer;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use unix::UnixStream;

/// Pause after the system could not accept a connection.
const REST: Duration = Duration::from_millis(500);

/// Where clients connect: a TCP port, with TLS or without, a Unix socket, or both.
#[derive(Debug, Default)]
pub struct Listener {
    /// The TCP port.
    pub tcp: Option<TcpListener>,
    /// How the TCP port is secured.
    pub tls: Option<Tls>,
    /// The Unix socket.
    pub unix: Option<UnixSocket>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp: Some(tcp), ..Self::default() }
    }
}

impl Listener {
    /// The address of its TCP port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// Accepts the next connection. The future can be dropped while it waits.
    async fn accept(&self) -> (Socket, Peer) {
        loop {
            let accepted = tokio::select! {
                accepted = accept_tcp(self.tcp.as_ref()) => accepted.map(|(socket, address)| {
                    // Without it, small events wait for each other; a socket that refuses
                    // still works.
                    let _ = socket.set_nodelay(true);
                    (Socket::Tcp(socket, self.tls.clone()), Peer::Address(address.ip()))
                }),
                accepted = unix::accept(self.unix.as_ref()) => {
                    accepted.map(|socket| (Socket::Unix(socket), Peer::Local))
                }
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(error) if is_of_the_client(error.kind()) => {}
                Err(error) => {
                    tracing::error!("cannot accept a connection: {error}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}

/// An accepted connection that has not been read from.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream, Option<Tls>),
    Unix(UnixStream),
}

async fn accept_tcp(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Whether an error of `accept` means that the client had gone.
fn is_of_the_client(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
