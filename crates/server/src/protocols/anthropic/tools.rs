//! Tools in the form of Anthropic's API.

use crate::http::error::HttpError;
use crate::protocols::anthropic::request::{AnthropicTool, AnthropicToolChoice, ToolChoiceKind};
use api::Tool;

/// Tools, and whether they are called.
#[derive(Debug)]
pub(crate) struct Tools {
    pub list: Vec<Tool>,
    pub choice: api::ToolChoice,
    pub parallel: bool,
}

/// `tools` under `choice`.
pub(crate) fn read(
    tools: &[AnthropicTool],
    choice: Option<&AnthropicToolChoice>,
) -> Result<Tools, HttpError> {
    let list = tools.iter().enumerate().filter_map(|(at, tool)| one(tool, at).transpose());
    let list: Vec<Tool> = list.collect::<Result<_, _>>()?;
    let parallel = choice.and_then(|choice| choice.disable_parallel_tool_use) != Some(true);
    let choice = choice.map_or(Ok(api::ToolChoice::Auto), |choice| chosen(choice, &list))?;
    Ok(Tools { list, choice, parallel })
}

/// `None` for a tool that does not run at the client.
fn one(tool: &AnthropicTool, at: usize) -> Result<Option<Tool>, HttpError> {
    let kind = tool.kind.as_deref().unwrap_or("custom");
    let path = |member| format!("tools[{at}].{member}");
    let missing = |member| HttpError::invalid(path(member), format!("{} is missing", path(member)));
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

fn chosen(choice: &AnthropicToolChoice, tools: &[Tool]) -> Result<api::ToolChoice, HttpError> {
    match choice.kind {
        ToolChoiceKind::Auto => Ok(api::ToolChoice::Auto),
        ToolChoiceKind::None => Ok(api::ToolChoice::None),
        ToolChoiceKind::Any if tools.is_empty() => Err(HttpError::invalid(
            "tool_choice",
            "tool_choice asks for a call, but there are no tools",
        )),
        ToolChoiceKind::Any => Ok(api::ToolChoice::Required),
        ToolChoiceKind::Tool => {
            let name = choice.name.as_deref().unwrap_or_default();
            if !tools.iter().any(|tool| tool.name == name) {
                let message = format!("tool_choice.name: no tool is called {name:?}");
                return Err(HttpError::invalid("tool_choice.name", message));
            }
            Ok(api::ToolChoice::Named(name.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    fn tools(tools: Value, choice: Value) -> Result<Tools, HttpError> {
        let tools: Vec<AnthropicTool> = serde_json::from_value(tools).unwrap();
        let choice = Option::<AnthropicToolChoice>::deserialize(choice).unwrap();
        read(&tools, choice.as_ref())
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
        let list = tools(given, json!(null)).unwrap().list;
        let names: Vec<(&str, bool)> = list.iter().map(|tool| (&*tool.name, tool.strict)).collect();
        assert_eq!(names, [("f", false), ("g", true)]);
        assert_eq!(list[0].description.as_deref(), Some("d"));
        assert_eq!(list[0].parameters.to_string(), r#"{"z":1,"a":{"y":1,"b":2}}"#);
    }

    #[test]
    fn choices_are_those_of_the_request() {
        let f = || json!([{"name": "f", "input_schema": {}}]);
        let choice = |choice: Value| tools(f(), choice).unwrap().choice;
        assert_eq!(choice(json!({"type": "auto"})), api::ToolChoice::Auto);
        assert_eq!(choice(json!({"type": "any"})), api::ToolChoice::Required);
        assert_eq!(choice(json!({"type": "none"})), api::ToolChoice::None);
        let named = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
        let named = tools(f(), named).unwrap();
        assert_eq!(named.choice, api::ToolChoice::Named("f".into()));
        assert!(!named.parallel && tools(f(), json!({"type": "any"})).unwrap().parallel);
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
