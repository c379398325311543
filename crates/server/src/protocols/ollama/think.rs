//! Whether and how hard the model is asked to think.

use crate::http::error::HttpError;
use api::Service;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// On, off, or how hard.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(untagged, expecting = "expected true, false, \"low\", \"medium\" or \"high\"")]
pub(crate) enum Think {
    Switch(bool),
    Level(Level),
}

/// How hard.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Low,
    Medium,
    High,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The template variables that carry `think`; templates differ in which one they read.
pub(crate) fn kwargs(think: Option<Think>) -> Map<String, Value> {
    let mut kwargs = Map::new();
    let Some(think) = think else { return kwargs };
    let on = think != Think::Switch(false);
    kwargs.insert("enable_thinking".into(), on.into());
    kwargs.insert("thinking".into(), on.into());
    if let Think::Level(level) = think {
        kwargs.insert("reasoning_effort".into(), level.name().into());
    }
    kwargs
}

/// Refuses thinking where the model does not.
pub(crate) fn check(think: Option<Think>, service: &Service) -> Result<(), HttpError> {
    match think {
        None | Some(Think::Switch(false)) => Ok(()),
        Some(_) if service.reasons() => Ok(()),
        Some(_) => {
            let message = format!("{} does not support thinking", service.info().name);
            Err(HttpError::invalid("think", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(think: Value, expected: Value) {
        let think = serde_json::from_value(think).unwrap();
        assert_eq!(Value::Object(kwargs(think)), expected);
    }

    #[test]
    fn templates_are_told_in_all_their_words() {
        check(Value::Null, json!({}));
        check(json!(false), json!({"enable_thinking": false, "thinking": false}));
        let high = json!({"enable_thinking": true, "thinking": true, "reasoning_effort": "high"});
        check(json!("high"), high);
        assert!(serde_json::from_value::<Think>(json!("a lot")).is_err());
    }
}
