//! Tools in the form of Anthropic's API.

use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::anthropic::request::{AnthropicTool, AnthropicToolChoice, ToolChoiceKind};
use api::{Tool, ToolChoice};

/// The tools that run at the client.
pub(crate) fn read(tools: &[AnthropicTool]) -> Result<Vec<Tool>, HttpError> {
    tools.iter().enumerate().filter_map(|(at, tool)| one(tool, at).transpose()).collect()
}

/// `None` for a tool that does not run at the client.
fn one(tool: &AnthropicTool, at: usize) -> Result<Option<Tool>, HttpError> {
    let kind = tool.kind.as_deref().unwrap_or("custom");
    let missing = |member| wire::missing(&format!("tools[{at}].{member}"));
    let Some(schema) = &tool.input_schema else {
        if kind == "custom" {
            return Err(missing("input_schema"));
        }
        tracing::debug!(kind, "tool left out");
        return Ok(None);
    };
    let name = tool.name.as_deref().filter(|name| !name.is_empty());
    Ok(Some(Tool {
        name: name.ok_or_else(|| missing("name"))?.to_owned(),
        description: tool.description.clone(),
        parameters: schema.clone().into(),
        strict: tool.strict == Some(true),
        source: None,
    }))
}

/// Which of `tools` the model may or must call.
pub(crate) fn choice(
    choice: &AnthropicToolChoice,
    tools: &[Tool],
) -> Result<ToolChoice, HttpError> {
    match choice.kind {
        ToolChoiceKind::Auto => Ok(ToolChoice::Auto),
        ToolChoiceKind::None => Ok(ToolChoice::None),
        ToolChoiceKind::Any if tools.is_empty() => {
            Err(HttpError::member("tool_choice", "asks for a call, but there are no tools"))
        }
        ToolChoiceKind::Any => Ok(ToolChoice::Required),
        ToolChoiceKind::Tool => {
            let name = choice.name.as_deref().unwrap_or_default();
            if !tools.iter().any(|tool| tool.name == name) {
                let problem = format!("no tool is called {name:?}");
                return Err(HttpError::at("tool_choice.name", problem));
            }
            Ok(ToolChoice::Named(name.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tools(tools: Value, given: Value) -> Result<(Vec<Tool>, ToolChoice), HttpError> {
        let tools = read(&serde_json::from_value::<Vec<AnthropicTool>>(tools).unwrap())?;
        let given: Option<AnthropicToolChoice> = serde_json::from_value(given).unwrap();
        let choice = given.map_or(Ok(ToolChoice::Auto), |given| choice(&given, &tools))?;
        Ok((tools, choice))
    }

    fn check_error(given: Value, choice: Value, param: &str) {
        let error = tools(given.clone(), choice).expect_err(&given.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{given}");
    }

    #[test]
    fn schemas_keep_the_order_of_their_members() {
        let given = json!([
            {"name": "f", "input_schema": {"z": 1, "a": {"y": 1, "b": 2}}, "description": "d",
             "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            {"type": "custom", "name": "g", "input_schema": {}, "strict": true},
        ]);
        let (list, _) = tools(given, json!(null)).unwrap();
        let names: Vec<(&str, bool)> = list.iter().map(|tool| (&*tool.name, tool.strict)).collect();
        assert_eq!(names, [("f", false), ("g", true)]);
        assert_eq!(list[0].description.as_deref(), Some("d"));
        assert_eq!(list[0].parameters.to_string(), r#"{"z":1,"a":{"y":1,"b":2}}"#);
    }

    #[test]
    fn choices_are_those_of_the_request() {
        let f = || json!([{"name": "f", "input_schema": {}}]);
        let choice = |choice: Value| tools(f(), choice).unwrap().1;
        assert_eq!(choice(json!({"type": "auto"})), ToolChoice::Auto);
        assert_eq!(choice(json!({"type": "any"})), ToolChoice::Required);
        assert_eq!(choice(json!({"type": "none"})), ToolChoice::None);
        let named = choice(json!({"type": "tool", "name": "f"}));
        assert_eq!(named, ToolChoice::Named("f".into()));
        check_error(f(), json!({"type": "tool", "name": "g"}), "tool_choice.name");
        check_error(f(), json!({"type": "tool"}), "tool_choice.name");
        check_error(
            json!([{"type": "bash_20250124", "name": "bash"}]),
            json!({"type": "any"}),
            "tool_choice",
        );
    }

    #[test]
    fn tools_of_the_client_need_a_name_and_a_schema() {
        check_error(json!([{"name": "f"}]), json!(null), "tools[0].input_schema");
        check_error(json!([{"input_schema": {}}]), json!(null), "tools[0].name");
        check_error(json!([{"name": "", "input_schema": {}}]), json!(null), "tools[0].name");
    }
}
