//! A URL that can be fetched, and where redirects may lead from it.

use crate::fetch::error::FetchError;
use url::{Host, Url};

/// Most bytes of a URL.
const MAX_URL_BYTES: usize = 8 << 10;

/// A URL of the scheme http or https with a host and without a user name, as it is sent: spellings
/// of addresses and names are brought into one form, and the fragment is left out.
///
/// Questions and rules look at this form, so that they name the host that is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageUrl(Url);

impl PageUrl {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// If the text is no URL, is too long, has another scheme, no host, or a user name or password.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        let fail = |problem: &str| Err(FetchError::url(text, problem));
        if text.len() > MAX_URL_BYTES {
            return fail(&format!("expected a URL of at most {MAX_URL_BYTES} bytes"));
        }
        match Url::parse(text) {
            Ok(url) => Self::checked(url, text),
            Err(problem) => fail(&format!("expected a URL such as https://docs.rs: {problem}")),
        }
    }

    /// The URL in the form that is sent.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The host: a name in lower case and ASCII, or an address, of IPv6 in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    fn checked(mut url: Url, text: &str) -> Result<Self, FetchError> {
        let fail = |problem: String| Err(FetchError::url(text, problem));
        if !matches!(url.scheme(), "http" | "https") {
            return fail(format!("expected the scheme http or https, found {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return fail("expected a URL without a user name and a password".to_owned());
        }
        if url.host().is_none() || url.port_or_known_default().is_none_or(|port| port == 0) {
            return fail("expected a host, and a port other than 0".to_owned());
        }
        url.set_fragment(None);
        // Spellings may become longer.
        if url.as_str().len() > MAX_URL_BYTES {
            return fail(format!("expected a URL of at most {MAX_URL_BYTES} bytes"));
        }
        Ok(Self(url))
    }

    /// The URL that `location` of a redirect leads to from this one, if it is of the same site: the
    /// same host and port, but that `www.` may be added or left out and http may become https.
    ///
    /// # Errors
    ///
    /// If the location is no URL that can be fetched, or is elsewhere.
    pub(crate) fn redirected(&self, location: &str) -> Result<Self, FetchError> {
        if location.len() > MAX_URL_BYTES {
            let problem = format!("expected a redirect of at most {MAX_URL_BYTES} bytes");
            return Err(FetchError::url(location, problem));
        }
        let joined = self.0.join(location).map_err(|problem| {
            let problem = format!("redirect of {}: {problem}", self.as_str());
            FetchError::url(location, problem)
        })?;
        let target = Self::checked(joined, location)?;
        if self.is_site_of(&target) {
            return Ok(target);
        }
        let (from, to) = (self.as_str().to_owned(), target.as_str().to_owned());
        Err(FetchError::Elsewhere { from, to })
    }

    fn is_site_of(&self, target: &Self) -> bool {
        let (from, to) = (&self.0, &target.0);
        let is_downgrade = from.scheme() == "https" && to.scheme() == "http";
        // `None` is the port of the scheme, which changes with the scheme.
        let is_same_port = from.port() == to.port();
        !is_downgrade && is_same_port && site(from) == site(to)
    }
}

