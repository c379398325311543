//! Connections: TLS, Unix sockets, and clients that hold them without use.

use crate::harness::{
    Server, chat_body, error_names, events, keep_errors, listener, ok, raw, until,
};
use crate::support::Act;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use server::{Listener, ServerOptions, Tls, UnixSocket};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const SHORT: Duration = Duration::from_millis(400);

/// Puts a new certificate and its key where `paths` say.
fn make_pair([cert, key]: &[PathBuf; 2]) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(cert, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
}

fn pair_in(folder: &Path) -> [PathBuf; 2] {
    let pair = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    make_pair(&pair);
    pair
}

async fn tls_server(pair: &[PathBuf; 2]) -> Server {
    let options = ServerOptions { reload: Duration::from_millis(10), ..ServerOptions::default() };
    tls_server_with(pair, options).await
}

async fn tls_server_with([cert, key]: &[PathBuf; 2], options: ServerOptions) -> Server {
    let listener = Listener { tls: Some(Tls::load(cert, key).unwrap()), ..listener().into() };
    Server::start_on(listener, [Act::Say("x")], 4, options).await
}

/// A connection by a client that trusts nothing but the certificate in this file.
async fn connect(addr: SocketAddr, trusted: &Path) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(addr).await?).await
}

#[tokio::test]
async fn answers_come_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair_in(folder.path());
    let mut server = tls_server(&pair).await;
    let body = chat_body(json!({"stream": true})).to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = raw(connect(server.addr, &pair[0]).await.unwrap(), &request).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[DONE]"), "{answer}");
    server.shut_down();
    server.ended().await.unwrap();
}

#[tokio::test]
async fn a_new_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair_in(folder.path());
    keep_errors();
    let server = tls_server(&pair).await;
    let old = folder.path().join("old.pem");
    std::fs::copy(&pair[0], &old).unwrap();
    std::fs::write(&pair[1], "no key").unwrap();
    error_names(&pair[1]).await;
    connect(server.addr, &old).await.expect("a broken pair is not used");
    make_pair(&pair);
    until("the new pair is used", async || connect(server.addr, &pair[0]).await.is_ok()).await;
    assert!(connect(server.addr, &old).await.is_err());
}

#[tokio::test]
async fn who_is_slow_to_shake_hands_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair_in(folder.path());
    let mut server = tls_server(&pair).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.addr).await.unwrap());
    }
    let answer = raw(connect(server.addr, &pair[0]).await.unwrap(), HEALTH).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let plain = raw(TcpStream::connect(server.addr).await.unwrap(), HEALTH).await;
    assert!(!plain.contains("HTTP/1.1 200"), "{plain}");
    // Nor do they hold up its end.
    server.shut_down();
    server.ended().await.unwrap();
}

#[tokio::test]
async fn who_never_shakes_hands_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair_in(folder.path());
    let options = ServerOptions { header_timeout: SHORT, ..ServerOptions::default() };
    let server = tls_server_with(&pair, options).await;
    assert_eq!(raw(TcpStream::connect(server.addr).await.unwrap(), "\u{16}").await, "");
}

#[tokio::test]
async fn a_unix_socket_answers_besides_the_port_or_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (number, with_port) in [false, true].into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.sock"));
        let socket = UnixSocket::bind(&path, 0o600).unwrap();
        let listener = match with_port {
            true => Listener { unix: Some(socket), ..listener().into() },
            false => Listener { unix: Some(socket), ..Listener::default() },
        };
        let options = ServerOptions::default();
        let mut server = Server::start_on(listener, [Act::Say("x")], 4, options).await;
        let answer = raw(UnixStream::connect(&path).await.unwrap(), HEALTH).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        if with_port {
            ok(server.get("/health").await).await;
        }
        server.shut_down();
        server.ended().await.unwrap();
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn heads_that_come_byte_by_byte_are_cut_off() {
    let options = ServerOptions { header_timeout: SHORT, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    let started = Instant::now();
    let head = "GET /health HTTP/1.1\r\nx-slow: ".bytes().chain(std::iter::repeat(b'a'));
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    for byte in head {
        pace.tick().await;
        if socket.write_all(&[byte]).await.is_err() {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "it goes on for ever");
    }
    ok(server.get("/health").await).await;
}

#[tokio::test]
async fn connections_without_requests_are_closed() {
    let options = ServerOptions { header_timeout: SHORT, ..ServerOptions::default() };
    let server = Server::start_with([Act::Pause(SHORT * 2), Act::Say("x")], 4, options).await;
    let silent = TcpStream::connect(server.addr).await.unwrap();
    assert_eq!(raw(silent, "").await, "");
    let used = TcpStream::connect(server.addr).await.unwrap();
    let answer = raw(used, &HEALTH.replace("connection: close\r\n", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // An answer may take longer than its head.
    events(server.post("/v1/chat/completions", &chat_body(json!({"stream": true}))).await).await;
}

#[tokio::test]
async fn large_heads_are_refused() {
    let options = ServerOptions { header_limit: 8192, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    let get = |bytes: usize| {
        let request = server.client.get(server.url("/health"));
        request.header("x-large", "a".repeat(bytes)).send()
    };
    assert_eq!(get(4000).await.unwrap().status(), 200);
    assert_eq!(get(8000).await.unwrap().status(), 200);
    // What HTTP is read with takes more than the limit.
    assert_eq!(get(9000).await.unwrap().status(), 431);
    assert_eq!(get(20_000).await.unwrap().status(), 431);
}

#[tokio::test]
async fn more_connections_than_allowed_are_told_so() {
    let options = ServerOptions { connections: 2, ..ServerOptions::default() };
    let server = Server::start_with([Act::Say("x")], 4, options).await;
    let connect = || TcpStream::connect(server.addr);
    let (mut first, second) = (connect().await.unwrap(), connect().await.unwrap());
    first.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    let _third = connect().await.unwrap();
    let refused = raw(connect().await.unwrap(), HEALTH).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("too_many_connections") && refused.contains("retry-after: 1"));
    drop(second);
    let started = Instant::now();
    while !raw(connect().await.unwrap(), HEALTH).await.starts_with("HTTP/1.1 200") {
        assert!(started.elapsed() < Duration::from_secs(10), "the place is never free again");
    }
}
