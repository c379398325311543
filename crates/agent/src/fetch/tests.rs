//! Pages from scripted servers of this machine.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};

const LIMIT: usize = exchange::MAX_BODY_BYTES;

/// Starts a server that carries out `script` for each request, and returns its port.
fn serve(script: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                match stream.read(&mut byte) {
                    Ok(1) => head.push(byte[0]),
                    _ => break,
                }
            }
            // Clients end connections when they have enough.
            let _ = script(&String::from_utf8(head).unwrap(), &mut stream);
        }
    });
    port
}

/// A server that always answers the same.
fn answering(head: &str, body: &[u8]) -> u16 {
    let answer = [head.as_bytes(), b"\r\n\r\n", body].concat();
    serve(move |_, stream| stream.write_all(&answer))
}

fn ok(headers: &str, body: &[u8]) -> u16 {
    let length = body.len();
    answering(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{headers}"), body)
}

/// Resolves names that only tests have.
fn lookup(host: &str) -> io::Result<Vec<SocketAddr>> {
    static IS_CHANGED: AtomicBool = AtomicBool::new(false);
    let (name, port) = host.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let all = |addresses: &[&str]| {
        addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect()
    };
    Ok(match name {
        "page.example" | "www.page.example" | "other.example" => all(&["127.0.0.1"]),
        "mixed.example" => all(&["1.1.1.1", "2606:4700::1", "10.0.0.7"]),
        "empty.example" => Vec::new(),
        "missing.example" => return Err(io::Error::other("no such name")),
        "changing.example" if IS_CHANGED.swap(true, Ordering::SeqCst) => all(&["10.0.0.8"]),
        "changing.example" => all(&["127.0.0.1"]),
        "slow.example" => {
            sleep(Duration::from_millis(1500));
            Vec::new()
        }
        _ => host.to_socket_addrs()?.collect(),
    })
}

fn fetch(port: u16) -> Fetch {
    let network = Network { lookup, local_port: Some(port) };
    Fetch { network, ..Fetch::default() }
}

fn get(port: u16) -> Result<Fetched, FetchError> {
    get_at(port, "page.example", "/")
}

fn get_at(port: u16, host: &str, path: &str) -> Result<Fetched, FetchError> {
    fetch(port).get(&format!("http://{host}:{port}{path}"), || false)
}

#[test]
fn text_comes_as_it_is() {
    let port = ok("Content-Type: text/plain; charset=latin1", b"caf\xe9 <p>");
    let expected = Fetched {
        url: format!("http://page.example:{port}/"),
        status: 200,
        media_type: "text/plain".to_owned(),
        text: "café <p>".to_owned(),
        is_cut: false,
    };
    assert_eq!(get(port).unwrap(), expected);
    let json = get(ok("Content-Type: application/json", b"{\"a\": 1}")).unwrap();
    assert_eq!((json.text.as_str(), json.is_success()), ("{\"a\": 1}", true));
}

#[test]
fn html_comes_as_text() {
    let page = get(ok("Content-Type: text/html", b"<h1>A</h1><p>b <a href=/c>d</a>")).unwrap();
    assert_eq!((page.media_type.as_str(), page.text.as_str()), ("text/html", "# A\n\nb [d](/c)\n"));
    assert_eq!(get(ok("X: y", b"<!doctype html><p>b")).unwrap().text, "b\n");
}

#[test]
fn requests_say_little() {
    let port = serve(|head, stream| {
        let length = head.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nSet-Cookie: a=b\r\n\r\n{head}"
        )
    });
    let head = get_at(port, "page.example", "/x?y#z").unwrap().text.to_ascii_lowercase();
    assert!(head.starts_with("get /x?y http/1.1\r\n"), "{head}");
    let mut names: Vec<&str> =
        head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "host", "user-agent"], "{head}");
    assert!(head.contains("user-agent: gannet/") && head.contains("accept: text/html, "), "{head}");
    let config = client(&Network::default(), MAX_TIME);
    assert!(config.config().proxy().is_none());
}

