//! What the last requests found of their prompts in the cache, and why not more.
//!
//! Invariant: a report holds texts of its caller alone, and only its caller can read it.

use api::{CacheCause, CacheReport, Prepared, PromptDifference};
use axum::http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The header that says what was found.
pub(crate) const CACHE: HeaderName = HeaderName::from_static("x-gannet-cache");

/// Most prompts whose reports are kept.
const MAX_PROMPTS: usize = 1024;

/// The reports of the last requests.
#[derive(Debug, Default)]
pub(crate) struct CacheReports(Mutex<KeptReports>);

#[derive(Debug, Default)]
struct KeptReports {
    /// The oldest first.
    requests: VecDeque<Arc<RequestReports>>,
    /// Prompts of all of them.
    prompts: usize,
}

/// The reports of the prompts of one request.
#[derive(Debug)]
pub(crate) struct RequestReports {
    /// Name of the request.
    id: Arc<str>,
    /// The caller, if it is known.
    caller: Option<Arc<str>>,
    model: String,
    prompts: Mutex<Vec<PromptReport>>,
}

/// The reports of a request, once it is submitted.
pub(crate) type ReportSlot = Arc<OnceLock<Arc<RequestReports>>>;

/// What is known of one prompt.
#[derive(Debug)]
struct PromptReport {
    tokens: usize,
    own_prefix: Option<usize>,
    /// Present once the prompt was looked up in the cache.
    found: Option<CacheReport>,
}

impl CacheReports {
    /// Adds a request, unless its caller is unknown.
    pub fn add(&self, request: &Arc<RequestReports>) {
        if request.caller.is_none() {
            return;
        }
        let count = |request: &Arc<RequestReports>| lock(&request.prompts).len().max(1);
        let mut kept = lock(&self.0);
        kept.prompts += count(request);
        kept.requests.push_back(Arc::clone(request));
        while kept.prompts > MAX_PROMPTS && kept.requests.len() > 1 {
            let oldest = kept.requests.pop_front();
            kept.prompts -= oldest.as_ref().map_or(0, count);
        }
    }

    /// The last request of this name that the caller sent.
    pub fn find(&self, caller: &str, id: &str) -> Option<Arc<RequestReports>> {
        let kept = lock(&self.0);
        let is_it =
            |it: &&Arc<RequestReports>| &*it.id == id && it.caller.as_deref() == Some(caller);
        kept.requests.iter().rev().find(is_it).cloned()
    }
}

impl RequestReports {
    /// A request that is about to be looked up in the cache.
    pub fn new(
        id: Arc<str>,
        caller: Option<Arc<str>>,
        model: String,
        prompts: &[Prepared],
    ) -> Arc<Self> {
        let report = |prompt: &Prepared| PromptReport {
            tokens: prompt.prompt().len(),
            own_prefix: prompt.own_prefix(),
            found: None,
        };
        let prompts = Mutex::new(prompts.iter().map(report).collect());
        Arc::new(Self { id, caller, model, prompts })
    }

    /// Adds what the prompt number `index` found, and logs it, `with_texts` or without.
    pub fn admitted(&self, index: usize, report: &CacheReport, with_texts: bool) {
        let CacheReport { looked_up, found, from_disk, cause, difference } = report;
        let difference = difference.as_deref();
        let texts = difference.filter(|_| with_texts);
        let place = difference.and_then(|it| it.place.as_ref());
        tracing::debug!(
            request_id = &*self.id,
            prompt = index,
            found,
            looked_up,
            from_disk,
            cause = cause.name(),
            message_index = place.and_then(|place| place.message),
            role = place.and_then(|place| place.role.as_deref()),
            token = difference.map(|it| it.token),
            before = texts.map(|it| it.before.as_str()),
            earlier = texts.map(|it| it.earlier.as_str()),
            now = texts.map(|it| it.now.as_str()),
            "cache"
        );
        if let Some(prompt) = lock(&self.prompts).get_mut(index) {
            prompt.found = Some(report.clone());
        }
    }

