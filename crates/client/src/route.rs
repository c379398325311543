//! Connections to a server: directly, through a proxy, with TLS.
//!
//! HTTP is hyper's and not reqwest's: with TLS, reqwest needs crates that nothing else here uses,
//! and all its clients panic in a process that has not chosen a provider of cryptography.
//!
//! Invariant: servers on this machine are reached without a proxy.

use super::error::ClientError;
use super::origin::cause;
use super::url::BaseUrl;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HeaderValue;
use hyper::rt::{Read, Write};
use hyper::{Uri, http};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

/// Maximum time until a connection stands, of TCP, of the proxy and of TLS together.
const CONNECT: Duration = Duration::from_secs(10);

/// How a server is reached.
#[derive(Clone, Debug)]
pub(super) struct Route {
    base: BaseUrl,
    proxy: Option<Proxy>,
    roots: Arc<RootCertStore>,
    /// Maximum time until a connection stands.
    pub connect: Duration,
}

/// A proxy that is reached by plain HTTP.
#[derive(Clone, Debug)]
struct Proxy {
    address: Uri,
    authorization: Option<HeaderValue>,
}

impl Route {
    /// The route to `base` with the proxies of `matcher`.
    ///
    /// # Errors
    /// If the proxy is not one of plain HTTP.
    pub fn new(base: &BaseUrl, matcher: &Matcher) -> Result<Self, ClientError> {
        let proxy = if base.is_loopback() { None } else { Proxy::of(base, matcher)? };
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        Ok(Self { base: base.clone(), proxy, roots: Arc::new(roots), connect: CONNECT })
    }

    /// Trusts the certificates of a PEM file in addition.
    ///
    /// # Errors
    /// If there is no certificate in it, or one cannot be read.
    pub fn trust(&mut self, pem: &[u8]) -> Result<(), ClientError> {
        let refused = |problem: String| ClientError::Setting {
            subject: "the certificates".to_owned(),
            problem,
        };
        let (roots, mut added) = (Arc::make_mut(&mut self.roots), 0);
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
            added += 1;
        }
        match added {
            0 => Err(refused("expected certificates in PEM, found none".to_owned())),
            _ => Ok(()),
        }
    }

    /// The target of a request and, for a proxy that sees requests, what authorizes it.
    pub fn target(&self, route: &str) -> (String, Option<HeaderValue>) {
        match &self.proxy {
            Some(proxy) if !self.base.tls => (self.base.url(route), proxy.authorization.clone()),
            _ => (self.base.path(route), None),
        }
    }

    /// The value of `Host`.
    pub fn host(&self) -> &str {
        self.base.authority.as_str()
    }

    /// Opens a connection, which a task of the current runtime drives.
    ///
    /// # Errors
    /// The reason why there is none.
    pub async fn open(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let late = |_| format!("no connection after {} s", self.connect.as_secs_f64());
        tokio::time::timeout(self.connect, self.connection()).await.map_err(late)?
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let socket = self.socket().await?;
        if !self.base.tls {
            return speak(socket).await;
        }
        let host = self.base.host().to_owned();
        let name = ServerName::try_from(host).map_err(|_| "the host is no name for TLS")?;
        let tls = TlsConnector::from(Arc::new(self.tls()?));
        let stream = tls.connect(name, socket.into_inner()).await;
        speak(TokioIo::new(stream.map_err(|error| cause(&error))?)).await
    }

    /// A connection to the server, or to a proxy that forwards to it.
    async fn socket(&self) -> Result<TokioIo<TcpStream>, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A host with several addresses has a part of the time for each.
        tcp.set_connect_timeout(Some(self.connect));
        let scheme = if self.base.tls { "https" } else { "http" };
        let whole = format!("{scheme}://{}/", self.base.authority);
        let server: Uri =
            whole.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        let Some(proxy) = &self.proxy else {
            return tcp.oneshot(server).await.map_err(|error| cause(&error));
        };
        let at = |problem| format!("proxy {}: {problem}", proxy.address);
        if !self.base.tls {
            return tcp.oneshot(proxy.address.clone()).await.map_err(|error| at(cause(&error)));
        }
        let mut tunnel = Tunnel::new(proxy.address.clone(), tcp);
        if let Some(authorization) = &proxy.authorization {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        tunnel.oneshot(server).await.map_err(|error| at(cause(&error)))
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.with_root_certificates(self.roots.clone()).with_no_client_auth())
    }
}

impl Proxy {
    fn of(base: &BaseUrl, matcher: &Matcher) -> Result<Option<Self>, ClientError> {
        let Some(found) = base.url("").parse().ok().and_then(|url| matcher.intercept(&url)) else {
            return Ok(None);
        };
        let address = found.uri().clone();
        if address.scheme_str() != Some("http") {
            let problem = "expected a proxy with http://".to_owned();
            return Err(ClientError::Setting { subject: format!("proxy {address}"), problem });
        }
        Ok(Some(Self { address, authorization: found.basic_auth().cloned() }))
    }
}

/// Speaks HTTP/1.1 over a connection.
async fn speak<T: Read + Write + Unpin + Send + 'static>(
    io: T,
) -> Result<SendRequest<Full<Bytes>>, String> {
    let (sender, connection) = handshake(io).await.map_err(|error| cause(&error))?;
    // Its errors come from the request and from the body as well.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