/// A server whose page `/N` redirects to a location.
fn redirecting(locations: &'static [&'static str]) -> u16 {
    serve(|head, stream| {
        let index: usize = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap_or(usize::MAX);
        let host = head.split("ost: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        let port = host.rsplit(':').next().unwrap();
        match locations.get(index) {
            Some(location) => {
                let location = location.replace("PORT", port);
                write!(stream, "HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\nmoved")
            }
            None => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend"),
        }
    })
}

#[test]
fn redirects_are_followed_on_the_same_site() {
    let port = redirecting(&["1", "//www.page.example:PORT/2", "/end?x"]);
    let page = get_at(port, "page.example", "/0").unwrap();
    assert_eq!(page.url, format!("http://www.page.example:{port}/end?x"));
    assert_eq!(page.text, "end");
    let loops = get_at(redirecting(&["/0"]), "page.example", "/0");
    assert!(matches!(loops, Err(FetchError::Redirects { max: 5, .. })), "{loops:?}");
}

#[test]
fn redirects_elsewhere_are_errors_that_name_the_place() {
    let port = redirecting(&["http://other.example:PORT/x", "http://127.0.0.1:PORT/", "file:///x"]);
    let check = |path: &str, expected: &str| {
        let found = get_at(port, "page.example", path).unwrap_err().to_string();
        assert!(found.contains(&expected.replace("PORT", &port.to_string())), "{found}");
    };
    check("/0", "redirects to http://other.example:PORT/x,");
    check("/1", "redirects to http://127.0.0.1:PORT/,");
    check("/2", "file:///x: expected the scheme http or https");
}

#[test]
fn every_redirect_is_resolved_and_checked() {
    let port = redirecting(&["/1"]);
    let found = get_at(port, "changing.example", "/0").unwrap_err();
    let expected = FetchError::Private {
        host: format!("changing.example:{port}"),
        address: [10, 0, 0, 8].into(),
    };
    assert_eq!(found, expected);
}

#[test]
fn addresses_that_are_not_public_are_not_connected_to() {
    static IS_REACHED: AtomicBool = AtomicBool::new(false);
    let port = serve(|_, stream| {
        IS_REACHED.store(true, Ordering::SeqCst);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    });
    let other_port = fetch(if port == 1 { 2 } else { 1 });
    for host in [
        "127.0.0.1",
        "localhost",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "mixed.example",
        "page.example",
    ] {
        for fetch in [&Fetch::default(), &other_port] {
            let found = fetch.get(&format!("http://{host}:{port}/"), || false);
            // The resolver of the system does not know the names of tests.
            let is_unknown = host.ends_with(".example") && fetch.network.local_port.is_none();
            let is_private = matches!(found, Err(FetchError::Private { .. }));
            assert!(is_private || is_unknown && found.is_err(), "{host}: {found:?}");
        }
    }
    assert!(!IS_REACHED.load(Ordering::SeqCst));
    assert!(get(port).is_ok() && IS_REACHED.load(Ordering::SeqCst));
}

#[test]
fn https_is_never_sent_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut start = [0; 3];
        stream.read_exact(&mut start).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
        start
    });
    let found = fetch(port).get(&format!("https://page.example:{port}/"), || false);
    assert!(matches!(found, Err(FetchError::Network { .. })), "{found:?}");
    // The start of a greeting of TLS.
    assert_eq!(server.join().unwrap(), [22, 3, 1]);
}

#[test]
fn names_without_addresses_are_errors() {
    for host in ["empty.example", "missing.example"] {
        let found = get_at(1, host, "/");
        assert!(matches!(found, Err(FetchError::Network { .. })), "{host}: {found:?}");
    }
}

fn check_cut(found: Result<Fetched, FetchError>) {
    let page = found.unwrap();
    assert!(page.is_cut && page.text.len() == LIMIT, "{} {}", page.is_cut, page.text.len());
    assert!(page.report().contains("cut: "));
}

#[test]
fn large_bodies_are_cut() {
    let large = vec![b'x'; LIMIT + 1];
    check_cut(get(ok("Content-Type: text/plain", &large)));
    let whole = get(ok("Content-Type: text/plain", &large[1..])).unwrap();
    assert!(!whole.is_cut && whole.text.len() == LIMIT);
    let endless = |head: &'static str, part: &'static [u8]| {
        serve(move |_, stream| {
            stream.write_all(head.as_bytes())?;
            loop {
                stream.write_all(part)?;
            }
        })
    };
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
    let leak = |end: &str| -> &'static str { Box::leak(format!("{text}{end}").into_boxed_str()) };
    check_cut(get(endless(leak("\r\n"), &[b'x'; 8192])));
    check_cut(get(endless(leak("Transfer-Encoding: chunked\r\n\r\n"), b"4\r\nabcd\r\n")));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_bodies_are_limited_before_and_after() {
    let headers = "Content-Type: text/plain\r\nContent-Encoding: gzip";
    assert_eq!(get(ok(headers, &gzip(b"text"))).unwrap().text, "text");
    let bomb = gzip(&vec![b'x'; 64 << 20]);
    assert!(bomb.len() < LIMIT / 8);
    check_cut(get(ok(headers, &bomb)));
    for (headers, body) in [
        (headers, b"no gzip".as_slice()),
        (headers, &gzip(b"a text that ends too early")[..20]),
        ("Content-Type: text/plain\r\nContent-Encoding: br", b"x"),
    ] {
        let found = get(ok(headers, body));
        assert!(matches!(found, Err(FetchError::Network { .. })), "{headers}: {found:?}");
    }
}

#[test]
fn compressed_bodies_without_content_are_limited() {
    let port = serve(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        stream.write_all(&gzip(b"")[..10])?;
        let empty_blocks = [0, 0, 0, 0xff, 0xff].repeat(10_000);
        loop {
            stream.write_all(&empty_blocks)?;
        }
    });
    let found = get(port);
    assert!(matches!(found, Err(FetchError::Network { .. })), "{found:?}");
}

