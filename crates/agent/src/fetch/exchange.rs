//! Requests over the network: redirects are followed here, so that each one is checked.
//!
//! Invariant: a connection goes to an address that was checked after the name was resolved, and no
//! name is resolved a second time for the same connection.

use crate::fetch::address::{is_public, shown};
use crate::fetch::error::FetchError;
use crate::fetch::media::MediaType;
use crate::fetch::page::PageUrl;
use flate2::read::GzDecoder;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use ureq::http::{HeaderMap, HeaderName, Response, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, NextTimeout, RustlsConnector, TcpConnector};
use ureq::{Agent, Body};

/// Most bytes of a body, before and after it is decompressed; what follows is cut.
pub(crate) const MAX_BODY_BYTES: usize = 2 << 20;

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// Most bytes of the headers of an answer.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Most addresses of a name that are tried, which is what the HTTP library has place for.
const MAX_ADDRESSES: usize = 16;

/// Bytes of a compressed body that may add nothing to its text.
const MAX_EXTRA_BYTES: u64 = 64 << 10;

/// The time for a connection, with its TLS.
const CONNECT_TIME: Duration = Duration::from_secs(10);

const USER_AGENT: &str = concat!("gannet/", env!("CARGO_PKG_VERSION"));

const ACCEPT: &str = "text/html, application/xhtml+xml, text/plain, text/markdown, \
    application/json, text/*;q=0.9, application/xml;q=0.8, */*;q=0.1";

/// How names are resolved and which addresses are reached.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// The addresses of `HOST:PORT`.
    pub(crate) lookup: fn(&str) -> io::Result<Vec<SocketAddr>>,
    /// A port of this machine that is reached although its address is not public. For tests, which
    /// have servers there.
    pub(crate) local_port: Option<u16>,
}

impl Default for Network {
    fn default() -> Self {
        let lookup = |host: &str| host.to_socket_addrs().map(Iterator::collect);
        Self { lookup, local_port: None }
    }
}

/// The body of an answer, and what is known of it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) url: PageUrl,
    pub(crate) status: u16,
    pub(crate) media: MediaType,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_cut: bool,
}

/// A client for one page: without proxies, redirects and connections that stay open.
pub(crate) fn client(network: &Network, time: Duration) -> Agent {
    let config: Config = Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_idle_connections(0)
        .max_response_header_size(MAX_HEADER_BYTES)
        .user_agent(USER_AGENT)
        .accept(ACCEPT)
        .accept_encoding("gzip")
        .timeout_connect(Some(CONNECT_TIME))
        .timeout_global(Some(time))
        .build();
    let connector = ().chain(TcpConnector::default()).chain(RustlsConnector::default());
    Agent::with_parts(config, connector, PublicResolver(network.clone()))
}

/// The answer at the end of the redirects from `start`.
///
/// # Errors
///
/// If a redirect is refused, the server cannot be reached, or the answer is not text.
pub(crate) fn receive(client: &Agent, start: &PageUrl) -> Result<Received, FetchError> {
    let mut page = start.clone();
    for _ in 0..=MAX_REDIRECTS {
        let answer = client.get(page.as_str()).call().map_err(|error| failed(&page, error))?;
        match location(&answer) {
            Some(location) => page = page.redirected(&location)?,
            None => return read(page, answer),
        }
    }
    Err(FetchError::Redirects { url: start.to_string(), max: MAX_REDIRECTS })
}

/// Where an answer leads to, if it leads anywhere.
fn location(answer: &Response<Body>) -> Option<String> {
    let is_redirect = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = answer.headers().get(LOCATION).filter(|_| is_redirect)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

fn read(page: PageUrl, answer: Response<Body>) -> Result<Received, FetchError> {
    let (head, body) = answer.into_parts();
    let status = head.status.as_u16();
    let media = MediaType::parse(header(&head.headers, &CONTENT_TYPE));
    let not_text = |media: &MediaType, size: String| FetchError::NotText {
        url: page.to_string(),
        status,
        media_type: media.name.clone(),
        size,
    };
    if !media.is_unknown() && !media.is_text() {
        return Err(not_text(&media, size(&head.headers)));
    }
    let coding = header(&head.headers, &CONTENT_ENCODING).unwrap_or_default().trim();
    let limit = MAX_BODY_BYTES as u64 + MAX_EXTRA_BYTES;
    let body = body.into_reader().take(limit);
    let found = match coding.to_ascii_lowercase().as_str() {
        "" | "identity" => whole_or_start(body),
        "gzip" | "x-gzip" => whole_or_start(GzDecoder::new(body)),
        _ => {
            let problem = format!("expected a body as it is or gzip, found {}", token(coding));
            return Err(FetchError::network(page.as_str(), problem));
        }
    };
    let (bytes, is_cut) = found.map_err(|error| FetchError::network(page.as_str(), error))?;
    let media = media.or_guessed(&bytes);
    if !media.is_text() {
        return Err(not_text(&media, size(&head.headers)));
    }
    Ok(Received { url: page, status, media, bytes, is_cut })
}

/// The first [`MAX_BODY_BYTES`] of a body, and whether there are more.
fn whole_or_start(body: impl Read) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    body.take(MAX_BODY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() > MAX_BODY_BYTES;
    bytes.truncate(MAX_BODY_BYTES);
    Ok((bytes, is_cut))
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn size(headers: &HeaderMap) -> String {
    let bytes = header(headers, &CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
    bytes.map_or("size unknown".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// A header's value in few characters.
fn token(value: &str) -> String {
    value.chars().take(40).flat_map(char::escape_debug).collect()
}

/// The error of a request.
fn failed(page: &PageUrl, error: ureq::Error) -> FetchError {
    match error {
        ureq::Error::Other(inner) => match inner.downcast::<PrivateAddress>() {
            Ok(private) => FetchError::Private { host: private.host, address: private.address },
            Err(other) => FetchError::network(page.as_str(), other),
        },
        other => FetchError::network(page.as_str(), other),
    }
}

/// Resolves names to public addresses only.
#[derive(Debug)]
struct PublicResolver(Network);

impl Resolver for PublicResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let invalid = || ureq::Error::BadUri(uri.to_string());
        let host = uri.host().ok_or_else(invalid)?;
        let port = match (uri.port_u16(), uri.scheme_str()) {
            (Some(port), _) => port,
            (None, Some("http")) => 80,
            (None, Some("https")) => 443,
            _ => return Err(invalid()),
        };
        let host = format!("{host}:{port}");
        let found = (self.0.lookup)(&host)?;
        if let Some(refused) = found.iter().find(|address| !self.is_allowed(address)) {
            let address = shown(refused);
            return Err(ureq::Error::Other(Box::new(PrivateAddress { host, address })));
        }
        let mut addresses = self.empty();
        found.into_iter().take(MAX_ADDRESSES).for_each(|address| addresses.push(address));
        if addresses.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(addresses) }
    }
}

impl PublicResolver {
    fn is_allowed(&self, address: &SocketAddr) -> bool {
        let is_local = address.ip().is_loopback() && self.0.local_port == Some(address.port());
        is_local || is_public(address)
    }
}

/// A host that has an address that is not public.
#[derive(Debug, thiserror::Error)]
#[error("{host} has the address {address}, which is not public")]
struct PrivateAddress {
    host: String,
    address: IpAddr,
}
