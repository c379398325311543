//! A request of HTTP on a connection of its own, which ends with the response.
//!
//! Nothing is followed or kept: no redirects, no proxies, no cookies. Certificates are checked
//! against the authorities that Mozilla trusts.

use super::fault::LinkFault;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Where requests go.
#[derive(Clone)]
pub(super) struct WebEndpoint {
    host: String,
    port: u16,
    authority: String,
    path: String,
    tls: Option<TlsConnector>,
}

impl Debug for WebEndpoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebEndpoint").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// A response that arrives; the connection is closed when this is dropped.
#[derive(Debug)]
pub(super) struct WebResponse {
    response: Response<Incoming>,
    _connection: AbortOnDrop,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl WebEndpoint {
    /// The endpoint at `uri`, which has a host.
    ///
    /// # Errors
    ///
    /// If there is no TLS for `https`.
    pub(super) fn new(uri: &Uri) -> Result<Self, LinkFault> {
        let is_secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: path.to_owned(),
            tls: if is_secure { Some(tls()?) } else { None },
        })
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// If the host cannot be reached or does not answer by HTTP.
    pub(super) async fn send(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<WebResponse, LinkFault> {
        let mut request = Request::builder().method(method).uri(&self.path);
        request = request.header("host", &self.authority);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| failed("a request cannot be written", &error))?;
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| failed("it cannot be reached", &error))?;
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return exchange(stream, request).await };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| failed("its host has no name for TLS", &error))?;
        let stream = tls.connect(name, stream).await;
        exchange(stream.map_err(|error| failed("TLS fails", &error))?, request).await
    }
}

fn tls() -> Result<TlsConnector, LinkFault> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions();
    let config = config.map_err(|error| failed("there is no TLS", &error))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<WebResponse, LinkFault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let not_http = |error: hyper::Error| failed("it does not answer by HTTP", &error);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(not_http)?;
    let connection = AbortOnDrop(tokio::spawn(async {
        let _ = connection.await;
    }));
    // An older server may close the connection of a request that it does not know.
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| LinkFault::NoMessage(not_http(error).text()))?;
    Ok(WebResponse { response, _connection: connection })
}

impl WebResponse {
    /// The status.
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// A field of the head; `None` if it is none or not ASCII.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// If the connection breaks.
    pub(super) async fn next_bytes(&mut self) -> Result<Option<Bytes>, LinkFault> {
        loop {
            match self.response.body_mut().frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(failed("its answer breaks off", &error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// If it has over `most` bytes or the connection breaks.
    pub(super) async fn body(&mut self, most: usize) -> Result<Vec<u8>, LinkFault> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next_bytes().await? {
            if body.len() + bytes.len() > most {
                return Err(LinkFault::Failed(format!("its answer has over {most} bytes")));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }
}

/// A fault with all reasons that an error gives.
fn failed(what: &str, error: &dyn Error) -> LinkFault {
    let mut text = format!("{what}: {error}");
    let mut reason = error.source();
    while let Some(error) = reason {
        text.push_str(&format!(": {error}"));
        reason = error.source();
    }
    LinkFault::Failed(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::generate_simple_self_signed;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    fn connector(roots: RootCertStore) -> TlsConnector {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    #[tokio::test]
    async fn a_certificate_counts_for_its_host_alone() {
        let signed = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = signed.cert.der().clone();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
            }
        });
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let send = |host: &str| {
            let uri: Uri = format!("https://{host}:{port}/").parse().unwrap();
            let mut endpoint = WebEndpoint::new(&uri).unwrap();
            endpoint.tls = Some(connector(roots.clone()));
            async move { endpoint.send("POST", &[], Vec::new()).await }
        };
        let body = send("localhost").await.unwrap().body(2).await.unwrap();
        assert_eq!(body, b"hi");
        let other = send("127.0.0.1").await.unwrap_err();
        assert!(matches!(other, LinkFault::Failed(text) if text.starts_with("TLS fails")));
    }
}
