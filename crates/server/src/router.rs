//! The routes of the server, and the document that describes them.

use crate::http::app::App;
use crate::http::error::{self, Dialect};
use crate::http::fallback::{unknown_route, wrong_method};
use crate::http::middleware::{self, HEALTH, METRICS, READY, STATS};
use crate::http::options::ServerOptions;
use crate::http::rate_limit_headers;
use crate::http::request::{REQUEST_ID, RequestId};
use crate::http::shutdown::Life;
use crate::http::status;
use crate::http::web;
use crate::protocols::anthropic;
use crate::protocols::llama;
use crate::protocols::ollama;
use crate::protocols::openai;
use crate::protocols::responses;
use crate::protocols::responses::store::ResponseStore;
use api::Service;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The server's routes over `service`, to be served or tested as any tower service.
pub fn router(service: Service, options: ServerOptions) -> Router {
    routes(App::new(service, options, Life::default()))
}

pub(crate) fn routes(app: App) -> Router {
    let cors = app.options.cors_origin.as_deref().map(cors);
    let (router, document) = documented(&app.options).split_for_parts();
    // Serialized once: the document is long, and needs no key.
    let document = Bytes::from(json!(document).to_string());
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let router = router
        .route("/openapi.json", get(async move || (kind, document)))
        .route(HEALTH, get(status::health))
        .route(READY, get(status::ready))
        .route(METRICS, get(status::metrics))
        .route(STATS, get(status::stats))
        .route("/version", get(version))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(middleware::panicked))
        .layer(from_fn_with_state(app.clone(), middleware::admit))
        .layer(from_fn(translated))
        .with_state(app.clone())
        .merge(web::routes());
    match cors {
        Some(cors) => router.layer(cors),
        None => router,
    }
    .layer(from_fn_with_state(app, middleware::log))
}

/// The document's own part; paths and types come with the routes.
#[derive(OpenApi)]
#[openapi(info(title = "Gannet", description = "A large language model over HTTP"))]
struct Document;

/// The routes of all protocols.
fn documented(options: &ServerOptions) -> OpenApiRouter<App> {
    let store = ResponseStore::new(options.stored_responses, options.stored_response_bytes);
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(openai::routes::routes())
        .merge(responses::routes::routes().layer(Extension(Arc::new(store))))
        .merge(anthropic::routes::routes())
        .merge(ollama::routes::routes())
        .merge(llama::routes::routes())
}

/// Errors in the form of the protocol that was spoken.
async fn translated(request: Request, next: Next) -> Response {
    let dialect = Dialect::of(request.uri().path());
    let id = request.extensions().get::<RequestId>().cloned();
    let mut response = error::translate(next.run(request).await, dialect);
    if let (Dialect::Anthropic, Some(id)) = (dialect, id) {
        anthropic::routes::name(&mut response, &id);
    }
    response
}

/// Browsers of `origin` may call every route. An origin that no header can carry allows none.
///
/// Keys go in headers and never in cookies, so credentials are not allowed. Browsers ask apart
/// whether a page may call a private network: one that was named may, any page may not.
fn cors(origin: &str) -> CorsLayer {
    let allowed = match origin {
        "*" => AllowOrigin::any(),
        one => AllowOrigin::list(HeaderValue::from_str(one).ok()),
    };
    let shown = rate_limit_headers::headers().chain([REQUEST_ID, header::RETRY_AFTER]);
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE, Method::OPTIONS])
        // A wildcard would leave out Authorization.
        .allow_headers(AllowHeaders::mirror_request())
        .allow_private_network(origin != "*")
        .expose_headers(shown.collect::<Vec<_>>())
}

async fn version() -> Json<Value> {
    Json(json!({ "name": "gannet", "version": env!("CARGO_PKG_VERSION") }))
}
