//! The seam between HTTP and a protocol: its routes, its names of fields and its error objects.

use crate::http::app::App;
use crate::http::content_encoding;
use crate::http::error::{self, HttpError};
use crate::http::fallback::wrong_method;
use crate::http::middleware::{self, Exemptions};
use crate::http::origin;
use crate::http::request::RequestId;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use engine::Field;
use serde_json::Value;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// A protocol of requests and answers.
pub(crate) trait Protocol: 'static {
    /// The routes that admission treats differently.
    const EXEMPTIONS: Exemptions = Exemptions::NONE;

    /// The header besides [`REQUEST_ID`](crate::http::request::REQUEST_ID) in which clients look
    /// for the name of their request.
    const ID_HEADER: Option<HeaderName> = None;

    /// The routes, with their part of the OpenAPI document.
    fn routes() -> OpenApiRouter<App>;

    /// The JSON object of an error.
    fn error_json(error: &HttpError) -> Value {
        error.body()
    }

    /// The name of `field` in requests.
    fn field(field: &Field) -> &'static str {
        error::field(field)
    }

    /// The JSON object of `error`, with its field under the protocol's name.
    fn json(error: &HttpError) -> Value {
        Self::error_json(&error.renamed(Self::field))
    }
}

/// The routes of `P`, whose errors are in the form of `P`, and their part of the document.
pub(crate) fn routes<P: Protocol>(app: &App) -> (Router<App>, OpenApi) {
    let (router, document) = P::routes().split_for_parts();
    (guarded(router, app, P::EXEMPTIONS).layer(from_fn(translated::<P>)), document)
}

/// `router` behind the check of origins and admission, with JSON errors for wrong methods and for
/// panics.
pub(crate) fn guarded(router: Router<App>, app: &App, exemptions: Exemptions) -> Router<App> {
    router
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), content_encoding::decode))
        .layer(CatchPanicLayer::custom(middleware::panicked))
        .layer(from_fn_with_state((app.clone(), exemptions), middleware::admit))
        .layer(from_fn_with_state(app.clone(), origin::guard))
}

/// How the errors of a request are written, in place of the form of its route's protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorForm(pub fn(&HttpError) -> Value);

/// Writes the error of a response, if it is one, in the form of `P`.
pub(crate) async fn translated<P: Protocol>(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let form = request.extensions().get().copied().unwrap_or(ErrorForm(P::json));
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<HttpError>() {
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response = response.map(|_| Body::from((form.0)(&error).to_string()));
    }
    let name = id.and_then(|id| HeaderValue::from_str(&id.name).ok());
    if let (Some(header), Some(name)) = (P::ID_HEADER, name) {
        response.headers_mut().insert(header, name);
    }
    response
}
