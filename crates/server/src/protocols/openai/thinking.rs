//! How much a model thinks before it answers, in the spellings of several servers. The first that
//! says something counts: the template's own variables, then those below in the order of the
//! document.

use crate::generate::think::Think;
use crate::http::error::HttpError;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Whether and how long the model thinks.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ThinkingBody {
    /// For the chat template; an extension.
    enable_thinking: Option<bool>,
    /// An extension.
    thinking: Option<ThinkingSwitch>,
    /// Most tokens of reasoning, -1 for no limit; an extension.
    #[schema(minimum = -1)]
    thinking_budget: Option<i64>,
    /// As `thinking_budget`, in vLLM's words.
    #[schema(minimum = -1)]
    thinking_token_budget: Option<i64>,
    /// As `thinking_budget`, in llama.cpp's words.
    #[schema(minimum = -1)]
    thinking_budget_tokens: Option<i64>,
    /// As `thinking_budget`, in llama.cpp's words.
    #[schema(minimum = -1)]
    reasoning_budget: Option<i64>,
    /// An extension.
    reasoning: Option<ReasoningSwitch>,
    /// Whether answers show the reasoning; true by default; an extension.
    include_reasoning: Option<bool>,
    /// For the chat template: `none`, which switches thinking off, `minimal`, `low`, `medium`,
    /// `high`, `xhigh`, `max`, or what else the template knows.
    reasoning_effort: Option<String>,
    /// On, off, or an effort, as in Ollama's API; an extension.
    think: Option<Think>,
}

/// Whether to think.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ChatThinking)]
struct ThinkingSwitch {
    #[serde(rename = "type")]
    kind: Option<ThinkingKind>,
    /// Most tokens of reasoning.
    budget_tokens: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = ChatThinkingKind)]
#[serde(rename_all = "lowercase")]
enum ThinkingKind {
    Enabled,
    Disabled,
    Adaptive,
}

/// How to reason.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ChatReasoning)]
struct ReasoningSwitch {
    enabled: Option<bool>,
    /// As `reasoning_effort`.
    effort: Option<String>,
    /// Most tokens of reasoning.
    max_tokens: Option<usize>,
    /// Answers do not show the reasoning.
    exclude: Option<bool>,
}

/// What a body says of thinking.
#[derive(Debug)]
pub(crate) struct AskedThinking {
    /// Most tokens of reasoning.
    pub budget: Option<usize>,
    /// The variables of the template.
    pub kwargs: Map<String, Value>,
    /// Answers do not show the reasoning.
    pub is_hidden: bool,
}

impl ThinkingBody {
    /// Most tokens of reasoning, of the members that are numbers.
    fn budget(&self) -> Result<Option<usize>, HttpError> {
        let spellings = [
            ("thinking_budget", self.thinking_budget),
            ("thinking_token_budget", self.thinking_token_budget),
            ("thinking_budget_tokens", self.thinking_budget_tokens),
            ("reasoning_budget", self.reasoning_budget),
        ];
        let wrong = |&(_, budget): &(&str, Option<i64>)| budget.is_some_and(|budget| budget < -1);
        if let Some((name, Some(budget))) = spellings.into_iter().find(wrong) {
            let problem = format!("must be at least 0, or -1 for no limit, not {budget}");
            return Err(HttpError::member(name, problem));
        }
        let said = spellings.into_iter().find_map(|(_, budget)| budget);
        Ok(said.and_then(|budget| usize::try_from(budget).ok()))
    }

