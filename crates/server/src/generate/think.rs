//! Ollama's `think`: on, off, or how hard. Chat completions take it too.

use api::thinking_switches;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// On, off, or how hard.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(
    untagged,
    expecting = "expected true, false, \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" \
                          or \"max\""
)]
pub(crate) enum Think {
    Switch(bool),
    Level(Level),
}

/// How hard.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    None,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

impl Think {
    /// Whether to think at all.
    pub fn is_on(self) -> bool {
        !matches!(self, Self::Switch(false) | Self::Level(Level::None))
    }

    /// The template variables that carry it.
    pub fn kwargs(self) -> Map<String, Value> {
        let mut kwargs = Map::from_iter(thinking_switches(self.is_on()));
        if let Self::Level(level) = self {
            kwargs.insert("reasoning_effort".into(), json!(level));
        }
        kwargs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(think: Value, expected: Value) {
        let think: Think = serde_json::from_value(think).unwrap();
        assert_eq!(Value::Object(think.kwargs()), expected);
    }

    #[test]
    fn levels_are_efforts_and_switch_thinking() {
        check(json!(false), json!({"enable_thinking": false, "thinking": false}));
        check(json!(true), json!({"enable_thinking": true, "thinking": true}));
        for level in ["none", "minimal", "low", "medium", "high", "xhigh", "max"] {
            let on = level != "none";
            let effort = json!({"enable_thinking": on, "thinking": on, "reasoning_effort": level});
            check(json!(level), effort);
        }
        assert!(serde_json::from_value::<Think>(json!("a lot")).is_err());
    }
}
