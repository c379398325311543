//! The member `keep_alive` of requests: how long their model stays loaded after them.

use crate::generate::flow::NamedModel;
use crate::http::error::HttpError;
use crate::http::models::KeepAlive;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The member.
const FIELD: &str = "keep_alive";

/// Seconds or a duration such as `5m`; a negative one is for ever.
#[derive(Clone, Debug, Deserialize, PartialEq, ToSchema)]
#[schema(as = KeepAlive)]
#[serde(untagged, expecting = "expected a number of seconds or a duration such as \"5m\"")]
pub(crate) enum KeepAliveTime {
    Seconds(f64),
    Text(String),
}

impl KeepAliveTime {
    /// The time.
    ///
    /// # Errors
    /// If the text is no duration.
    pub fn read(&self) -> Result<KeepAlive, HttpError> {
        let time = match self {
            Self::Seconds(seconds) => KeepAlive::of_seconds(*seconds),
            Self::Text(text) => text.parse().ok(),
        };
        let problem = "must be a number of seconds or a duration such as \"5m\"";
        time.ok_or_else(|| HttpError::member(FIELD, problem))
    }
}

/// Whether `time` unloads the model at once.
pub(super) fn unloads(time: Option<&KeepAliveTime>) -> Result<bool, HttpError> {
    let time = time.map(KeepAliveTime::read).transpose()?;
    Ok(time == Some(KeepAlive::NOT))
}

/// How long the model of a body stays loaded, if it says so in a form that can be read.
pub(super) fn of_body(body: &Value) -> Option<KeepAlive> {
    KeepAliveTime::deserialize(body.get(FIELD)?).ok()?.read().ok()
}

/// Whether a request asks for no more than to unload a model that is not loaded. `work` are the
/// members with which it would ask for an answer.
pub(super) fn is_done(named: &NamedModel, work: &[&str]) -> bool {
    let body = named.body();
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let asks = work.iter().filter_map(|name| body.get(*name)).any(|value| !is_empty(value));
    let unloads = of_body(body).is_some_and(|time| time == KeepAlive::NOT);
    named.is_away() && unloads && !asks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_unloads() {
        let unloads = |keep: KeepAliveTime| unloads(Some(&keep)).ok();
        assert_eq!(unloads(KeepAliveTime::Seconds(0.0)), Some(true));
        assert_eq!(unloads(KeepAliveTime::Text("0s".into())), Some(true));
        assert_eq!(unloads(KeepAliveTime::Seconds(-1.0)), Some(false));
        assert_eq!(unloads(KeepAliveTime::Text("soon".into())), None);
    }
}
