use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

/// A proxy that sends `answer` to the first connection. The head that it received comes out of the
/// channel.
fn proxy(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sender, receiver) = channel();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|count| count > 0) {
            head.push(byte[0]);
        }
        socket.write_all(answer.as_bytes()).unwrap();
        sender.send(String::from_utf8(head).unwrap()).unwrap();
    });
    (address, receiver)
}

fn through(proxy: &str, url: &str) -> RemoteServer {
    let matcher = Matcher::builder().all(proxy).build();
    RemoteServer::with_proxies(url, Some("sk-0123456789"), &matcher).unwrap()
}

#[test]
fn a_proxy_forwards_requests() {
    let (address, heads) = proxy("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}");
    let server = through(&format!("http://user:word@{address}"), "http://a.example:81");
    assert_eq!(server.models(Wait::at_most(WAIT)).unwrap(), []);
    let head = heads.recv().unwrap().to_lowercase();
    assert!(head.starts_with("get http://a.example:81/v1/models http/1.1\r\n"), "{head}");
    assert!(head.contains("host: a.example:81\r\n"), "{head}");
    assert!(head.contains("authorization: bearer sk-0123456789\r\n"), "{head}");
    // user:word in base 64, in lower case.
    assert!(head.contains("proxy-authorization: basic dxnlcjp3b3jk\r\n"), "{head}");
}

#[test]
fn a_proxy_of_a_tls_server_sees_neither_requests_nor_keys() {
    let (address, heads) = proxy("HTTP/1.1 403 Forbidden\r\n\r\n");
    let server = through(&format!("http://user:word@{address}"), "https://a.example");
    let refused = server.models(Wait::at_most(WAIT)).unwrap_err().to_string();
    assert!(refused.contains(&format!("proxy http://{address}/")), "{refused}");
    let head = heads.recv().unwrap();
    assert!(head.starts_with("CONNECT a.example:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic"), "{head}");
    assert!(!head.contains("Bearer") && !head.contains("/v1"), "{head}");
}

#[test]
fn servers_of_this_machine_are_reached_without_a_proxy() {
    let (address, heads) = proxy("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}");
    // Nothing listens there.
    let server = through("http://127.0.0.1:1", &format!("http://{address}"));
    assert_eq!(server.models(Wait::at_most(WAIT)).unwrap(), []);
    assert!(heads.recv().unwrap().starts_with("GET /v1/models HTTP/1.1\r\n"));
    let refused = through("http://127.0.0.1:1", "http://a.example");
    let refused = refused.models(Wait::at_most(WAIT)).unwrap_err().to_string();
    assert!(refused.contains("proxy http://127.0.0.1:1/"), "{refused}");
}

#[test]
fn proxies_of_other_kinds_are_refused_without_their_passwords() {
    for scheme in ["socks5", "https"] {
        let proxy = format!("{scheme}://user:hunter22@p.example:1080");
        let matcher = Matcher::builder().all(proxy).build();
        let refused = RemoteServer::with_proxies("http://a.example", None, &matcher);
        let refused = format!("{:?}", refused.unwrap_err());
        assert!(refused.contains(scheme) && !refused.contains("hunter22"), "{refused}");
    }
}

#[test]
fn a_connection_that_does_not_stand_in_time_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let mut server = RemoteServer::new(&url, None).unwrap();
    assert_eq!(server.route.connect, Duration::from_secs(10));
    server.route.connect = Duration::from_millis(200);
    // The system accepts connections, and nothing shakes hands.
    let late = server.models(Wait::at_most(WAIT)).unwrap_err().to_string();
    assert!(late.ends_with("no connection after 0.2 s"), "{late}");
}

#[test]
fn debug_output_has_no_keys_and_no_passwords() {
    let server = through("http://user:hunter22@p.example", "http://a.example");
    let shown = format!("{server:?}");
    assert!(shown.contains("p.example"), "{shown}");
    for secret in ["0123456789", "hunter22", "dXNlcjpodW50ZXIyMg"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn streams_and_servers_can_move_to_other_threads() {
    fn check<T: Send>() {}
    check::<RemoteServer>();
    check::<ChatStream>();
}
