//! Messages to the service manager that started the process, as systemd's `sd_notify` sends them:
//! datagrams to the Unix socket that `NOTIFY_SOCKET` names.
//!
//! Invariant: without such a socket nothing is sent, and a failure costs a warning.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// What a service manager learns of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceState {
    /// Requests are answered from now on.
    Ready,
    /// The server ends; running requests finish first.
    Stopping,
}

impl ServiceState {
    fn message(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1",
            Self::Stopping => b"STOPPING=1",
        }
    }
}

/// Tells the service manager, if there is one.
pub(super) fn notify(state: ServiceState) {
    let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!("{SOCKET}: cannot tell the service manager {state:?}: {error}");
    }
}

fn send(socket: &OsStr, state: ServiceState) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.message(), &address(socket)?).map(drop)
}

/// The address of a path, or of a name in Linux's abstract namespace, which begins with `@`.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name)
        }
        [b'/', ..] => SocketAddr::from_pathname(socket),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("expected an absolute path or @name, found {socket:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &OsStr, at: &SocketAddr) -> Vec<u8> {
        let receiver = UnixDatagram::bind_addr(at).unwrap();
        send(socket, ServiceState::Ready).unwrap();
        let mut message = [0; 64];
        let length = receiver.recv(&mut message).unwrap();
        message[..length].to_vec()
    }

    #[test]
    fn a_message_reaches_a_socket_by_path_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let at = SocketAddr::from_pathname(&path).unwrap();
        assert_eq!(received(path.as_os_str(), &at), b"READY=1");
        #[cfg(target_os = "linux")]
        {
            let name = format!("@gannet-notify-{}", std::process::id());
            let at = address(name.as_ref()).unwrap();
            assert_eq!(received(name.as_ref(), &at), b"READY=1");
        }
    }

    #[test]
    fn other_addresses_and_missing_sockets_are_errors() {
        for wrong in ["notify", "vsock:2:1234", "/no/such/socket"] {
            assert!(send(wrong.as_ref(), ServiceState::Stopping).is_err(), "{wrong}");
        }
    }
}
