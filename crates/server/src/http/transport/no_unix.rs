//! Unix sockets on systems that have none.

use std::convert::Infallible;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
pub(super) use tokio::net::TcpStream as UnixStream;

/// A Unix socket, which cannot be made.
#[derive(Debug)]
pub struct UnixSocket(Infallible);

impl UnixSocket {
    /// Refuses to listen.
    ///
    /// # Errors
    /// Always.
    pub fn bind(_: impl Into<PathBuf>, _: u32) -> Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "this system has no Unix sockets"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self.0 {}
    }
}

/// Never a connection.
pub(super) async fn accept(_: Option<&UnixSocket>) -> Result<UnixStream> {
    std::future::pending().await
}
