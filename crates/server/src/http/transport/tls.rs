//! TLS from a pair of PEM files, which may be replaced while the server runs.

use crate::http::reload::Reload;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Most bytes of a file.
const MAX_BYTES: u64 = 1 << 20;

/// Why a certificate and its key were refused.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{}: expected {expected} in PEM form, {found}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
        /// What is wrong.
        found: String,
    },
    /// The files do not go together.
    #[error("{} and {}: {problem}", cert.display(), key.display())]
    Pair {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of its key.
        key: PathBuf,
        /// What is wrong.
        problem: rustls::Error,
    },
}

/// A certificate and its key. Clones share them, as they are replaced too.
#[derive(Clone, Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    /// Reads the chain of certificates in the file `cert`, and the private key in `key`.
    ///
    /// # Errors
    /// If a file cannot be read or is not in PEM form, or the two do not belong together.
    pub fn load(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (cert, key) = (cert.into(), key.into());
        let config = Arc::new(RwLock::new(Arc::new(read(&cert, &key)?)));
        Ok(Self { cert, key, config })
    }

    /// Performs the handshake within `limit`.
    pub(super) async fn handshake(
        &self,
        socket: TcpStream,
        limit: Duration,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        tokio::time::timeout(limit, TlsAcceptor::from(config).accept(socket)).await?
    }
}

impl Reload for Tls {
    fn files(&self) -> Vec<&Path> {
        vec![&self.cert, &self.key]
    }

    fn reload(&self) -> Result<String, Box<dyn Error>> {
        let config = Arc::new(read(&self.cert, &self.key)?);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(format!("the certificate of {}", self.cert.display()))
    }
}

fn read(cert: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let certs = certificates(cert)?;
    let private = private_key(key)?;
    let pair = |problem| TlsError::Pair { cert: cert.into(), key: key.into(), problem };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(certs, private)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let expected = "a certificate";
    let bytes = bytes(path)?;
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certs = certs.map_err(|error| pem(path, expected, &error))?;
    if certs.is_empty() {
        return Err(pem(path, expected, &PemError::NoItemsFound));
    }
    Ok(certs)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&bytes(path)?).map_err(|e| pem(path, "a private key", &e))
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let io = |source| TlsError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// The error of a file. The parser's own message is left out, since it may quote the file.
fn pem(path: &Path, expected: &'static str, error: &PemError) -> TlsError {
    let found = match error {
        PemError::NoItemsFound => "found none",
        PemError::MissingSectionEnd { .. } => "found one that does not end",
        _ => "found something else",
    };
    TlsError::Pem { path: path.to_owned(), expected, found: found.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a certificate and its key.
    fn files() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (folder, cert, key)
    }

    fn check_refused(cert: &Path, key: &Path, expected: &str) {
        let error = Tls::load(cert, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn the_file_that_is_wrong_is_named() {
        let (folder, cert, key) = files();
        let none = folder.path().join("none.pem");
        check_refused(&none, &key, "none.pem: No such file");
        check_refused(&cert, &none, "none.pem: No such file");
        check_refused(&key, &key, "key.pem: expected a certificate in PEM form, found none");
        check_refused(&cert, &cert, "cert.pem: expected a private key in PEM form, found none");
        std::fs::write(&none, "-----BEGIN CERTIFICATE-----\nx").unwrap();
        check_refused(&none, &key, "found one that does not end");
        let (_other, _, stranger) = files();
        check_refused(&cert, &stranger, "cert.pem and ");
    }

    #[test]
    fn a_broken_pair_leaves_the_old_one_in_use() {
        let (_folder, cert, key) = files();
        let tls = Tls::load(&cert, &key).unwrap();
        let config = || Arc::clone(&tls.config.read().unwrap());
        let first = config();
        std::fs::write(&key, "no key").unwrap();
        assert!(tls.reload().is_err());
        assert!(Arc::ptr_eq(&first, &config()));
        let (_folder, new_cert, new_key) = files();
        std::fs::copy(new_cert, &cert).unwrap();
        std::fs::copy(new_key, &key).unwrap();
        tls.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &config()));
    }
}
