//! How hard the model thinks: the effort of a request as variables of the chat template, for all
//! protocols.

use crate::error::ApiError;
use formats::ChatRules;
use serde_json::{Map, Value};

/// The variables of templates.
const EFFORT: &str = "reasoning_effort";
const SWITCH: &str = "enable_thinking";

/// The effort at which the model does not think, and the greatest one.
const NONE: &str = "none";
const MAX: &str = "max";
/// What is as great as `max` is, where the context is too short for that.
const HIGH: &str = "high";

/// The efforts of families with rules, in ascending order.
pub const EFFORTS: [&str; 7] = [NONE, "minimal", "low", "medium", HIGH, "xhigh", MAX];

/// Sets the variables that follow from the effort in `kwargs`, unless the request sets them itself:
/// `none` switches thinking off, and in families with `rules` every other effort switches it on.
/// `context` is the context length in tokens.
///
/// # Errors
/// If the family has rules and does not know the effort.
pub(crate) fn apply(
    kwargs: &mut Map<String, Value>,
    rules: Option<&ChatRules>,
    context: usize,
) -> Result<(), ApiError> {
    let Some(effort) = kwargs.get(EFFORT).filter(|effort| !effort.is_null()) else { return Ok(()) };
    let known = EFFORTS.into_iter().find(|known| effort == known);
    let rules = match (known, rules) {
        (Some(NONE), _) => {
            kwargs.entry(SWITCH).or_insert(false.into());
            return Ok(());
        }
        (Some(_), Some(rules)) => rules,
        (None, Some(_)) => {
            let message = format!("{EFFORT}: expected {}, found {effort}", EFFORTS.join(", "));
            return Err(ApiError::invalid(EFFORT, message));
        }
        (_, None) => return Ok(()),
    };
    kwargs.entry(SWITCH).or_insert(true.into());
    let least = rules.max_effort_context;
    if known == Some(MAX) && context < least {
        tracing::warn!(
            "{EFFORT}: {MAX} needs a context of {least} tokens, this one has {context}: it is {HIGH}"
        );
        kwargs.insert(EFFORT.into(), HIGH.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(given: Value, family: &str, context: usize) -> Result<Value, ApiError> {
        let mut kwargs = given.as_object().unwrap().clone();
        apply(&mut kwargs, formats::families::chat_rules(family), context)?;
        Ok(Value::Object(kwargs))
    }

    #[track_caller]
    fn check(family: &str, given: Value, expected: Value) {
        assert_eq!(applied(given, family, 1 << 20), Ok(expected));
    }

    #[test]
    fn efforts_switch_thinking_unless_the_request_does() {
        for family in ["deepseek_v4", "qwen3"] {
            let none = json!({"reasoning_effort": "none"});
            check(family, none, json!({"reasoning_effort": "none", "enable_thinking": false}));
            let both = json!({"reasoning_effort": "none", "enable_thinking": true});
            check(family, both.clone(), both);
            for silent in [json!({}), json!({"reasoning_effort": null})] {
                check(family, silent.clone(), silent);
            }
        }
        for effort in ["minimal", "low", "medium", "high", "xhigh", "max"] {
            let given = json!({"reasoning_effort": effort});
            check("qwen3", given.clone(), given.clone());
            let on = json!({"reasoning_effort": effort, "enable_thinking": true});
            check("deepseek_v4", given, on);
            let off = json!({"reasoning_effort": effort, "enable_thinking": false});
            check("deepseek_v4", off.clone(), off);
        }
    }

    #[test]
    fn the_greatest_effort_needs_its_context() {
        let effort = |context| {
            let given = json!({"reasoning_effort": "max"});
            applied(given, "deepseek_v4", context).unwrap()["reasoning_effort"].clone()
        };
        assert_eq!(effort(393_215), "high");
        assert_eq!(effort(393_216), "max");
    }

    #[test]
    fn unknown_efforts_are_refused_where_efforts_are_known() {
        for effort in [json!("ultra"), json!(3)] {
            let given = json!({ "reasoning_effort": effort });
            check("gpt_oss", given.clone(), given.clone());
            let error = applied(given, "deepseek_v4", 100).unwrap_err().to_string();
            let expected =
                "reasoning_effort: expected none, minimal, low, medium, high, xhigh, max";
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
