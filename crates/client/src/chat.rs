//! Requests for chat completions.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A request for one answer to a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatQuery {
    /// Name of the model.
    pub model: String,
    /// The conversation, in OpenAI's form.
    pub messages: Vec<Value>,
    /// Tools that the answer may call, in OpenAI's form.
    pub tools: Vec<Value>,
    /// Which tools the answer calls, in OpenAI's form; the server decides if it is left out.
    pub tool_choice: Option<Value>,
    /// How the answer is sampled.
    pub sampling: QuerySampling,
    /// Further members of the request, which replace others of the same name.
    pub extra: Map<String, Value>,
}

/// How an answer is sampled. The server decides what is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QuerySampling {
    /// Maximum number of tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Divisor of the logits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Probability that the likeliest tokens have together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Number of the likeliest tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Seed of the random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Penalty of tokens that the answer has already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Penalty of tokens by how often the answer has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

#[derive(Serialize)]
struct WireChat<'a> {
    model: &'a str,
    messages: &'a [Value],
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    tools: &'a [Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: &'a Option<Value>,
    #[serde(flatten)]
    sampling: &'a QuerySampling,
}

impl ChatQuery {
    /// The body of the request, for an answer in a stream.
    pub(super) fn body(&self) -> Value {
        let mut body = json!(WireChat {
            model: &self.model,
            messages: &self.messages,
            tools: &self.tools,
            tool_choice: &self.tool_choice,
            sampling: &self.sampling,
        });
        for (name, value) in &self.extra {
            body[name] = value.clone();
        }
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_not_sent() {
        let query = ChatQuery { model: "m".into(), ..ChatQuery::default() };
        let expected = json!({
            "model": "m", "messages": [],
            "stream": true, "stream_options": { "include_usage": true },
        });
        assert_eq!(query.body(), expected);
    }

    #[test]
    fn every_member_has_its_name() {
        let sampling = QuerySampling {
            max_tokens: Some(1),
            temperature: Some(0.5),
            top_p: Some(0.25),
            top_k: Some(2),
            seed: Some(u64::MAX),
            presence_penalty: Some(0.125),
            frequency_penalty: Some(1.5),
            stop: vec!["end".into()],
        };
        let query = ChatQuery {
            model: "m".into(),
            messages: vec![json!({"role": "user", "content": "hello"})],
            tools: vec![json!({"type": "function"})],
            tool_choice: Some(json!("required")),
            sampling,
            extra: Map::from_iter([("top_k".into(), json!(3)), ("stream".into(), json!(false))]),
        };
        let expected = json!({
            "model": "m", "messages": [{"role": "user", "content": "hello"}],
            "tools": [{"type": "function"}], "tool_choice": "required",
            "max_tokens": 1, "temperature": 0.5, "top_p": 0.25, "top_k": 3, "seed": u64::MAX,
            "presence_penalty": 0.125, "frequency_penalty": 1.5, "stop": ["end"],
            "stream": true, "stream_options": { "include_usage": true },
        });
        assert_eq!(query.body(), expected);
    }
}
