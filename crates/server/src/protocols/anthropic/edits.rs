//! The member `context_management`: what is removed from a conversation ahead of its answer.
//!
//! Source: the types of Anthropic's official clients. Old results of tools are replaced with a note
//! and old reasoning is removed; what the client keeps is not changed. Conversations are not
//! summarized by themselves.

use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::anthropic::response::{AppliedEdit, ContextManagement};
use crate::protocols::warnings::Warnings;
use api::{Message, Part, Role};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashSet;
use utoipa::ToSchema;

/// What the model reads in place of a result that was removed.
const CLEARED: &str = "[old result of a tool, removed]";

/// What is removed, in this order.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = AnthropicContextManagement)]
pub(crate) struct ContextEdits {
    pub edits: Option<Vec<Edit>>,
}

/// One kind of removal. Each has members of its own.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicContextEdit)]
pub(crate) struct Edit {
    #[serde(rename = "type")]
    kind: EditKind,
    /// The size of a conversation from which on results are removed; 100,000 tokens by default.
    trigger: Option<Amount>,
    /// How many of the newest uses of tools stay, 3 by default; or how many of the newest turns
    /// keep their reasoning, 1 by default, or `all`.
    #[schema(value_type = Option<Object>)]
    keep: Option<Value>,
    /// Fewest tokens that are worth a change of the prompt.
    clear_at_least: Option<Amount>,
    /// Tools whose results stay.
    exclude_tools: Option<Vec<String>>,
    /// Whether arguments of calls are removed too, or those of which tools.
    #[schema(value_type = Option<Object>)]
    clear_tool_inputs: Option<Value>,
}

/// What an edit removes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[schema(as = AnthropicContextEditKind)]
enum EditKind {
    /// Results of tools, the oldest first.
    #[serde(rename = "clear_tool_uses_20250919")]
    ToolUses,
    /// Reasoning of earlier turns.
    #[serde(rename = "clear_thinking_20251015")]
    Thinking,
    /// Nothing: a summary of the conversation is not made, which a warning says.
    #[serde(rename = "compact_20260112")]
    Compact,
}

/// A number of something.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicAmount)]
struct Amount {
    #[serde(rename = "type")]
    unit: Unit,
    #[serde(deserialize_with = "wire::exact")]
    value: usize,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicUnit)]
enum Unit {
    InputTokens,
    ToolUses,
    ThinkingTurns,
}

impl ContextEdits {
    /// Removes what the edits name from `messages`, of which `count` gives the tokens. Returns what
    /// was removed.
    ///
    /// # Errors
    /// If an edit is not supported, or `count` fails.
    pub fn apply(
        &self,
        messages: &mut Vec<Message>,
        warnings: &mut Warnings,
        mut count: impl FnMut(&[Message]) -> Result<usize, HttpError>,
    ) -> Result<ContextManagement, HttpError> {
        let mut applied = Vec::new();
        for (at, edit) in self.edits.iter().flatten().enumerate() {
            let path = format!("context_management.edits[{at}]");
            let mut edited = messages.clone();
            let cleared = match edit.kind {
                EditKind::Compact => {
                    warnings.add("compact_20260112", "the conversation is not summarized");
                    0
                }
                EditKind::Thinking => edit.clear_thinking(&mut edited, &path)?,
                EditKind::ToolUses => {
                    let due = edit.is_due(messages, &mut count)?;
                    let cleared = edit.clear_tool_uses(&mut edited, &path)?;
                    if due { cleared } else { 0 }
                }
            };
            if cleared == 0 {
                continue;
            }
            let tokens = count(messages)?.saturating_sub(count(&edited)?);
            if tokens >= edit.clear_at_least.map_or(0, |least| least.value) {
                applied.push(edit.applied(cleared, tokens));
                *messages = edited;
            }
        }
        Ok(ContextManagement { applied_edits: applied })
    }
}

impl Edit {
    fn applied(&self, cleared: usize, cleared_input_tokens: usize) -> AppliedEdit {
        match self.kind {
            EditKind::ToolUses => {
                AppliedEdit::ToolUses { cleared_input_tokens, cleared_tool_uses: cleared }
            }
            EditKind::Thinking | EditKind::Compact => {
                AppliedEdit::Thinking { cleared_input_tokens, cleared_thinking_turns: cleared }
            }
        }
    }