impl std::fmt::Display for PageUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The host without `www.`, where a name of at least two parts follows.
fn site(url: &Url) -> Option<Host<&str>> {
    let bare = |name: &'_ str| -> usize {
        match name.strip_prefix("www.") {
            Some(rest) if rest.contains('.') => name.len() - rest.len(),
            _ => 0,
        }
    };
    match url.host()? {
        Host::Domain(name) => Some(Host::Domain(&name[bare(name)..])),
        address => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> String {
        PageUrl::parse(text).unwrap().host().to_owned()
    }

    #[test]
    fn spellings_of_a_host_become_one() {
        for text in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://0x7f.0.0.1/",
            "http://127.0.1",
            "http://１２７.0.0.1/",
            "http://127.0.0.1./",
            "http:127.0.0.1",
            "http:/\\127.0.0.1",
            "http://%31%32%37.0.0.1",
        ] {
            assert_eq!(host(text), "127.0.0.1", "{text}");
        }
        assert_eq!(host("http://[::ffff:127.0.0.1]/"), "[::ffff:7f00:1]");
        assert_eq!(host("HTTPS://DOCS.rs:443/a#b"), "docs.rs");
        assert_eq!(host("https://docs.rs\\@evil.example/"), "docs.rs");
        assert_eq!(host("https://bücher.example/"), "xn--bcher-kva.example");
        assert_eq!(
            PageUrl::parse(" https://a.example/x y#z\n").unwrap().as_str(),
            "https://a.example/x%20y"
        );
    }

    #[test]
    fn urls_that_cannot_be_fetched_are_errors() {
        let long = format!("http://a.example/{}", "x".repeat(MAX_URL_BYTES));
        let grows = format!("http://a.example/{}", "é".repeat(MAX_URL_BYTES / 3));
        for text in [
            "",
            "x",
            "/x",
            "//a.example",
            "a.example/x",
            "file:///etc/passwd",
            "ftp://a.example",
            "data:text/plain,x",
            "javascript:x",
            "http://",
            "http:///",
            "https://:80",
            "http://a b/",
            "http://user@a.example",
            "http://user:pass@a.example",
            "http://:pass@a.example",
            "http://a.example@127.0.0.1/",
            "http://a.example:65536",
            "http://a.example:0/",
            "http://a.example:x",
            "http://[fe80::1%25eth0]/",
            "http://[fe80::1%eth0]/",
            "http://[::1",
            "http://256.1.1.1",
            "http://1.2.3.4.5",
            "http://0x100000000/",
            "http://a\u{0}b/",
            "http://a<b/",
            "http://%00/",
            "ws://a.example",
            "view-source:http://a",
            &long,
            &grows,
        ] {
            let found = PageUrl::parse(text);
            assert!(matches!(found, Err(FetchError::Url { .. })), "{text}: {found:?}");
        }
    }

    fn check_redirect(from: &str, location: &str, expected: Option<&str>) {
        let found = PageUrl::parse(from).unwrap().redirected(location);
        match expected {
            Some(expected) => assert_eq!(found.unwrap().as_str(), expected, "{from} {location}"),
            None => assert!(
                matches!(found, Err(FetchError::Elsewhere { .. })),
                "{from} {location}: {found:?}"
            ),
        }
    }

    #[test]
    fn redirects_stay_on_the_site() {
        let check = |from, location, expected| check_redirect(from, location, Some(expected));
        check("http://a.example/x/y", "z", "http://a.example/x/z");
        check("http://a.example/x", "/z?q#f", "http://a.example/z?q");
        check("http://a.example/x", "//a.example/z", "http://a.example/z");
        check("http://a.example/x", "https://www.a.example/", "https://www.a.example/");
        check("https://www.a.example/x", "https://A.example/", "https://a.example/");
        check("http://a.example:80/x", "https://a.example:443/", "https://a.example/");
        check("http://a.example:81/x", "https://a.example:81/", "https://a.example:81/");
        check("https://[2606:4700::1]/", "/x", "https://[2606:4700::1]/x");
    }

    #[test]
    fn redirects_elsewhere_are_errors() {
        let check = |from, location| check_redirect(from, location, None);
        check("http://a.example/", "http://b.example/");
        check("http://a.example/", "//b.example/");
        check("http://a.example/", "\\\\b.example/");
        check("http://a.example/", "http://m.a.example/");
        check("http://a.example/", "http://a.example.evil.example/");
        check("http://a.example/", "http://a.example:8080/");
        check("http://a.example:8080/", "https://a.example/");
        check("https://a.example/", "http://a.example/");
        check("https://www.com/", "https://com/");
        check("http://1.1.1.1/", "http://127.0.0.1/");
        for location in ["file:///etc/passwd", "http://u:p@a.example/", "http://[::1", "data:,x"] {
            let found = PageUrl::parse("http://a.example/").unwrap().redirected(location);
            assert!(matches!(found, Err(FetchError::Url { .. })), "{location}: {found:?}");
        }
    }
}
