//! The adapters of a request, which its `model` or its `lora` names.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use api::{AdapterError, Service};
use axum::http::StatusCode;
use serde_json::Value;
use std::borrow::Cow;

/// The service of the adapters that the request of `body` names.
pub(crate) fn chosen<'a>(
    service: &'a Service,
    body: &Value,
) -> Result<Cow<'a, Service>, HttpError> {
    let Some(object) = body.as_object() else { return Ok(Cow::Borrowed(service)) };
    let model = object.get("model").and_then(Value::as_str);
    let named = model.map_or(Ok(None), |model| service.adapters.of_model(model));
    let named = named.map_err(|error| refused("model", error))?;
    let listed = scales(object.get("lora"))?;
    match (named, listed) {
        (None, None) => Ok(Cow::Borrowed(service)),
        (Some(adapter), None) => {
            Ok(Cow::Owned(service.adapted(adapter.alone(), Some(&adapter.name))))
        }
        (None, Some(scales)) => {
            let adapters = service.adapters.of_numbers(&scales);
            let adapters = adapters.map_err(|error| refused("lora", error))?;
            Ok(Cow::Owned(service.adapted(adapters, None)))
        }
        (Some(_), Some(_)) => {
            let problem = "cannot be given together with the name of an adapter as model";
            Err(HttpError::member("lora", problem))
        }
    }
}

/// The numbers of adapters with their factors, as llama.cpp's server takes them.
pub(crate) fn scales(list: Option<&Value>) -> Result<Option<Vec<(usize, f32)>>, HttpError> {
    let Some(list) = list.filter(|list| !list.is_null()) else { return Ok(None) };
    let items = list.as_array().ok_or_else(|| wrong("lora", "an array", list))?;
    let scale = |fields: ObjectReader<'_>| {
        let number = |name: &str| fields.value(name).ok_or_else(|| fields.missing(name));
        let (id, scale) = (number("id")?, number("scale")?);
        let whole = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let whole = whole.ok_or_else(|| wrong(&fields.path("id"), "a number of an adapter", id));
        let factor = scale.as_f64().map(|scale| scale as f32);
        let factor = factor.ok_or_else(|| wrong(&fields.path("scale"), "a number", scale));
        Ok((whole?, factor?))
    };
    ObjectReader::all(items, "lora")
        .map(|fields| scale(fields?))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Checks that adapters may be changed.
pub(crate) fn check_updates(app: &App) -> Result<(), HttpError> {
    match app.options.adapter_updates {
        true => Ok(()),
        false => {
            let message = "adapters are not changed on request (--allow-lora-updates)";
            Err(HttpError::not_supported(message))
        }
    }
}

/// The error of an adapter that the member `name` chooses.
pub(crate) fn refused(name: &str, error: AdapterError) -> HttpError {
    match error {
        AdapterError::Unknown(message) if name == "model" => {
            HttpError::request(StatusCode::NOT_FOUND, message).with_code("model_not_found")
        }
        AdapterError::Unknown(message)
        | AdapterError::Name(message)
        | AdapterError::Refused(message) => HttpError::at(name, message),
    }
}
