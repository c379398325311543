//! Answers in the form that models of each family write, in white space that no template renders,
//! and the tools that they call.

use api::ChatRequest;
use serde_json::{Value, json};
use text::ToolFormat;

/// Arguments of `f` in an unusual spelling, which no rendering repeats.
pub const ODD: &str = "{\"s\" :\"x\\u00e9 \\\"y\\\"\\n\",  \"n\": 3 ,\"o\":{ \"k\":[1,  2.50]}}";
/// Shorter arguments of `g`.
pub const SHORT: &str = "{ }";

/// `f` with a schema, and `g`.
pub fn tools() -> Vec<Value> {
    let parameters = json!({"type": "object", "properties": {
        "s": {"type": "string", "description": "a text"},
        "n": {"type": "integer", "description": "a number"},
        "o": {"type": "object", "description": "more"}},
        "required": ["s"], "additionalProperties": false});
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    [("f", parameters), ("g", none)]
        .map(|(name, parameters)| {
            json!({"type": "function", "function":
                {"name": name, "description": "does it", "parameters": parameters}})
        })
        .to_vec()
}

/// A conversation that offers these tools.
pub fn request(messages: Vec<Value>) -> ChatRequest {
    let messages = messages.into_iter().map(Into::into).collect();
    let tools = tools().into_iter().map(Into::into).collect();
    ChatRequest { messages, tools, ..Default::default() }
}

pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

/// Calls, each a name with the JSON of its arguments, as models of `format` write them.
pub fn calls(format: &ToolFormat, calls: &[(&str, &str)]) -> String {
    let each = |write: &dyn Fn(&str, &str) -> String| -> Vec<String> {
        calls.iter().map(|(name, arguments)| write(name, arguments)).collect()
    };
    match format.name {
        "hermes" => each(&|name, arguments| {
            format!(
                "<tool_call>\n {{\"name\":\"{name}\" , \"arguments\":{arguments} }}\n\n</tool_call>"
            )
        })
        .join("\n\n"),
        "llama" => each(&|name, arguments| {
            format!("{{\"name\":  \"{name}\",\"parameters\" : {arguments}}}")
        })
        .join("; "),
        "mistral" => {
            let all = each(&|name, arguments| {
                format!("{{\"name\":\"{name}\", \"arguments\":{arguments},\"id\":\"abcdefghi\"}}")
            });
            format!("[TOOL_CALLS] [{}]", all.join(" ,"))
        }
        "deepseek-v3" => {
            let all = each(&|name, arguments| {
                format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n \
                     ```<｜tool▁call▁end｜>"
                )
            });
            format!("<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>", all.join("\n\n"))
        }
        "deepseek-v3.1" => {
            let all = each(&|name, arguments| {
                format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜> {arguments}<｜tool▁call▁end｜>")
            });
            format!("<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>", all.join("\n"))
        }
        "dsml" => {
            let all = each(&|name, arguments| {
                format!(
                    "<｜DSML｜invoke name=\"{name}\">{}</｜DSML｜invoke>",
                    parameters(arguments)
                )
            });
            format!("<｜DSML｜tool_calls>\n{}</｜DSML｜tool_calls>", all.join(" \n"))
        }
        "harmony" => each(&|name, arguments| {
            format!(
                "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"
            )
        })
        .join("<|call|>"),
        other => unreachable!("no family of {other}"),
    }
}

fn parameters(arguments: &str) -> String {
    let members: serde_json::Map<String, Value> =
        serde_json::from_str(arguments).expect("arguments are JSON");
    let one = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!(
            "\n\n<｜DSML｜parameter name=\"{key}\" string=\"true\">{text}</｜DSML｜parameter>"
        ),
        other => format!(
            "<｜DSML｜parameter name=\"{key}\" string=\"false\"> {other} </｜DSML｜parameter >"
        ),
    };
    members.iter().map(one).collect()
}

/// Reasoning at the start of an answer; `opened` if the prompt opens it.
pub fn thought(format: &ToolFormat, text: &str, opened: bool) -> String {
    match format.name {
        "harmony" => {
            format!("<|channel|>analysis<|message|>{text}<|end|><|start|>assistant")
        }
        _ if opened => format!("{text}\n</think>\n"),
        _ => format!("<think> {text}\n</think>\n"),
    }
}
