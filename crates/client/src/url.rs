//! Addresses of servers.
//!
//! Invariant: an address has a scheme, a host, and neither a user name nor a query, which could be
//! secrets.

use super::error::ClientError;
use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};
use std::net::IpAddr;

/// The address that paths such as `/models` are added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseUrl {
    pub tls: bool,
    pub authority: Authority,
    /// Without a final slash.
    path: String,
}

impl BaseUrl {
    /// Parses an address; `http://` may be left out, and no path means `/v1`.
    ///
    /// # Errors
    /// If it is no address of HTTP or HTTPS, or has a user name or a query.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let text = text.trim();
        if text.contains(['@', '?', '#']) {
            // What follows may be a secret, and the address is not repeated.
            let problem = "expected it without user name, query and fragment; a key is separate";
            return Err(setting("the server's address", problem));
        }
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|error| setting(text, format!("{error}")))?;
        let parts = uri.into_parts();
        let tls = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTP => false,
            Some(scheme) if scheme == Scheme::HTTPS => true,
            _ => return Err(setting(text, "expected an address with http:// or https://")),
        };
        let authority = parts.authority.filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| setting(text, "expected the name of a host"))?;
        let path = parts.path_and_query.map(|path| path.path().trim_end_matches('/').to_owned());
        let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/v1".to_owned());
        Ok(Self { tls, authority, path })
    }

    /// The path of a route, such as `/models`.
    pub fn path(&self, route: &str) -> String {
        format!("{}{route}", self.path)
    }

    /// The whole address of a route.
    pub fn url(&self, route: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}{route}", self.authority, self.path)
    }

    /// The host, of an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether the server is on this machine, by its name alone.
    pub fn is_loopback(&self) -> bool {
        let name = self.host().trim_end_matches('.').to_ascii_lowercase();
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_loopback)
    }
}

fn setting(subject: &str, problem: impl Into<String>) -> ClientError {
    ClientError::Setting { subject: subject.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(BaseUrl::parse(text).unwrap().url("/models"), expected, "{text}");
    }

    #[test]
    fn an_address_without_a_path_means_v1() {
        check("127.0.0.1:8080", "http://127.0.0.1:8080/v1/models");
        check("http://localhost/", "http://localhost/v1/models");
        check("http://[::1]:8080/v1/", "http://[::1]:8080/v1/models");
        check("https://a.example/api/v1", "https://a.example/api/v1/models");
        check("https://a.example/v1beta/openai/", "https://a.example/v1beta/openai/models");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "http://", "ftp://a", "http://a b", "http://a/?b", "a:b:c", "http:///v1"] {
            assert!(BaseUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_in_an_address_are_refused_and_not_repeated() {
        for text in ["https://user:hunter22@a.example", "http://a/?key=hunter22"] {
            let refused = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(refused.contains("without") && !refused.contains("hunter22"), "{refused}");
        }
    }

    #[test]
    fn servers_of_this_machine_are_known_by_name() {
        let is_loopback = |text: &str| BaseUrl::parse(text).unwrap().is_loopback();
        for text in ["localhost:1", "http://LocalHost.", "a.localhost", "127.9.9.9", "[::1]:80"] {
            assert!(is_loopback(text), "{text}");
        }
        assert!(is_loopback("[::ffff:127.0.0.1]"));
        for text in ["localhost.example", "10.0.0.1", "[2001:db8::1]", "mylocalhost"] {
            assert!(!is_loopback(text), "{text}");
        }
    }
}
