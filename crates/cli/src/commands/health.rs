//! `gannet health`: whether a server says that it is healthy.
//!
//! Invariant: asking takes no longer than the timeout, and reads a bounded answer.

use crate::durations::seconds;
use crate::endpoint_args::EndpointArgs;
use crate::exit::{SilentExit, WrongUsage};
use crate::output;
use crate::runtime::runtime;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Maximum size of an answer.
const MAX_ANSWER: u64 = 64 << 10;

/// Ask a server whether it is healthy
///
/// Asks GET /health at ADDRESS, or else at the addresses of a server with the same settings, all of
/// which must answer. Exits with 0 if the server is healthy and with 1 otherwise, as health checks
/// of containers expect. TLS is not spoken: such a server is asked on its Unix socket.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the server as it prints it, such as http://127.0.0.1:8080 or
    /// unix:/run/gannet/gannet.sock [default: as the options under Listening say]
    #[arg(value_name = "ADDRESS", conflicts_with_all = ["host", "port", "unix"])]
    address: Option<ServerAddress>,
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// Seconds within which the server must answer
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Where a server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ServerAddress {
    /// Host and port, and the path before that of the route.
    Http { authority: String, path: String },
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for ServerAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let Some(rest) = text.strip_prefix("http://") else {
            bail!("expected http://HOST:PORT or unix:PATH, found {text:?}");
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // What would end the line of the request, or begin another part of the address.
        let is_foreign = |c: char| !c.is_ascii_graphic() || "?#@".contains(c);
        if authority.is_empty() || rest.contains(is_foreign) {
            bail!("expected http://HOST:PORT, found {text:?}");
        }
        // The last colon of an IPv6 address is inside its brackets.
        let has_port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let port = if has_port { "" } else { ":80" };
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self::Http { authority: format!("{authority}{port}"), path })
    }
}

impl From<SocketAddr> for ServerAddress {
    /// Where this machine asks a server that listens at `address`.
    fn from(mut address: SocketAddr) -> Self {
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Self::Http { authority: address.to_string(), path: String::new() }
    }
}

impl Display for ServerAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { authority, path } => write!(f, "http://{authority}{path}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let addresses = addresses(args)?;
    let runtime = runtime()?;
    let ask = |address| runtime.block_on(ask_within(args.timeout, address));
    let asked: Vec<_> = addresses.iter().map(|address| (address, ask(address))).collect();
    // The resolver of names may take longer than the timeout.
    runtime.shutdown_background();
    let healthy = asked.iter().all(|(_, answer)| answer.is_ok());
    let entry = |(address, answer): &(&ServerAddress, Result<()>)| {
        let error = answer.as_ref().err().map(|error| format!("{error:#}"));
        json!({ "address": address.to_string(), "healthy": error.is_none(), "error": error })
    };
    let line = |(address, answer): &(&ServerAddress, Result<()>)| match answer {
        Ok(()) => format!("{address}: healthy\n"),
        Err(error) => format!("{address}: not healthy: {error:#}\n"),
    };
    let to_json = || {
        let addresses: Vec<Value> = asked.iter().map(entry).collect();
        json!({ "healthy": healthy, "addresses": addresses })
    };
    output::report(args.json, to_json, || asked.iter().map(line).collect())?;
    if healthy { Ok(()) } else { Err(SilentExit(1).into()) }
}

/// The addresses to ask.
fn addresses(args: &Args) -> Result<Vec<ServerAddress>> {
    if let Some(address) = &args.address {
        return Ok(vec![address.clone()]);
    }
    let endpoint = &args.endpoint;
    let mut addresses = Vec::from_iter(endpoint.unix.clone().map(ServerAddress::Unix));
    if endpoint.listens_on_tcp() {
        if endpoint.port == Some(0) {
            let problem = "--port: expected the port that the server has taken, found 0";
            bail!(WrongUsage::new(problem));
        }
        addresses.extend(endpoint.sockets().into_iter().map(ServerAddress::from));
    }
    Ok(addresses)
}

/// Asks a server; an error says why it is not healthy.
async fn ask_within(limit: Duration, address: &ServerAddress) -> Result<()> {
    let asked = tokio::time::timeout(limit, ask(address)).await;
    asked.unwrap_or_else(|_| bail!("no answer within {} s", limit.as_secs_f64()))
}

async fn ask(address: &ServerAddress) -> Result<()> {
    match address {
        ServerAddress::Http { authority, path } => {
            let stream = TcpStream::connect(authority).await.context("cannot connect")?;
            get(stream, authority, path).await
        }
        ServerAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await.context("cannot connect")?;
            get(stream, "localhost", "").await
        }
    }
}

/// Sends the request over a connection and reads the answer.
async fn get(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
) -> Result<()> {
    let head = format!("GET {path}/health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let mut answer = Vec::new();
    stream.write_all(head.as_bytes()).await.context("the connection broke off")?;
    let read = stream.take(MAX_ANSWER).read_to_end(&mut answer).await;
    // A server may end a connection that it has answered by resetting it.
    if answer.is_empty() {
        read.context("the connection broke off")?;
    }
    check(&String::from_utf8_lossy(&answer))
}

/// Checks that an answer says that the server is healthy.
fn check(answer: &str) -> Result<()> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut words = head.split_ascii_whitespace();
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words.next().filter(|_| is_http).and_then(|word| word.parse::<u16>().ok());
    match status {
        Some(200) => Ok(()),
        Some(status) => {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            let message = body["error"]["message"].as_str().unwrap_or("no message");
            bail!("status {status}: {message}")
        }
        None => bail!("the answer is not HTTP; a server with TLS is asked on its Unix socket"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_a_server_prints() {
        for (text, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://localhost", "http://localhost:80"),
            ("http://[::1]", "http://[::1]:80"),
            ("http://[::1]:99/", "http://[::1]:99"),
            ("http://proxy:99/llm/", "http://proxy:99/llm"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), expected);
        }
        for text in ["", "unix:", "http://", "https://a", "a:80", "http://a b", "http://u@a/?x"] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_on_all_addresses_is_asked_on_this_machine() {
        for (listens, asked) in [
            ("0.0.0.0:1", "http://127.0.0.1:1"),
            ("[::]:1", "http://[::1]:1"),
            ("10.0.0.7:1", "http://10.0.0.7:1"),
        ] {
            let address = ServerAddress::from(listens.parse::<SocketAddr>().unwrap());
            assert_eq!(address.to_string(), asked);
        }
    }

    #[test]
    fn only_an_http_answer_of_200_is_healthy() {
        assert!(check("HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}").is_ok());
        assert!(check("HTTP/1.0 200").is_ok());
        let stopped = "HTTP/1.1 503 Service Unavailable\r\nx: y\r\n\r\n\
                       {\"error\":{\"message\":\"the engine has stopped\"}}";
        let error = check(stopped).unwrap_err().to_string();
        assert_eq!(error, "status 503: the engine has stopped");
        for other in ["", "\u{15}\u{3}\u{3}", "200 OK", "HTTP/1.1", "HTTP/1.1 2000000", "ICY 200"] {
            assert!(check(other).is_err(), "{other:?}");
        }
    }
}
