//! Requests that a browser sends on behalf of other sites, which the server refuses.
//!
//! A browser lets every page send requests to any server and open WebSockets, and keeps only the
//! answers of requests from it; pages of a name whose address is changed to this machine's read
//! the answers too. A server with keys is not reached so, because no page has one. One without
//! keys refuses what is not safe from origins other than its own and the one that is allowed; if
//! it listens on this machine alone, it also refuses names that are not this machine's.
//!
//! Invariant: the check stands before keys, limits and the body.

use crate::http::app::App;
use crate::http::caller::Peer;
use crate::http::error::HttpError;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use sysinfo::System;

/// Stands for every origin of this machine.
pub(crate) const LOCALHOST: &str = "localhost";

/// What browsers say of the site of the page that sends a request.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether an origin is one of this machine, over HTTP or TLS, at any port.
pub(crate) fn is_local(origin: &HeaderValue) -> bool {
    let is_local = |origin: &str| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
        let rest =
            ["localhost", "127.0.0.1", "[::1]"].iter().find_map(|name| host.strip_prefix(name))?;
        let port = rest.strip_prefix(':').map(str::parse::<u16>);
        Some(rest.is_empty() || port.is_some_and(|port| port.is_ok()))
    };
    origin.to_str().ok().and_then(is_local).unwrap_or(false)
}

/// Lets a request pass if no other site can have sent it. Requests that came over no connection
/// are not checked.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let checked = match request.extensions().get() {
        Some(peer) => check(&app, *peer, &request),
        None => Ok(()),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(app: &App, peer: Peer, request: &Request) -> Result<(), HttpError> {
    let (headers, open) = (request.headers(), app.options.keys.is_open());
    let target = target(request)?;
    // A browser reaches no Unix socket.
    if open && app.loopback && peer != Peer::Local {
        check_host(target.as_ref(), &app.options.allowed_hosts)?;
    }
    // What a browser sends to open a WebSocket has the method GET.
    let changes = !request.method().is_safe() && open;
    if changes || headers.contains_key(header::UPGRADE) {
        check_origin(headers, target.as_ref(), app.options.cors_origin.as_deref())?;
    }
    Ok(())
}

/// The host and the port that a request is for; `None` where a request of HTTP/1.0 names none.
///
/// Source: RFC 9112, 3.2. A target with a host takes precedence over the header `Host`.
fn target(request: &Request) -> Result<Option<Authority>, HttpError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, further) = (hosts.next(), hosts.next());
    let problem = match host {
        None if request.version() >= Version::HTTP_11 => "is missing",
        _ if further.is_some() => "is there more than once",
        Some(host) if !host.is_empty() && authority(host).is_none() => "holds no host",
        _ => "",
    };
    if !problem.is_empty() {
        let message = format!("the header Host {problem}");
        return Err(HttpError::request(StatusCode::BAD_REQUEST, message).with_code("invalid_host"));
    }
    let own = request.uri().authority().cloned();
    Ok(own.or_else(|| host.and_then(authority)))
}

/// `host` as a host with or without a port.
fn authority(host: &HeaderValue) -> Option<Authority> {
    let authority = Authority::try_from(host.as_bytes()).ok()?;
    let port = authority.as_str().strip_prefix(authority.host())?;
    let number = port.strip_prefix(':').map(|port| port.is_empty() || port.parse::<u16>().is_ok());
    (!authority.host().is_empty() && number.unwrap_or(port.is_empty())).then_some(authority)
}

/// Refuses a name that another machine may give this one: all but addresses, `localhost`, the
/// machine's own name and those `allowed`. A request without a name comes from no browser.
fn check_host(target: Option<&Authority>, allowed: &[String]) -> Result<(), HttpError> {
    let Some(target) = target else { return Ok(()) };
    let host = name(target.host());
    let own = || System::host_name().is_some_and(|own| name(&own) == host);
    if is_address(&host)
        || is_localhost(&host)
        || allowed.iter().any(|it| name(it) == host)
        || own()
    {
        return Ok(());
    }
    let message = format!("the host {host:?} is not known; --allowed-host names further ones");
    Err(HttpError::request(StatusCode::FORBIDDEN, message).with_code("host_not_allowed"))
}

