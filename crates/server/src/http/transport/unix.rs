//! A Unix socket, whose file is removed with it.

use std::fs::{Metadata, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
pub(super) use tokio::net::UnixStream;

/// A socket that listens, under a path.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file, which tell whether it is still this socket's.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens at `path`, which `mode` lets users write to. A socket without a listener is
    /// replaced. Only within a runtime that does input and output.
    ///
    /// # Errors
    /// If another process listens there, the path is another file, or the socket cannot be made.
    pub fn bind(path: impl Into<PathBuf>, mode: u32) -> Result<Self> {
        let path = path.into();
        make_room(&path)?;
        // Under another name first: nobody connects before the mode is set.
        let mut fresh = path.clone().into_os_string();
        fresh.push("~");
        let fresh = PathBuf::from(fresh);
        make_room(&fresh)?;
        let listener = UnixListener::bind(&fresh)?;
        let settled = settle(&fresh, &path, mode);
        let data = settled.inspect_err(|_| _ = std::fs::remove_file(&fresh))?;
        Ok(Self { listener, path, file: number(&data) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn settle(fresh: &Path, path: &Path, mode: u32) -> Result<Metadata> {
    std::fs::set_permissions(fresh, Permissions::from_mode(mode))?;
    std::fs::rename(fresh, path)?;
    std::fs::symlink_metadata(path)
}

/// Removes the socket file of a server that ended without removing it.
fn make_room(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(data) if !data.file_type().is_socket() => {
            Err(Error::new(ErrorKind::AlreadyExists, "expected no file or a socket there"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
            }
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another server listens there")),
        },
    }
}

fn number(data: &Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

impl Drop for UnixSocket {
    /// Removes the file, unless another server has put its own there.
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|d| number(&d) == self.file);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The next connection; never where there is no socket.
pub(super) async fn accept(socket: Option<&UnixSocket>) -> Result<UnixStream> {
    match socket {
        Some(socket) => Ok(socket.listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("gannet.sock")
    }

    #[tokio::test]
    async fn the_file_has_its_mode_and_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixSocket::bind(path(&folder), 0o600).unwrap();
        let data = std::fs::metadata(socket.path()).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_socket_without_a_server_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        drop(std::os::unix::net::UnixListener::bind(path(&folder)).unwrap());
        let first = UnixSocket::bind(path(&folder), 0o600).unwrap();
        let error = UnixSocket::bind(path(&folder), 0o600).unwrap_err();
        assert!(error.to_string().contains("another server listens there"), "{error}");
        drop(first);
    }

    #[tokio::test]
    async fn no_other_file_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(&folder), "precious").unwrap();
        assert!(UnixSocket::bind(path(&folder), 0o600).is_err());
        assert_eq!(std::fs::read_to_string(path(&folder)).unwrap(), "precious");
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_stays() {
        let folder = tempfile::tempdir().unwrap();
        let first = UnixSocket::bind(path(&folder), 0o600).unwrap();
        std::fs::remove_file(path(&folder)).unwrap();
        let second = UnixSocket::bind(path(&folder), 0o600).unwrap();
        drop(first);
        assert!(second.path().exists());
    }
}