    /// What these say of thinking. The variables of the template are `kwargs` with what they do not
    /// say themselves.
    ///
    /// # Errors
    /// If a budget is negative, except for -1.
    pub fn asked(self, mut kwargs: Map<String, Value>) -> Result<AskedThinking, HttpError> {
        let budget = self.budget()?;
        let (switch, reasoning) =
            (self.thinking.unwrap_or_default(), self.reasoning.unwrap_or_default());
        let budget = switch.budget_tokens.or(budget).or(reasoning.max_tokens);
        let is_hidden = self.include_reasoning == Some(false) || reasoning.exclude == Some(true);
        let effort = self.reasoning_effort.or(reasoning.effort);
        let switched = match switch.kind {
            Some(ThinkingKind::Enabled) => Some(true),
            Some(ThinkingKind::Disabled) => Some(false),
            Some(ThinkingKind::Adaptive) | None => None,
        };
        let on = self.enable_thinking.or(switched).or(reasoning.enabled);
        if let Some(on) = on {
            kwargs.entry("enable_thinking").or_insert(on.into());
        }
        if let Some(effort) = effort {
            kwargs.entry("reasoning_effort").or_insert(effort.into());
        }
        // Ollama's switch has several names, and says nothing where another one does.
        if let Some(think) = self.think.filter(|_| !kwargs.contains_key("enable_thinking")) {
            for (name, value) in think.kwargs() {
                kwargs.entry(name).or_insert(value);
            }
        }
        Ok(AskedThinking { budget, kwargs, is_hidden })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire;
    use serde_json::json;

    fn read(body: &Value, kwargs: Map<String, Value>) -> Result<AskedThinking, HttpError> {
        wire::read::<ThinkingBody>(body)?.asked(kwargs)
    }

    fn kwargs(body: Value) -> Value {
        let given = body["chat_template_kwargs"].as_object().cloned().unwrap_or_default();
        Value::Object(read(&body, given).unwrap().kwargs)
    }

    #[test]
    fn thinking_switches_reach_the_template() {
        let off = json!({"enable_thinking": false});
        assert_eq!(kwargs(off.clone()), off);
        assert_eq!(
            kwargs(json!({"chat_template_kwargs": {"enable_thinking": true, "x": 1},
                          "enable_thinking": false})),
            json!({"enable_thinking": true, "x": 1}),
        );
        let low = json!({"reasoning_effort": "low"});
        assert_eq!(kwargs(low.clone()), low);
        assert_eq!(kwargs(json!({"reasoning": {"effort": "low"}})), low);
        assert_eq!(kwargs(json!({"thinking": {"type": "disabled"}})), off);
        assert_eq!(kwargs(json!({"thinking": {"type": "adaptive"}})), json!({}));
        assert_eq!(kwargs(json!({"reasoning": {"enabled": false}})), off);
        let both = json!({"enable_thinking": false, "thinking": {"type": "enabled"}});
        assert_eq!(kwargs(both), off);
        let silent = json!({"enable_thinking": false, "thinking": false});
        assert_eq!(kwargs(json!({"think": false})), silent);
        let hard = json!({"enable_thinking": true, "thinking": true, "reasoning_effort": "high"});
        assert_eq!(kwargs(json!({"think": "high"})), hard);
        assert_eq!(kwargs(json!({"think": true, "enable_thinking": false})), off);
    }

    #[test]
    fn budgets_have_many_spellings() {
        let budget = |body| read(&body, Map::new()).unwrap().budget;
        assert_eq!(budget(json!({"thinking": {"type": "enabled", "budget_tokens": 7}})), Some(7));
        assert_eq!(budget(json!({"thinking_budget": 0})), Some(0));
        for name in ["thinking_token_budget", "thinking_budget_tokens", "reasoning_budget"] {
            assert_eq!(budget(json!({ name: 5 })), Some(5));
            assert_eq!(budget(json!({ name: -1 })), None);
        }
        assert_eq!(budget(json!({"thinking_budget": -1})), None);
        assert_eq!(budget(json!({"reasoning": {"max_tokens": 9.0}})), Some(9));
        assert_eq!(budget(json!({"thinking_budget": 3, "reasoning": {"max_tokens": 9}})), Some(3));
    }

    #[test]
    fn reasoning_is_shown_unless_a_request_says_otherwise() {
        let is_hidden = |body| read(&body, Map::new()).unwrap().is_hidden;
        assert!(!is_hidden(json!({})) && !is_hidden(json!({"include_reasoning": true})));
        assert!(is_hidden(json!({"include_reasoning": false})));
        assert!(is_hidden(json!({"reasoning": {"exclude": true}})));
    }

    #[test]
    fn wrong_wishes_are_named() {
        let check = |body: Value, param: &str| {
            let error = read(&body, Map::new()).expect_err(&body.to_string());
            assert_eq!(error.body()["error"]["param"], param, "{body}");
        };
        check(json!({"thinking": {"type": "maybe"}}), "thinking.type");
        check(json!({"thinking": {"budget_tokens": -1}}), "thinking.budget_tokens");
        check(json!({"thinking_budget": -2}), "thinking_budget");
        check(json!({"reasoning_budget": -2}), "reasoning_budget");
        check(json!({"reasoning_effort": 3}), "reasoning_effort");
        check(json!({"enable_thinking": "yes"}), "enable_thinking");
        check(json!({"think": "a lot"}), "think");
    }
}