#[test]
fn a_body_that_ends_early_is_an_error() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9";
    let found = get(answering(head, b"x"));
    assert!(matches!(found, Err(FetchError::Network { .. })), "{found:?}");
}

/// A server that never ends its answer, and says when its client has closed the connection.
fn slow(head: &'static str) -> (u16, Receiver<()>) {
    let (sender, receiver) = channel();
    let port = serve(move |_, stream| {
        stream.write_all(head.as_bytes())?;
        while stream.write_all(b"x").is_ok() {
            sleep(Duration::from_millis(20));
        }
        let _ = sender.send(());
        Ok(())
    });
    (port, receiver)
}

const SLOW: [&str; 2] =
    ["HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", "HTTP/1.1 200 OK\r\nX"];

#[test]
fn a_cancelled_call_ends_and_closes_its_connection() {
    for head in SLOW {
        let (port, closed) = slow(head);
        let looks = Cell::new(0);
        let is_cancelled = || {
            looks.set(looks.get() + 1);
            looks.get() > 4
        };
        let found = fetch(port).get(&format!("http://page.example:{port}/"), is_cancelled);
        assert!(matches!(found, Err(FetchError::Cancelled { .. })), "{found:?}");
        closed.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}

#[test]
fn a_call_that_takes_too_long_ends_and_closes_its_connection() {
    for head in SLOW {
        let (port, closed) = slow(head);
        let fetch = Fetch { time: Duration::from_millis(300), ..fetch(port) };
        let found = fetch.get(&format!("http://page.example:{port}/"), || false);
        assert!(matches!(found, Err(FetchError::TimedOut { .. })), "{found:?}");
        closed.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}

#[test]
fn threads_that_wait_for_names_are_limited() {
    let fetch = fetch(1);
    let looks = Cell::new(0);
    for _ in 0..MAX_THREADS {
        let found = fetch.get("http://slow.example/", || looks.replace(looks.get() + 1) % 2 == 1);
        assert!(matches!(found, Err(FetchError::Cancelled { .. })), "{found:?}");
    }
    let found = fetch.get("http://slow.example/", || false).unwrap_err().to_string();
    assert!(found.contains("8 earlier calls have not ended"), "{found}");
}

#[test]
fn errors_of_servers_are_answers() {
    let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\nContent-Type: text/plain";
    let page = get(answering(head, b"no page")).unwrap();
    assert!(!page.is_success());
    assert!(page.report().ends_with("/ (HTTP status 404, text/plain)\n\nno page"), "{page:?}");
    let page = get(answering("HTTP/1.1 302 Found\r\nContent-Length: 0", b"")).unwrap();
    assert_eq!((page.status, page.text.as_str()), (302, ""));
}

#[test]
fn other_types_are_errors_that_name_type_and_size() {
    let check = |port: u16, expected: &str| {
        let found = get(port).unwrap_err().to_string();
        assert!(found.ends_with(expected), "{found}");
    };
    check(ok("Content-Type: image/png", b"\x89PNG"), "found image/png (4 bytes; HTTP status 200)");
    check(ok("X: y", b"\x7fELF\0"), "found application/octet-stream (5 bytes; HTTP status 200)");
    let head = "HTTP/1.0 500 X\r\nContent-Type: application/zip";
    check(answering(head, b"x"), "found application/zip (size unknown; HTTP status 500)");
}

#[test]
fn floods_of_headers_are_errors() {
    let many = format!("HTTP/1.1 200 OK{}", "\r\nX: y".repeat(5000));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(1 << 20));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000);
    for head in [many, long, interim, "\0".repeat(1000), "HTTP/9.9 999".to_owned(), String::new()] {
        let found = get(answering(&head, b"x"));
        let start = &head[..head.len().min(20)];
        assert!(matches!(found, Err(FetchError::Network { .. })), "{start:?}: {found:?}");
    }
}

#[test]
fn urls_are_checked_before_anything_is_sent() {
    for url in ["", "ftp://page.example", "http://u:p@page.example/", "file:///etc/passwd"] {
        let found = fetch(1).get(url, || panic!("waited"));
        assert!(matches!(found, Err(FetchError::Url { .. })), "{url}: {found:?}");
    }
}
