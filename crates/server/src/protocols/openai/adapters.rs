//! `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`: load and unload adapters
//! while the server runs, as in vLLM.

use crate::generate::chosen_adapters::{check_updates, refused};
use crate::generate::flow::prepare;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::openai::problem::Problem;
use api::AdapterError;
use axum::body::Body;
use axum::http::StatusCode;
use serde::Deserialize;
use std::path::Path;
use utoipa::ToSchema;

/// The adapter to load.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LoadLoraAdapter)]
pub(crate) struct LoadBody {
    /// The name by which requests choose it.
    lora_name: String,
    /// A folder of PEFT or a `.gguf` file on the machine of the server.
    lora_path: String,
    /// Takes the place of an adapter of this name, if there is one; false by default.
    #[serde(default)]
    load_inplace: bool,
}

/// The adapter to unload.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UnloadLoraAdapter)]
pub(crate) struct UnloadBody {
    /// Its name.
    lora_name: String,
}

/// Loads an adapter.
#[utoipa::path(post, path = "/v1/load_lora_adapter", tag = "OpenAI", request_body = LoadBody,
    responses((status = 200, body = String), (status = 501, body = Problem), Refusals<Problem>))]
pub(crate) async fn load(context: RequestContext, body: Body) -> Result<String, HttpError> {
    check_updates(&context.app)?;
    prepare(context, body, |service, body| {
        let LoadBody { lora_name: name, lora_path: path, load_inplace } = wire::read(body)?;
        let added = match load_inplace {
            true => service.adapters.replace(&name, Path::new(&path)),
            false => service.adapters.add(Some(&name), Path::new(&path)),
        };
        let added = added.map_err(|error| match error {
            AdapterError::Name(message) => HttpError::at("lora_name", message),
            other => refused("lora_path", other),
        })?;
        tracing::info!(adapter = added.name, rank = added.rank(), "loaded");
        Ok(format!("the adapter {name} is loaded"))
    })
    .await
}

/// Unloads an adapter. Requests that have begun with it keep it.
#[utoipa::path(post, path = "/v1/unload_lora_adapter", tag = "OpenAI", request_body = UnloadBody,
    responses((status = 200, body = String), (status = 404, body = Problem), (status = 501, body = Problem),
        Refusals<Problem>))]
pub(crate) async fn unload(context: RequestContext, body: Body) -> Result<String, HttpError> {
    check_updates(&context.app)?;
    prepare(context, body, |service, body| {
        let UnloadBody { lora_name: name } = wire::read(body)?;
        let removed = service.adapters.remove(&name);
        removed.map_err(|error| {
            let mut error = HttpError::at("lora_name", error);
            error.status = StatusCode::NOT_FOUND;
            error
        })?;
        tracing::info!(adapter = name, "unloaded");
        Ok(format!("the adapter {name} is unloaded"))
    })
    .await
}
