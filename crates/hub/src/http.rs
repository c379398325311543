//! Requests to a hub. Redirects are followed here, so that the token is sent to the endpoint only;
//! temporary failures are retried.

use std::time::Duration;

pub(crate) use ureq::http::Method;
use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, LOCATION, RANGE};
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

use crate::error::Error;
use crate::settings::HubSettings;

const MAX_REDIRECTS: usize = 10;
const ATTEMPTS: u32 = 5;
/// Etag of a file that a redirect leads to.
pub(crate) const LINKED_ETAG: &str = "x-linked-etag";
const USER_AGENT: &str = concat!("gannet/", env!("CARGO_PKG_VERSION"));

/// A connection to one endpoint.
pub(crate) struct Client<'a> {
    pub(crate) settings: &'a HubSettings,
    agent: Agent,
}

impl<'a> Client<'a> {
    pub(crate) fn new(settings: &'a HubSettings) -> Self {
        let agent = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .user_agent(USER_AGENT)
            .timeout_connect(Some(Duration::from_secs(15)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .build()
            .new_agent();
        Self { settings, agent }
    }

    /// Runs `attempt` until it succeeds, fails permanently, or has failed too often.
    pub(crate) fn retry<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pause = self.settings.retry_pause;
        for _ in 1..ATTEMPTS {
            match attempt() {
                Err(error) if error.is_passing() => std::thread::sleep(pause),
                other => return other,
            }
            pause *= 2;
        }
        attempt()
    }

    /// A text of at most `limit` bytes.
    pub(crate) fn text(&self, url: &str, limit: u64) -> Result<String, Error> {
        let mut response = self.follow(&Method::GET, url, 0)?;
        let body = response.body_mut().with_config().limit(limit).read_to_vec();
        let bytes = body.map_err(|e| Error::network(url, e))?;
        String::from_utf8(bytes).map_err(|e| Error::answer(url, format!("not UTF-8: {e}")))
    }

    /// The response at the end of all redirects, with the bytes from `from` on; of HEAD the first
    /// response that has the etag of a large file.
    pub(crate) fn follow(
        &self,
        method: &Method,
        url: &str,
        from: u64,
    ) -> Result<Response<Body>, Error> {
        let mut current = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let response = self.send(method, &current, from)?;
            let enough = method == Method::HEAD && response.headers().contains_key(LINKED_ETAG);
            if !response.status().is_redirection() || enough {
                return refuse_errors(response, &current);
            }
            current = self.target(&current, response.headers())?;
        }
        Err(Error::answer(url, format!("more than {MAX_REDIRECTS} redirects")))
    }

    fn send(&self, method: &Method, url: &str, from: u64) -> Result<Response<Body>, Error> {
        let request = Request::builder().method(method).uri(url);
        let mut request = request.header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = &self.settings.token
            && origin(url) == origin(&self.settings.endpoint)
        {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(ureq::Error::from);
        request.and_then(|request| self.agent.run(request)).map_err(|e| Error::network(url, e))
    }

    fn target(&self, url: &str, headers: &HeaderMap) -> Result<String, Error> {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| Error::answer(url, "a redirect to nowhere"))?;
        let target = match location {
            absolute if absolute.contains("://") => absolute.to_owned(),
            path if path.starts_with('/') && !path.starts_with("//") => {
                format!("{}{path}", origin(url))
            }
            other => return Err(Error::answer(url, format!("a redirect to {other}"))),
        };
        let secure = |url: &str| url.to_ascii_lowercase().starts_with("https://");
        if secure(url) && !secure(&target) {
            return Err(Error::answer(url, "a redirect from https to something else"));
        }
        Ok(target)
    }
}

/// `https://host:port` of an address.
fn origin(url: &str) -> &str {
    let Some(start) = url.find("://").map(|at| at + 3) else { return url };
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

fn refuse_errors(response: Response<Body>, url: &str) -> Result<Response<Body>, Error> {
    let status = response.status();
    if status.is_success() || status.is_redirection() {
        return Ok(response);
    }
    let code = response.headers().get("x-error-code").and_then(|value| value.to_str().ok());
    let problem = match (status.as_u16(), code) {
        (_, Some("GatedRepo")) => {
            "the repository is gated: ask for access on its page, then set HF_TOKEN".into()
        }
        (401 | 403, _) => {
            "access denied: the repository is missing, private or gated (is HF_TOKEN set?)".into()
        }
        (404, Some("RevisionNotFound")) => "no such revision".into(),
        (404, _) => "no such repository or file".into(),
        (416, _) => "the file is shorter than what was downloaded before".into(),
        _ => format!("the hub answered {status}"),
    };
    Err(Error::Refused { url: url.to_owned(), status: status.as_u16(), problem })
}

/// Percent-encodes one path component, or with `slash` a whole path.
pub(crate) fn encode(text: &str, slash: bool) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b) || slash && b == b'/';
    let encoded = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_end_where_paths_begin() {
        assert_eq!(origin("https://a.b:8/c/d"), "https://a.b:8");
        assert_eq!(origin("http://a"), "http://a");
        assert_eq!(origin("http://a?x://y"), "http://a");
        assert_ne!(origin("http://a.evil/x"), origin("http://a"));
    }

    #[test]
    fn paths_are_encoded() {
        assert_eq!(encode("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(encode("a b/é.gguf", true), "a%20b/%C3%A9.gguf");
    }
}