    fn is_due(
        &self,
        messages: &[Message],
        mut count: impl FnMut(&[Message]) -> Result<usize, HttpError>,
    ) -> Result<bool, HttpError> {
        let trigger = self.trigger.unwrap_or(Amount { unit: Unit::InputTokens, value: 100_000 });
        match trigger.unit {
            Unit::InputTokens => Ok(count(messages)? > trigger.value),
            _ => Ok(messages.iter().filter(|message| message.role == Role::Tool).count()
                > trigger.value),
        }
    }

    /// The member `keep` as a number.
    fn kept(&self, path: &str, otherwise: usize) -> Result<usize, HttpError> {
        let Some(keep) = &self.keep else { return Ok(otherwise) };
        Ok(wire::part::<Amount>(keep, &format!("{path}.keep"))?.value)
    }

    /// Returns how many uses were cleared.
    fn clear_tool_uses(&self, messages: &mut [Message], path: &str) -> Result<usize, HttpError> {
        let keep = self.kept(path, 3)?;
        let inputs = self.inputs(path)?;
        let results = messages.iter().filter(|message| message.role == Role::Tool);
        let uses: Vec<String> = results.filter_map(|message| message.call_id.clone()).collect();
        let older = uses.len().saturating_sub(keep);
        let mut old: HashSet<String> = uses.into_iter().take(older).collect();
        for call in messages.iter_mut().flat_map(|message| &mut message.calls) {
            let Some(id) = call.id.clone().filter(|id| old.contains(id)) else { continue };
            if self.exclude_tools.iter().flatten().any(|name| *name == call.name) {
                old.remove(&id);
            } else if inputs.clears(&call.name) {
                call.arguments = Map::new().into();
            }
        }
        let mut cleared = 0;
        for message in messages.iter_mut().filter(|message| message.role == Role::Tool) {
            let is_old = message.call_id.as_ref().is_some_and(|id| old.contains(id));
            if is_old && message.text().as_deref() != Some(CLEARED) {
                message.content = vec![Part::Text(CLEARED.into())];
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    /// The member `clear_tool_inputs`.
    fn inputs(&self, path: &str) -> Result<Inputs, HttpError> {
        match &self.clear_tool_inputs {
            None | Some(Value::Bool(false)) => Ok(Inputs::Of(Vec::new())),
            Some(Value::Bool(true)) => Ok(Inputs::All),
            Some(names) => Ok(Inputs::Of(wire::part(names, &format!("{path}.clear_tool_inputs"))?)),
        }
    }

    /// Returns how many turns were cleared.
    fn clear_thinking(&self, messages: &mut [Message], path: &str) -> Result<usize, HttpError> {
        let keeps_all = |keep: &Value| *keep == "all" || keep["type"] == "all";
        if self.keep.as_ref().is_some_and(keeps_all) {
            return Ok(0);
        }
        let keep = self.kept(path, 1)?;
        let thinks = |message: &Message| message.reasoning.is_some();
        let (mut kept, mut cleared, mut within) = (0, 0, false);
        // A turn with calls is several messages.
        for message in messages.iter_mut().rev() {
            if message.role == Role::User {
                within = false;
            } else if thinks(message) {
                if !within {
                    within = true;
                    kept += 1;
                    cleared += usize::from(kept > keep);
                }
                if kept > keep {
                    message.reasoning = None;
                }
            }
        }
        Ok(cleared)
    }
}

/// Of which tools arguments are removed.
enum Inputs {
    All,
    Of(Vec<String>),
}

impl Inputs {
    fn clears(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(names) => names.iter().any(|name| name == tool),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::anthropic::messages;
    use serde_json::json;

    /// A conversation of three uses of tools, each with reasoning.
    fn conversation() -> Vec<Message> {
        let mut all = vec![json!({"role": "user", "content": "a"})];
        for (at, name) in ["f", "g", "f"].into_iter().enumerate() {
            let id = format!("t{at}");
            all.push(json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "why", "signature": ""},
                {"type": "tool_use", "id": id, "name": name, "input": {"x": 1}}]}));
            all.push(json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": "result"}]}));
        }
        all.push(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "so", "signature": ""}, {"type": "text", "text": "b"}]}));
        all.push(json!({"role": "user", "content": "c"}));
        let body = wire::read(&json!({"messages": all})).unwrap();
        messages::read(&body, &mut Warnings::default()).unwrap().list
    }

    /// The messages after `edit`, in short, and what was applied. A message has ten tokens, and a
    /// cleared result one.
    fn edited(edit: Value) -> (String, Value) {
        let edits: ContextEdits =
            wire::part(&json!({"edits": [edit]}), "context_management").unwrap();
        let mut messages = conversation();
        let count = |messages: &[Message]| {
            let cleared = |message: &&Message| message.text().as_deref() == Some(CLEARED);
            Ok(10 * messages.len() - 9 * messages.iter().filter(cleared).count())
        };
        let applied = edits.apply(&mut messages, &mut Warnings::default(), count).unwrap();
        let short = messages.iter().map(|message| match message.role {
            Role::Tool if message.text().as_deref() == Some(CLEARED) => "-".to_owned(),
            Role::Tool => "r".into(),
            Role::Assistant => {
                let thought = if message.reasoning.is_some() { "T" } else { "" };
                let call = message.calls.first().map(|call| format!("{}", call.arguments));
                format!("{thought}{}", call.unwrap_or_else(|| "b".into()))
            }
            _ => "u".into(),
        });
        (short.collect::<Vec<_>>().join(" "), json!(applied)["applied_edits"].clone())
    }

    fn check(edit: Value, expected: &str, applied: Value) {
        assert_eq!(edited(edit.clone()), (expected.to_owned(), applied), "{edit}");
    }

    const WHOLE: &str = "u T{\"x\":1} r T{\"x\":1} r T{\"x\":1} r Tb u";

    #[test]
    fn the_oldest_results_go_when_the_conversation_is_large() {
        let edit = |more: Value| {
            let mut edit = json!({"type": "clear_tool_uses_20250919",
                "trigger": {"type": "tool_uses", "value": 2}, "keep": {"type": "tool_uses", "value": 1}});
            edit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            edit
        };
        let applied = |uses: usize| {
            json!([{"type": "clear_tool_uses_20250919",
            "cleared_input_tokens": 9 * uses, "cleared_tool_uses": uses}])
        };
        check(edit(json!({})), "u T{\"x\":1} - T{\"x\":1} - T{\"x\":1} r Tb u", applied(2));
        check(
            edit(json!({"exclude_tools": ["g"]})),
            "u T{\"x\":1} - T{\"x\":1} r T{\"x\":1} r Tb u",
            applied(1),
        );
        check(
            edit(json!({"clear_tool_inputs": true})),
            "u T{} - T{} - T{\"x\":1} r Tb u",
            applied(2),
        );
        check(
            edit(json!({"clear_tool_inputs": ["f"]})),
            "u T{} - T{\"x\":1} - T{\"x\":1} r Tb u",
            applied(2),
        );
        check(edit(json!({"trigger": {"type": "tool_uses", "value": 3}})), WHOLE, json!([]));
        check(edit(json!({"trigger": {"type": "input_tokens", "value": 90}})), WHOLE, json!([]));
        check(
            edit(json!({"clear_at_least": {"type": "input_tokens", "value": 19}})),
            WHOLE,
            json!([]),
        );
        check(json!({"type": "clear_tool_uses_20250919"}), WHOLE, json!([]));
    }

    #[test]
    fn reasoning_of_earlier_turns_goes() {
        let edit = |keep: Value| json!({"type": "clear_thinking_20251015", "keep": keep});
        let all = json!([]);
        check(edit(json!("all")), WHOLE, all.clone());
        check(edit(json!({"type": "all"})), WHOLE, all.clone());
        check(edit(json!(null)), WHOLE, all.clone());
        check(edit(json!({"type": "thinking_turns", "value": 1})), WHOLE, all);
        let none = json!([{"type": "clear_thinking_20251015", "cleared_input_tokens": 0,
                           "cleared_thinking_turns": 1}]);
        let without = WHOLE.replace('T', "");
        check(edit(json!({"type": "thinking_turns", "value": 0})), &without, none);
    }

    #[test]
    fn summaries_are_warned_of() {
        let edits: ContextEdits =
            wire::part(&json!({"edits": [{"type": "compact_20260112", "trigger": null}]}), "x")
                .unwrap();
        let mut warnings = Warnings::default();
        let mut messages = conversation();
        edits.apply(&mut messages, &mut warnings, |_| Ok(0)).unwrap();
        assert!(!warnings.is_empty());
    }
}