    /// The header of the response. A stream has its header before its prompt is looked up.
    pub fn header(&self) -> Option<HeaderValue> {
        let prompts = lock(&self.prompts);
        let found: Option<Vec<&CacheReport>> = prompts.iter().map(|it| it.found.as_ref()).collect();
        let text = match found {
            Some(reports) => found_text(&reports),
            None => {
                let tokens: usize = prompts.iter().map(|it| it.tokens).sum();
                let own: Option<usize> = prompts.iter().map(|it| it.own_prefix).sum();
                let own = own.map_or_else(String::new, |own| format!("; own-prefix={own}"));
                format!("prompt={tokens}{own}")
            }
        };
        HeaderValue::from_str(&text).ok()
    }

    /// The reports as JSON.
    pub fn json(&self) -> Value {
        let prompts: Value = lock(&self.prompts).iter().map(PromptReport::json).collect();
        json!({ "request": &*self.id, "model": self.model, "prompts": prompts })
    }
}

/// The sums of the reports, and the cause of most of what was not found.
fn found_text(reports: &[&CacheReport]) -> String {
    let found: usize = reports.iter().map(|it| it.found).sum();
    let looked_up: usize = reports.iter().map(|it| it.looked_up).sum();
    let missing = |it: &&&CacheReport| it.looked_up.saturating_sub(it.found);
    let cause = reports.iter().rev().max_by_key(missing).map_or(CacheCause::None, |it| it.cause);
    format!("found={found}; looked-up={looked_up}; cause={}", cause.name())
}

impl PromptReport {
    fn json(&self) -> Value {
        let found = self.found.as_ref();
        json!({
            "prompt_tokens": self.tokens,
            "own_prefix": self.own_prefix,
            "looked_up": found.map(|it| it.looked_up),
            "found": found.map(|it| it.found),
            "from_disk": found.map(|it| it.from_disk),
            "cause": found.map(|it| it.cause.name()),
            "meaning": found.map(|it| it.cause.meaning()),
            "difference": found.and_then(|it| it.difference.as_deref()).map(difference),
        })
    }
}

fn difference(difference: &PromptDifference) -> Value {
    let PromptDifference { token, place, before, earlier, now } = difference;
    let part = |is_content| if is_content { "content" } else { "template" };
    json!({
        "token": token,
        "message": place.as_ref().and_then(|place| place.message),
        "role": place.as_ref().and_then(|place| place.role.as_deref()),
        "part": place.as_ref().map(|place| part(place.is_content)),
        "before": before,
        "earlier": earlier,
        "now": now,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, caller: Option<&str>, prompts: usize) -> Arc<RequestReports> {
        let reports = RequestReports::new(id.into(), caller.map(Arc::from), "m".into(), &[]);
        let report = |_| PromptReport { tokens: 10, own_prefix: Some(4), found: None };
        *lock(&reports.prompts) = (0..prompts).map(report).collect();
        reports
    }

    #[test]
    fn callers_find_their_own_requests_alone() {
        let reports = CacheReports::default();
        [Some("a"), Some("b"), None].into_iter().for_each(|it| reports.add(&request("x", it, 1)));
        let found = |caller| reports.find(caller, "x").and_then(|it| it.caller.clone());
        assert_eq!(["a", "b", "c"].map(found), [Some("a".into()), Some("b".into()), None]);
        assert!(reports.find("a", "y").is_none());
    }

    #[test]
    fn the_last_prompts_are_kept() {
        let reports = CacheReports::default();
        for at in 0..2 * MAX_PROMPTS {
            reports.add(&request(&at.to_string(), Some("a"), 2));
        }
        assert_eq!(lock(&reports.0).requests.len(), MAX_PROMPTS / 2);
        let last = (2 * MAX_PROMPTS - 1).to_string();
        assert!(reports.find("a", &last).is_some() && reports.find("a", "0").is_none());
        reports.add(&request("many", Some("a"), 2 * MAX_PROMPTS));
        assert_eq!(lock(&reports.0).requests.len(), 1);
    }

    #[test]
    fn the_header_says_what_is_known() {
        let request = request("x", Some("a"), 2);
        let check = |expected: &str| assert_eq!(request.header().unwrap(), expected);
        check("prompt=20; own-prefix=8");
        let report =
            |found, cause| CacheReport { looked_up: 9, found, cause, ..Default::default() };
        request.admitted(0, &report(8, CacheCause::NewTokens), false);
        check("prompt=20; own-prefix=8");
        request.admitted(1, &report(4, CacheCause::UnknownPrefix), true);
        check("found=12; looked-up=18; cause=unknown-prefix");
    }
}
