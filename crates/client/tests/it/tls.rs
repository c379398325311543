//! Connections with TLS.

use crate::scripted::{KEY, PATIENCE, ServerAct, serve};
use client::{RemoteServer, Wait};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const LIST: &str = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}";

/// A server with TLS for the name `localhost`: its port, its certificate, and its requests.
fn server() -> (u16, String, Receiver<String>) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = pair.cert.pem();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![pair.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (ready, port) = channel();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ready.send(listener.local_addr().unwrap().port()).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(mut socket) = acceptor.accept(socket).await else { continue };
                let acts = [ServerAct::Send(LIST.as_bytes().to_vec())];
                serve(&mut socket, &acts, &|request| sender.send(request).is_ok()).await;
            }
        });
    });
    (port.recv().unwrap(), pem, requests)
}

#[test]
fn a_trusted_certificate_is_accepted() {
    let (port, pem, requests) = server();
    let server = RemoteServer::new(&format!("https://localhost:{port}"), Some(KEY)).unwrap();
    let server = server.trusting(pem.as_bytes()).unwrap();
    assert_eq!(server.models(Wait::at_most(PATIENCE)).unwrap(), []);
    let request = requests.recv().unwrap();
    assert!(request.starts_with("GET /v1/models HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(KEY), "{request}");
}

#[test]
fn certificates_of_strangers_and_of_other_names_are_refused() {
    let (port, pem, requests) = server();
    let unknown = RemoteServer::new(&format!("https://localhost:{port}"), Some(KEY)).unwrap();
    let error = unknown.models(Wait::at_most(PATIENCE)).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    let other = RemoteServer::new(&format!("https://127.0.0.1:{port}"), Some(KEY)).unwrap();
    let other = other.trusting(pem.as_bytes()).unwrap();
    let error = other.models(Wait::at_most(PATIENCE)).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert!(requests.try_recv().is_err());
}

#[test]
fn what_is_no_certificate_is_refused() {
    for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let server = RemoteServer::new("https://localhost", None).unwrap();
        assert!(server.trusting(pem.as_bytes()).is_err(), "{pem:?}");
    }
}
