//! Where clients connect: TCP ports, with TLS or without, and a Unix socket.

use super::tls::Tls;
use super::unix::{self, UnixSocket, UnixStream};
use crate::http::caller::Peer;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Pause after the system could not accept a connection.
const REST: Duration = Duration::from_millis(500);

/// Where clients connect: TCP ports, with TLS or without, a Unix socket, or both.
#[derive(Debug, Default)]
pub struct Listener {
    /// The TCP ports.
    pub tcp: Vec<TcpListener>,
    /// How the TCP ports are secured.
    pub tls: Option<Tls>,
    /// The Unix socket.
    pub unix: Option<UnixSocket>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp: vec![tcp], ..Self::default() }
    }
}

impl Listener {
    /// The address of its first TCP port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.first()?.local_addr().ok()
    }

    /// Whether every TCP port is one that only this machine reaches.
    pub(crate) fn is_loopback(&self) -> bool {
        let loopback = |tcp: &TcpListener| tcp.local_addr().is_ok_and(|it| it.ip().is_loopback());
        self.tcp.iter().all(loopback)
    }

    /// Accepts the next connection. The future can be dropped while it waits.
    pub(super) async fn accept(&self) -> (Socket, Peer) {
        loop {
            let accepted = tokio::select! {
                accepted = accept_tcp(&self.tcp) => accepted.map(|(socket, address)| {
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
pub(super) enum Socket {
    Tcp(TcpStream, Option<Tls>),
    Unix(UnixStream),
}

/// Accepts a connection of any port; never ends where there is none. The port that is looked at
/// first changes, so that a busy one does not keep others waiting.
async fn accept_tcp(ports: &[TcpListener]) -> std::io::Result<(TcpStream, SocketAddr)> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let first = TURN.fetch_add(1, Ordering::Relaxed) % ports.len().max(1);
    let (before, after) = ports.split_at(first);
    poll_fn(|context| {
        let accepted = after.iter().chain(before).map(|port| port.poll_accept(context));
        accepted.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Whether an error of `accept` means that the client had gone.
fn is_of_the_client(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
