//! Tools in the form of Anthropic's API.

use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::anthropic::blocks::InputBlock;
use crate::protocols::anthropic::request::{AnthropicTool, AnthropicToolChoice, ToolChoiceKind};
use crate::protocols::warnings::Warnings;
use api::{Tool, ToolChoice};
use serde_json::Value;

/// The tools that run at the client: those of a request, changed by blocks of its messages.
pub(crate) fn read(
    tools: &[AnthropicTool],
    changes: &[(String, InputBlock)],
    warnings: &mut Warnings,
) -> Result<Vec<Tool>, HttpError> {
    let mut all = Vec::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        all.extend(one(tool, &format!("tools[{at}]"), warnings)?);
    }
    for (path, change) in changes {
        match change {
            InputBlock::ToolAddition(definition) => {
                let path = format!("{path}.tool.definition");
                let added = one(&wire::part(definition, &path)?, &path, warnings)?;
                all.retain(|known| added.as_ref().is_none_or(|added| added.name != known.name));
                all.extend(added);
            }
            InputBlock::ToolRemoval(name) => all.retain(|tool| tool.name != *name),
            _ => {}
        }
    }
    Ok(all)
}

/// The tool at `path`; `None` for one that does not run at the client.
fn one(
    tool: &AnthropicTool,
    path: &str,
    warnings: &mut Warnings,
) -> Result<Option<Tool>, HttpError> {
    let kind = tool.kind.as_deref().unwrap_or("custom");
    let missing = |member| wire::missing(&format!("{path}.{member}"));
    let Some(schema) = &tool.input_schema else {
        if kind == "custom" {
            return Err(missing("input_schema"));
        }
        warnings.add(kind, "tools of this type are not supported and were left out");
        return Ok(None);
    };
    if tool.allowed_callers.as_ref().is_some_and(|all| !all.iter().any(|it| it == "direct")) {
        warnings.add("allowed_callers", "the model itself calls every tool");
    }
    let mut parameters = schema.clone();
    if let Some(examples) = tool.input_examples.as_ref().filter(|examples| !examples.is_empty()) {
        let examples = examples.iter().cloned().map(Value::Object).collect();
        parameters.entry("examples").or_insert(examples);
    }
    let name = tool.name.as_deref().filter(|name| !name.is_empty());
    Ok(Some(Tool {
        name: name.ok_or_else(|| missing("name"))?.to_owned(),
        description: tool.description.clone(),
        parameters: parameters.into(),
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
    use serde_json::json;

    fn tools(tools: Value, given: Value) -> Result<(Vec<Tool>, ToolChoice), HttpError> {
        let tools = serde_json::from_value::<Vec<AnthropicTool>>(tools).unwrap();
        let tools = read(&tools, &[], &mut Warnings::default())?;
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
    fn tools_that_are_left_out_or_called_by_others_are_named() {
        let given = json!([
            {"type": "web_search_20250305", "name": "web_search"},
            {"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20260120"]},
            {"name": "g", "input_schema": {}, "allowed_callers": ["direct"]},
        ]);
        let mut warnings = Warnings::default();
        let given = serde_json::from_value::<Vec<AnthropicTool>>(given).unwrap();
        assert_eq!(read(&given, &[], &mut warnings).unwrap().len(), 2);
        let told = json!(warnings).to_string();
        assert!(told.contains("web_search_20250305") && told.contains("allowed_callers"), "{told}");
    }

    #[test]
    fn examples_are_those_of_the_schema() {
        let given = json!([{"name": "f", "input_schema": {"type": "object"},
                            "input_examples": [{"a": 1}]}]);
        let (list, _) = tools(given, json!(null)).unwrap();
        assert_eq!(list[0].parameters, json!({"type": "object", "examples": [{"a": 1}]}));
    }

    #[test]
    fn blocks_of_the_conversation_add_and_remove_tools_in_their_order() {
        let definition = |name: &str| json!({"name": name, "input_schema": {}});
        let tool = |name| serde_json::from_value::<AnthropicTool>(definition(name)).unwrap();
        let change = |block| ("m".to_owned(), block);
        let changes = [
            change(InputBlock::ToolAddition(definition("g"))),
            change(InputBlock::ToolRemoval("f".into())),
            change(InputBlock::ToolRemoval("h".into())),
            change(InputBlock::ToolAddition(definition("h"))),
        ];
        let list = read(&[tool("f"), tool("i")], &changes, &mut Warnings::default()).unwrap();
        let names: Vec<&str> = list.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["i", "g", "h"]);
    }

    #[test]
    fn tools_of_the_client_need_a_name_and_a_schema() {
        check_error(json!([{"name": "f"}]), json!(null), "tools[0].input_schema");
        check_error(json!([{"input_schema": {}}]), json!(null), "tools[0].name");
        check_error(json!([{"name": "", "input_schema": {}}]), json!(null), "tools[0].name");
    }
}
