//! The routes of the server, and the document that describes them.

use crate::generate::receipts::RECEIPT;
use crate::http::app::App;
use crate::http::event_schema;
use crate::http::fallback::unknown_route;
use crate::http::middleware::{self, Exemptions};
use crate::http::models::ServedModels;
use crate::http::observability::cache::CACHE;
use crate::http::options::ServerOptions;
use crate::http::origin::{self, LOCALHOST, is_local};
use crate::http::protocol;
use crate::http::rate_limit_headers;
use crate::http::receipt_key;
use crate::http::request::REQUEST_ID;
use crate::http::shutdown::Life;
use crate::http::status;
use crate::http::web;
use crate::protocols::anthropic::Anthropic;
use crate::protocols::llama::Llama;
use crate::protocols::ollama::Ollama;
use crate::protocols::openai::OpenAi;
use crate::protocols::ranking::Ranking;
use crate::protocols::responses::Responses;
use crate::protocols::responses::store::{ResponseStore, StoreLimits};
use crate::unprefixed;
use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use std::sync::Arc;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

/// The server's routes over `models`, to be served or tested as any tower service.
pub fn router(models: impl Into<ServedModels>, options: ServerOptions) -> Router {
    let app = App::new(models.into(), options, Life::default());
    let store = store(&app.options);
    routes(app, store)
}

/// What the Responses API keeps.
pub(crate) fn store(options: &ServerOptions) -> Arc<ResponseStore> {
    let limits = StoreLimits {
        responses: options.stored_responses,
        bytes: options.stored_response_bytes,
        age: options.stored_response_age,
    };
    Arc::new(match &options.state {
        Some(state) => ResponseStore::open(limits, state.clone(), options.resume_background),
        None => ResponseStore::new(limits),
    })
}

pub(crate) fn routes(app: App, store: Arc<ResponseStore>) -> Router {
    let cors = app.options.cors_origin.as_deref().map(cors);
    let pages = if app.options.ui { web::routes() } else { Router::new() };
    let pages = pages.layer(from_fn_with_state(app.clone(), origin::guard));
    let router = described(&app, store).0.with_state(app.clone()).merge(pages);
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    unprefixed::served(router.layer(from_fn_with_state(app, middleware::log)))
}

/// The routes without the pages, and what the document says of them.
fn described(app: &App, store: Arc<ResponseStore>) -> (Router<App>, utoipa::openapi::OpenApi) {
    let (responses, described) = protocol::routes::<Responses>(app);
    let protocols = [
        protocol::routes::<OpenAi>(app),
        (responses.layer(Extension(store)), described),
        protocol::routes::<Anthropic>(app),
        protocol::routes::<Ollama>(app),
        protocol::routes::<Llama>(app),
        protocol::routes::<Ranking>(app),
    ];
    let (mut router, mut document) = (Router::new(), ApiHead::openapi());
    let (own, described) = own_routes().split_for_parts();
    document.merge(described);
    for (routes, part) in protocols {
        router = router.merge(routes);
        document.merge(part);
    }
    unprefixed::describe(&mut document);
    // Serialized once: the document is long, and needs no key.
    let mut written = json!(document);
    event_schema::describe(&mut written);
    let own = own.layer(Extension(Document(Bytes::from(written.to_string()))));
    let own = protocol::guarded(own, app, OWN_EXEMPTIONS);
    (own.merge(router), document)
}

/// The own routes of supervisors, and the document, which the page reads before it has a key.
const OWN_EXEMPTIONS: Exemptions = Exemptions {
    keyless: &["/health", "/v1/health", "/ready", "/openapi.json"],
    open_to_the_end: &["/health", "/v1/health", "/ready", "/metrics", "/v1/stats"],
    unlimited: &[],
};

/// The routes that belong to no protocol, and the answer to paths that are no route.
fn own_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(openapi))
        .routes(routes!(status::health))
        .route("/v1/health", get(status::health))
        .routes(routes!(status::ready))
        .routes(routes!(status::metrics).layer(from_fn(protocol::translated::<Llama>)))
        .routes(routes!(status::stats))
        .routes(routes!(status::version))
        .routes(routes!(receipt_key::receipt_key))
        .fallback(unknown_route)
}

/// The document, as JSON.
#[derive(Clone, Debug)]
struct Document(Bytes);

/// This description of all routes.
#[utoipa::path(get, path = "/openapi.json", tag = "Operation",
    responses((status = 200, body = Object)))]
async fn openapi(Extension(Document(document)): Extension<Document>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

/// The head of the document; the routes add paths and types.
#[derive(OpenApi)]
#[openapi(info(title = "Gannet", description = "A large language model over HTTP"))]
struct ApiHead;

/// Browsers of `origin` may call every route. An origin that no header can carry allows none.
///
/// Keys go in headers and never in cookies, so credentials are not allowed. Browsers ask apart
/// whether a page may call a private network: one that was named may, any page may not. The layer
/// answers OPTIONS itself, ahead of keys and limits: a browser asks without a key.
fn cors(origin: &str) -> CorsLayer {
    let allowed = match origin {
        "*" => AllowOrigin::any(),
        LOCALHOST => AllowOrigin::predicate(|origin, _| is_local(origin)),
        one => AllowOrigin::list(HeaderValue::from_str(one).ok()),
    };
    let shown =
        rate_limit_headers::headers().chain([REQUEST_ID, CACHE, RECEIPT, header::RETRY_AFTER]);
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE, Method::OPTIONS])
        // A wildcard would leave out Authorization.
        .allow_headers(AllowHeaders::mirror_request())
        .allow_private_network(origin != "*")
        .expose_headers(shown.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::models::{KeepAlive, ModelCollection};
    use crate::protocols::ollama::FILES_OF_MODELS;
    use std::collections::BTreeSet;

    /// The paths of the routes of `router`, with parameters as the document writes them.
    fn paths(router: &Router<App>) -> BTreeSet<String> {
        let shown = format!("{router:?}");
        let texts = shown.split('"').skip(1).step_by(2);
        texts.filter(|text| text.starts_with('/')).map(|path| path.replace("{*", "{")).collect()
    }

    #[test]
    fn every_route_is_described() {
        let models =
            ModelCollection { models: Vec::new(), memory: None, keep_alive: KeepAlive::Forever };
        let options = ServerOptions { adapter_updates: true, ..ServerOptions::default() };
        let app = App::new(models.into(), options, Life::default());
        let (router, document) = described(&app, store(&app.options));
        let (served, described) = (paths(&router), &document.paths.paths);
        // The router has paths for what lies below a fallback; the document leaves out refusals.
        let fallbacks = ["/", "/api", "/api/", "/v1/messages/"];
        let is_route = |path: &&String| {
            !path.contains("__private__axum_fallback")
                && !fallbacks.contains(&path.as_str())
                && !FILES_OF_MODELS.contains(&path.as_str())
        };
        let routes = served.iter().filter(is_route);
        let absent: Vec<_> = routes.filter(|path| !described.contains_key(*path)).collect();
        assert!(absent.is_empty() && served.len() > 50, "{absent:?} of {served:?}");
        let is_served = |path: &&String| served.contains(*path) || unprefixed::is_unprefixed(path);
        let unserved: Vec<_> = described.keys().filter(|path| !is_served(path)).collect();
        assert!(unserved.is_empty(), "{unserved:?} are described and not served");
    }
}
