//! The caller of a request, identified by its key or by its address.
//!
//! Invariant: no handler sees a key. The headers that carry one are removed, and the request has
//! the digest of the tenant's key as an extension.

use crate::http::keys::{ApiKeys, Digest};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Headers that carry a key, as Anthropic's and Azure's clients send it.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// Headers that proxies add to the requests that they pass on.
const PROXY_HEADERS: [HeaderName; 4] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
];

/// The digest of the key that a request came with, as text; an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct Tenant(pub Arc<str>);

/// The other end of a connection; an extension of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Over the network.
    Address(IpAddr),
    /// Over a Unix socket.
    Local,
}

/// The identity of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The key that was sent.
    Key(Digest),
    /// An address; of IPv6 the network, of which one caller has all addresses.
    Address(IpAddr),
    /// A caller on this machine.
    Local,
    /// All callers beyond the number that is counted one by one.
    Others,
}

/// The sender of a request; an extension of admitted requests.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub identity: Identity,
    /// What the caller is called in logs.
    pub label: Arc<str>,
}

impl Caller {
    /// The caller of a request, whose headers lose their keys. `None` where the key is missing
    /// or wrong.
    pub fn admit(request: &mut Request, keys: &ApiKeys) -> Option<Self> {
        let peer = request.extensions().get::<Peer>().copied();
        let given = take_keys(request.headers_mut());
        // All are tried: a client may send several that it has for different servers.
        let known = given.iter().map(|key| keys.find(key)).fold(None, Option::or);
        let tenant = known.as_ref().map(|key| key.digest);
        let tenant = tenant.or_else(|| given.first().map(|key| Digest::of(key)));
        if let Some(digest) = tenant {
            request.extensions_mut().insert(Tenant(digest.hex().into()));
        }
        match known {
            Some(key) => Some(Self { identity: Identity::Key(key.digest), label: key.label }),
            None => keys.is_open().then(|| Self::at(peer)),
        }
    }

    /// A name that no other caller has: of its key, or of its address. `None` where many callers
    /// share an address, because a proxy sends their requests.
    pub fn name(&self, headers: &HeaderMap) -> Option<String> {
        let is_passed_on = || PROXY_HEADERS.iter().any(|name| headers.contains_key(name));
        match self.identity {
            Identity::Key(digest) => Some(digest.hex()),
            _ if is_passed_on() => None,
            Identity::Address(address) => Some(address.to_string()),
            Identity::Local => Some("local".to_owned()),
            Identity::Others => None,
        }
    }

    /// The caller at the other end of a connection.
    pub fn at(peer: Option<Peer>) -> Self {
        match peer {
            Some(Peer::Address(address)) => {
                let identity = Identity::Address(network(address));
                Self { identity, label: address.to_canonical().to_string().into() }
            }
            _ => Self { identity: Identity::Local, label: "local".into() },
        }
    }
}

/// Takes out the headers that carry keys, and gives the keys.
fn take_keys(headers: &mut HeaderMap) -> Vec<Vec<u8>> {
    let bearer = headers.remove(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let plain = [X_API_KEY, API_KEY].into_iter().filter_map(|name| headers.remove(name));
    bearer.into_iter().chain(plain.map(|value| value.as_bytes().to_vec())).collect()
}

/// The key of `Bearer KEY`.
fn bearer(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii().to_vec())
}

/// `address`, or its network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(headers: &[(&str, &str)]) -> Request {
        let request =
            headers.iter().fold(Request::builder(), |r, (name, value)| r.header(*name, *value));
        request.body(Body::empty()).unwrap()
    }

    fn check(headers: &[(&str, &str)], keys: &[&str], expected: Option<&str>) {
        let keys = ApiKeys::new(keys).unwrap();
        let caller = Caller::admit(&mut request(headers), &keys);
        let label = caller.as_ref().map(|caller| &*caller.label);
        assert_eq!(label, expected, "{headers:?}");
    }

    const SECRET: Option<&str> = Some("sha256:2bb80d53");

    #[test]
    fn keys_are_taken_from_each_header_that_carries_one() {
        check(&[("authorization", "Bearer secret")], &["secret"], SECRET);
        check(&[("authorization", "bearer secret")], &["secret"], SECRET);
        check(&[("x-api-key", "secret")], &["secret"], SECRET);
        check(&[("api-key", "secret")], &["other", "secret"], SECRET);
        check(&[("authorization", "Bearer x"), ("x-api-key", "secret")], &["secret"], SECRET);
        check(&[("authorization", "secret")], &["secret"], None);
        check(&[("authorization", "Basic secret")], &["secret"], None);
        check(&[("x-api-key", "Bearer secret")], &["secret"], None);
        check(&[], &["secret"], None);
        check(&[], &[], Some("local"));
    }

    #[test]
    fn no_handler_sees_a_key_or_believes_a_tenant_that_a_client_made_up() {
        let keys = ApiKeys::new(["secret"]).unwrap();
        let headers =
            [("authorization", "Bearer x"), ("api-key", "secret"), ("x-gannet-tenant", "mine")];
        let mut request = request(&headers);
        Caller::admit(&mut request, &keys).unwrap();
        let Tenant(name) = request.extensions().get().unwrap();
        assert_eq!(**name, *Digest::of(b"secret").hex());
        assert_eq!(request.headers().len(), 1);
    }

    fn check_network(a: &str, b: &str, same: bool) {
        let [a, b] = [a, b].map(|text| Caller::at(Some(Peer::Address(text.parse().unwrap()))));
        assert_eq!(a.identity == b.identity, same, "{a:?} {b:?}");
    }

    #[test]
    fn all_addresses_of_a_network_are_one_caller() {
        check_network("10.0.0.1", "10.0.0.2", false);
        check_network("::ffff:10.0.0.1", "10.0.0.1", true);
        check_network("2001:db8::1", "2001:db8::2", true);
        check_network("2001:db8::1", "2001:db8:0:1::1", false);
    }
}