/// A host in the form in which hosts are compared.
fn name(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn is_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Whether a host is `localhost` or below it. Browsers resolve these by themselves.
fn is_localhost(host: &str) -> bool {
    host.strip_suffix(LOCALHOST).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Refuses pages of origins other than the server's own and `allowed`: `*`, `localhost`, or one
/// origin. Clients that are no browsers send neither an origin nor a site.
fn check_origin(
    headers: &HeaderMap,
    target: Option<&Authority>,
    allowed: Option<&str>,
) -> Result<(), HttpError> {
    let is_allowed = |origin: &HeaderValue| match allowed {
        Some("*") => true,
        Some(LOCALHOST) if is_local(origin) => true,
        Some(one) if one.as_bytes() == origin.as_bytes() => true,
        _ => target.is_some_and(|target| is_own(origin, target)),
    };
    let site =
        || headers.get(SEC_FETCH_SITE).filter(|site| *site != "same-origin" && *site != "none");
    let refused = match headers.get(header::ORIGIN) {
        Some(_) => headers.get_all(header::ORIGIN).iter().find(|origin| !is_allowed(origin)),
        None => site().filter(|_| allowed != Some("*")),
    };
    let Some(refused) = refused else { return Ok(()) };
    let message = format!("pages of {refused:?} may not send requests; --cors allows an origin");
    Err(HttpError::request(StatusCode::FORBIDDEN, message).with_code("origin_not_allowed"))
}

/// Whether `origin` is the one of `target`, over HTTP or TLS: a proxy may have ended TLS.
fn is_own(origin: &HeaderValue, target: &Authority) -> bool {
    let own = |origin: &str| {
        let (scheme, host) = origin.split_once("://")?;
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let host = authority(&HeaderValue::from_str(host).ok()?)?;
        let place = |it: &Authority| (name(it.host()), it.port_u16().unwrap_or(usual));
        Some(place(&host) == place(target))
    };
    origin.to_str().ok().and_then(own).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn check_page(headers: &[(HeaderName, &str)], allowed: Option<&str>, expected: bool) {
        let own = Authority::from_static("127.0.0.1:8080");
        let pairs = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let map = pairs.fold(HeaderMap::new(), |mut map, (name, value)| {
            map.append(name, value);
            map
        });
        assert_eq!(
            check_origin(&map, Some(&own), allowed).is_ok(),
            expected,
            "{headers:?} {allowed:?}"
        );
    }

    fn check_origins(origin: &str, allowed: Option<&str>, expected: bool) {
        check_page(&[(header::ORIGIN, origin)], allowed, expected);
    }

    #[test]
    fn pages_of_others_change_nothing() {
        check_page(&[], None, true);
        check_origins("http://127.0.0.1:8080", None, true);
        check_origins("http://127.0.0.1:8081", None, false);
        check_origins("http://127.0.0.1", None, false);
        check_origins("https://evil.example", None, false);
        check_origins("chrome-extension://127.0.0.1:8080", None, false);
        check_origins("null", None, false);
        check_origins("https://app.example", Some("https://app.example"), true);
        check_origins("https://app.example.evil", Some("https://app.example"), false);
        check_origins("https://evil.example", Some("*"), true);
        check_origins("http://localhost:5173", Some("localhost"), true);
        check_origins("http://localhost.evil.example", Some("localhost"), false);
        let twice = [(header::ORIGIN, "http://127.0.0.1:8080"), (header::ORIGIN, "http://a.b")];
        check_page(&twice, None, false);
    }

    #[test]
    fn without_an_origin_the_site_decides() {
        for (site, expected) in
            [("cross-site", false), ("same-site", false), ("same-origin", true), ("none", true)]
        {
            check_page(&[(SEC_FETCH_SITE, site)], None, expected);
            check_page(&[(SEC_FETCH_SITE, site)], Some("*"), true);
        }
        // The origin says more than the site does.
        let own = [(header::ORIGIN, "http://127.0.0.1:8080"), (SEC_FETCH_SITE, "cross-site")];
        check_page(&own, None, true);
    }

    fn check_own(origin: &str, target: &'static str, expected: bool) {
        let found = is_own(&origin.parse().unwrap(), &Authority::from_static(target));
        assert_eq!(found, expected, "{origin} {target}");
    }

    #[test]
    fn an_origin_is_compared_by_host_and_port() {
        check_own("https://chat.example", "chat.example", true);
        check_own("https://chat.example", "Chat.Example.:443", true);
        check_own("http://chat.example", "chat.example:443", false);
        check_own("http://[::1]:8080", "[::1]:8080", true);
        check_own("http://chat.example:x", "chat.example", false);
    }

    fn check_name(host: &'static str, expected: bool) {
        let allowed = ["gannet.example".to_owned()];
        let host = Authority::from_static(host);
        assert_eq!(check_host(Some(&host), &allowed).is_ok(), expected, "{host}");
    }

    #[test]
    fn a_name_that_can_be_rebound_is_refused() {
        for host in [
            "127.0.0.1:8080",
            "10.1.2.3",
            "[::1]:8080",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "app.localhost:8080",
            "gannet.example",
            "Gannet.Example.:443",
        ] {
            check_name(host, true);
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example",
            "a.gannet.example",
            "127.0.0.1.nip.io",
        ] {
            check_name(host, false);
        }
        let own = System::host_name().unwrap();
        assert!(check_host(Some(&own.parse().unwrap()), &[]).is_ok(), "{own}");
    }

    fn check_target(lines: &[&str], uri: &str, version: Version, expected: Option<&str>) {
        let request = Request::builder().uri(uri).version(version);
        let request =
            lines.iter().fold(request, |request, host| request.header(header::HOST, *host));
        let found = target(&request.body(Body::empty()).unwrap());
        let found = found.ok().map(|it| it.map_or_else(String::new, |it| it.to_string()));
        assert_eq!(found.as_deref(), expected, "{lines:?} {uri}");
    }

    #[test]
    fn a_request_names_one_host() {
        check_target(&["a:80"], "/", Version::HTTP_11, Some("a:80"));
        check_target(&["a"], "http://b:81/x", Version::HTTP_11, Some("b:81"));
        check_target(&[""], "/", Version::HTTP_11, Some(""));
        check_target(&[], "/", Version::HTTP_10, Some(""));
        check_target(&[], "/", Version::HTTP_11, None);
        check_target(&[], "http://b/", Version::HTTP_11, None);
        check_target(&["a", "a"], "/", Version::HTTP_11, None);
        for wrong in ["a b", "user@a", "a:b", "a:99999", "a/b", ":80", "http://a"] {
            check_target(&[wrong], "/", Version::HTTP_11, None);
        }
    }
}
