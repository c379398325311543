//! How hard the model thinks: the effort of a request as variables of the chat template, for all
//! protocols.

use crate::error::ApiError;
use formats::ChatRules;
use serde_json::{Map, Value};

/// The variable of the effort.
const EFFORT: &str = "reasoning_effort";
/// The variable of the effort in templates of Muse Glimmer.
pub(crate) const STRENGTH: &str = "reasoning_strength";
/// The variables that switch thinking; families differ in which one their templates read.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// The effort at which the model does not think, and the greatest one.
const NONE: &str = "none";
const MAX: &str = "max";
/// What is as great as `max` is, where the context is too short for that.
const HIGH: &str = "high";

/// The efforts of families with rules, in ascending order.
pub const EFFORTS: [&str; 7] = [NONE, "minimal", "low", "medium", HIGH, "xhigh", MAX];

/// The template variables that switch thinking on or off, under the names of all families.
pub fn thinking_switches(on: bool) -> [(String, Value); 2] {
    SWITCHES.map(|name| (name.to_owned(), on.into()))
}

/// Sets the variables that follow from the effort in `kwargs`: `none` switches thinking off, and
/// every other effort, the least one too, switches it on, unless the request sets a switch itself.
/// `context` is the context length in tokens.
///
/// # Errors
/// If the family has `rules` and does not know the effort.
pub(crate) fn apply(
    kwargs: &mut Map<String, Value>,
    rules: Option<&ChatRules>,
    context: usize,
) -> Result<(), ApiError> {
    let Some(effort) = kwargs.get(EFFORT).filter(|effort| !effort.is_null()) else { return Ok(()) };
    let known = EFFORTS.into_iter().find(|known| effort == known);
    if rules.is_some() && known.is_none() {
        let message = format!("{EFFORT}: expected {}, found {effort}", EFFORTS.join(", "));
        return Err(ApiError::invalid(EFFORT, message));
    }
    let given = |name: &&str| kwargs.get(*name).is_some_and(|value| !value.is_null());
    if !SWITCHES.iter().any(given) {
        kwargs.extend(thinking_switches(known != Some(NONE)));
    }
    let least = rules.map_or(0, |rules| rules.max_effort_context);
    if known == Some(MAX) && context < least {
        tracing::warn!(
            "{EFFORT}: {MAX} needs a context of {least} tokens, this one has {context}: it is {HIGH}"
        );
        kwargs.insert(EFFORT.into(), HIGH.into());
    }
    Ok(())
}

/// Sets the strength that follows from the effort in `kwargs`, unless the request sets it itself:
/// of the efforts, the templates that read it know those from `low` to `xhigh`.
pub(crate) fn strength(kwargs: &mut Map<String, Value>) {
    let Some(effort) = kwargs.get(EFFORT).and_then(Value::as_str) else { return };
    let strength = match effort {
        NONE | "minimal" => "low",
        MAX => "xhigh",
        other => other,
    };
    let strength = Value::from(strength);
    kwargs.entry(STRENGTH).or_insert(strength);
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
    fn strengths_follow_efforts_unless_the_request_sets_them() {
        let strength = |given: Value| {
            let mut kwargs = given.as_object().unwrap().clone();
            super::strength(&mut kwargs);
            kwargs.get(STRENGTH).cloned()
        };
        assert_eq!(strength(json!({})), None);
        for (effort, expected) in [("none", "low"), ("medium", "medium"), ("max", "xhigh")] {
            assert_eq!(strength(json!({"reasoning_effort": effort})), Some(expected.into()));
        }
        let given = json!({"reasoning_effort": "high", "reasoning_strength": "low"});
        assert_eq!(strength(given), Some("low".into()));
    }

    #[test]
    fn efforts_switch_thinking_unless_the_request_does() {
        let families = ["deepseek_v4", "qwen3", "gemma4"];
        for effort in ["none", "minimal", "low", "medium", "high", "xhigh", "max"] {
            let given = json!({"reasoning_effort": effort});
            let on = effort != "none";
            let switched =
                json!({"reasoning_effort": effort, "enable_thinking": on, "thinking": on});
            families.iter().for_each(|family| check(family, given.clone(), switched.clone()));
            for switch in SWITCHES {
                let own = json!({"reasoning_effort": effort, switch: !on});
                families.iter().for_each(|family| check(family, own.clone(), own.clone()));
            }
        }
        for silent in [json!({}), json!({"reasoning_effort": null})] {
            families.iter().for_each(|family| check(family, silent.clone(), silent.clone()));
        }
        let null = json!({"reasoning_effort": "low", "enable_thinking": null});
        let on = json!({"reasoning_effort": "low", "enable_thinking": true, "thinking": true});
        check("qwen3", null, on);
        // The templates of other families may know further efforts.
        let own = json!({"reasoning_effort": "ultra", "enable_thinking": true, "thinking": true});
        check("gpt_oss", json!({"reasoning_effort": "ultra"}), own);
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
            let error = applied(given, "deepseek_v4", 100).unwrap_err().to_string();
            let expected =
                "reasoning_effort: expected none, minimal, low, medium, high, xhigh, max";
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
