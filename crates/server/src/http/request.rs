//! The id of a request, its charge and its tenant.

use crate::http::app::App;
use crate::http::caller::{Caller, Tenant};
use crate::http::limits::TokenCharge;
use crate::http::models::ModelUse;
use crate::http::observability::cache::ReportSlot;
use crate::http::random;
use api::{CachePartition, RequestOptions, Service};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use std::convert::Infallible;
use std::sync::Arc;

/// The header that names a request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Most bytes of a name that a client gives its request.
const MAX_ID_BYTES: usize = 64;

/// The id of a request in its log lines and its response, and the charge for its tokens.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    pub name: Arc<str>,
    pub charge: TokenCharge,
    /// What its prompts found in the cache.
    pub cache: ReportSlot,
}

impl RequestId {
    /// The id that the client gives, if it is plain enough for a log line, else a new one.
    pub fn of(headers: &HeaderMap) -> Self {
        let sane = |id: &&str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(plain)
        };
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane);
        let name = given.map_or_else(|| random::id("req_").into(), Arc::from);
        Self { name, charge: TokenCharge::default(), cache: ReportSlot::default() }
    }
}

/// A request with the model that computes it.
#[derive(Clone, Debug)]
pub(crate) struct ModelContext {
    pub request: RequestContext,
    pub model: ModelUse,
    /// Whether its answers have receipts.
    pub receipt: bool,
}

impl ModelContext {
    /// The service, for the part of the caches and the adapters of the request.
    pub fn service(&self) -> &Service {
        &self.model.service
    }
}

/// A request: the state of the server, the request's id and its key.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub app: App,
    pub id: RequestId,
    /// The name of the tenant whose key the request came with.
    pub key: Option<Arc<str>>,
    /// The name of the caller, who alone sees texts of its requests; `None` if it is not known.
    pub caller: Option<Arc<str>>,
}

impl RequestContext {
    /// A request with this id and key, without a connection to its caller.
    pub fn new(app: &App, id: RequestId, key: Option<Arc<str>>) -> Self {
        Self { app: app.clone(), id, key, caller: None }
    }

    /// `model` for the part of the caches that belongs to the key.
    pub fn with(&self, model: ModelUse) -> ModelContext {
        let partition = CachePartition::of_key(self.app.options.isolation(), self.key.as_deref());
        let service = model.service.within(partition);
        let service = match &self.caller {
            Some(caller) => service.for_caller(caller),
            None => service,
        };
        ModelContext { request: self.clone(), model: model.with(service), receipt: false }
    }

    /// The options of a request on behalf of its key, which is the tenant.
    pub fn on_behalf(&self, options: RequestOptions) -> RequestOptions {
        let tenant = self.key.as_deref().map(str::to_owned);
        RequestOptions { tenant, receipt_key: self.app.options.receipt_key.clone(), ..options }
    }
}

impl FromRequestParts<App> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let id = parts.extensions.get::<RequestId>().cloned();
        let id = id.unwrap_or_else(|| RequestId::of(&parts.headers));
        let key = parts.extensions.get::<Tenant>().map(|tenant| Arc::clone(&tenant.0));
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.and_then(|caller| caller.name(&parts.headers)).map(Arc::from);
        Ok(Self { caller, ..Self::new(app, id, key) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_id(given: &str, taken: bool) {
        let headers = HeaderMap::from_iter([(REQUEST_ID, given.parse().unwrap())]);
        let id = RequestId::of(&headers).name;
        assert_eq!(&*id == given, taken, "{given:?} became {id:?}");
    }

    #[test]
    fn names_of_clients_are_taken_if_they_are_plain() {
        check_id("abc-DEF_1.2", true);
        check_id(&"x".repeat(64), true);
        check_id(&"x".repeat(65), false);
        check_id("", false);
        check_id("a b", false);
        check_id("a\"b", false);
        check_id("a=b", false);
        assert!(RequestId::of(&HeaderMap::new()).name.starts_with("req_"));
    }
}
