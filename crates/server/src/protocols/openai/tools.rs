//! The tools of a chat, and which of them the model may or must call.

use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::wire::{self, Object};
use crate::protocols::openai::custom_tools::{CustomTool, CustomTools};
use api::{Tool, ToolChoice};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use utoipa::ToSchema;

const CHOICE: &str = "tool_choice";

/// A tool.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatTool {
    /// `function` or `custom`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Missing only where its members stand beside `type`.
    function: Option<Function>,
    /// As `function`, of a custom tool.
    custom: Option<CustomTool>,
    name: Option<String>,
}

/// A function that the model may call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatFunction)]
pub(crate) struct Function {
    #[schema(value_type = String, min_length = 1)]
    name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    /// A JSON schema of its arguments.
    #[serde(rename = "parameters")]
    _parameters: Option<Object>,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

described! {
    /// A word, or an object that names a tool or those allowed.
    pub(crate) value ChatToolChoice = Mode | ChoiceObject;
}

/// Whether tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = ChatToolMode)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    None,
    Auto,
    Required,
}

/// Which tools are called.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatToolChoiceObject)]
pub(crate) struct ChoiceObject {
    /// `function`, `custom` or `allowed_tools`.
    #[schema(value_type = String)]
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Missing only where its members stand beside `type`, as those of the others may.
    function: Option<Named>,
    custom: Option<Named>,
    allowed_tools: Option<Allowed>,
    name: Option<String>,
    mode: Option<Mode>,
    tools: Option<Vec<AllowedTool>>,
}

/// A function by its name.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatNamedFunction)]
struct Named {
    #[schema(value_type = String)]
    name: Option<String>,
}

/// Some of the tools.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatAllowedTools)]
struct Allowed {
    mode: Option<Mode>,
    #[schema(value_type = Vec<AllowedTool>)]
    tools: Option<Vec<AllowedTool>>,
}

/// A tool by its name.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatAllowedTool)]
struct AllowedTool {
    /// `function` or `custom`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Missing only where its members stand beside `type`.
    function: Option<Named>,
    custom: Option<Named>,
    name: Option<String>,
}

/// The tools, as far as possible in the client's own form, and which of them are custom ones.
pub(crate) fn read(tools: &[Value]) -> Result<(Vec<Tool>, CustomTools), HttpError> {
    let mut custom = CustomTools::default();
    let one = |(at, tool)| one(tool, &format!("tools[{at}]"), &mut custom);
    let tools = tools.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    Ok((tools, custom))
}

fn one(value: &Value, path: &str, custom: &mut CustomTools) -> Result<Tool, HttpError> {
    let tool: ChatTool = wire::part(value, path)?;
    match tool.kind.as_deref() {
        None | Some("function") => function(&tool, value, path),
        Some("custom") => match (tool.custom, tool.name) {
            (Some(tool), _) => custom.add(tool, &format!("{path}.custom")),
            (None, Some(_)) => custom.add(wire::part(value, path)?, path),
            (None, None) => Err(wire::missing(&format!("{path}.custom"))),
        },
        Some(kind) => {
            let message = format!("{path}: tools of type {kind} are not supported");
            Err(HttpError::invalid(format!("{path}.type"), message))
        }
    }
}

fn function(tool: &ChatTool, value: &Value, path: &str) -> Result<Tool, HttpError> {
    match (&tool.function, &tool.name) {
        (Some(function), _) => {
            check(function, &format!("{path}.function"))?;
            let whole = tool.kind.is_some();
            Ok(if whole { value.clone().into() } else { wrapped(&value["function"]) })
        }
        (None, Some(_)) => {
            check(&wire::part(value, path)?, path)?;
            let mut function = value.clone();
            function.as_object_mut().map(|members| members.shift_remove("type"));
            Ok(wrapped(&function))
        }
        (None, None) => Err(wire::missing(&format!("{path}.function"))),
    }
}

/// Functions as they were before there were tools.
pub(crate) fn functions(functions: &[Value]) -> Result<Vec<Tool>, HttpError> {
    let one = |(at, value): (usize, &Value)| {
        let path = format!("functions[{at}]");
        check(&wire::part(value, &path)?, &path)?;
        Ok(wrapped(value))
    };
    functions.iter().enumerate().map(one).collect()
}

fn check(function: &Function, path: &str) -> Result<(), HttpError> {
    match function.name.as_deref() {
        None | Some("") => Err(wire::missing(&format!("{path}.name"))),
        Some(_) => Ok(()),
    }
}

fn wrapped(function: &Value) -> Tool {
    json!({ "type": "function", "function": function }).into()
}

/// Reads `tool_choice`. Tools that it does not allow leave `tools`.
pub(crate) fn choice(
    given: Option<&Value>,
    tools: &mut Vec<Tool>,
) -> Result<ToolChoice, HttpError> {
    let choice = match given {
        None => ToolChoice::Auto,
        Some(object @ Value::Object(_)) => of_object(wire::part(object, CHOICE)?, tools)?,
        Some(word) => of_mode(wire::part(word, CHOICE)?),
    };
    if choice == ToolChoice::Required && tools.is_empty() {
        return Err(HttpError::member(CHOICE, "requires a call, but there is no tool"));
    }
    Ok(choice)
}

/// Reads `function_call`, which is what `tool_choice` was before there were tools.
pub(crate) fn old_choice(given: Option<&Value>, tools: &[Tool]) -> Result<ToolChoice, HttpError> {
    const FIELD: &str = "function_call";
    match given {
        None => Ok(ToolChoice::Auto),
        Some(object @ Value::Object(_)) => {
            named(wire::part(object, FIELD)?, FIELD, &names(tools)).map(ToolChoice::Named)
        }
        Some(word) => match wire::part(word, FIELD)? {
            Mode::Required => Err(HttpError::member(FIELD, "must be none, auto or an object")),
            mode => Ok(of_mode(mode)),
        },
    }
}

fn of_mode(mode: Mode) -> ToolChoice {
    match mode {
        Mode::None => ToolChoice::None,
        Mode::Auto => ToolChoice::Auto,
        Mode::Required => ToolChoice::Required,
    }
}

fn of_object(choice: ChoiceObject, tools: &mut Vec<Tool>) -> Result<ToolChoice, HttpError> {
    match choice.kind.as_deref() {
        Some(kind @ ("function" | "custom")) => {
            let nested = if kind == "custom" { choice.custom } else { choice.function };
            let name = chosen((kind, nested), choice.name, CHOICE, &names(tools));
            name.map(ToolChoice::Named)
        }
        Some("allowed_tools") => match (choice.allowed_tools, choice.tools) {
            (Some(nested), _) => allowed(nested, &format!("{CHOICE}.allowed_tools"), tools),
            (None, Some(flat)) => {
                allowed(Allowed { mode: choice.mode, tools: Some(flat) }, CHOICE, tools)
            }
            (None, None) => Err(wire::missing(&format!("{CHOICE}.allowed_tools"))),
        },
        None => Err(wire::missing(&format!("{CHOICE}.type"))),
        Some(other) => {
            let message = format!("a tool_choice of type {other} is not supported");
            Err(HttpError::invalid(format!("{CHOICE}.type"), message))
        }
    }
}

fn names(tools: &[Tool]) -> HashSet<&str> {
    tools.iter().map(|tool| &*tool.name).collect()
}

/// The name of the tool at `path`, which the `member` there has, or which stands beside `type`.
fn chosen(
    (member, nested): (&str, Option<Named>),
    beside: Option<String>,
    path: &str,
    tools: &HashSet<&str>,
) -> Result<String, HttpError> {
    let member = format!("{path}.{member}");
    match (nested, beside) {
        (Some(tool), _) => named(tool, &member, tools),
        (None, Some(name)) => named(Named { name: Some(name) }, path, tools),
        (None, None) => Err(wire::missing(&member)),
    }
}

/// The name of the function at `path`, which must be one of `tools`.
fn named(function: Named, path: &str, tools: &HashSet<&str>) -> Result<String, HttpError> {
    let path = format!("{path}.name");
    let name = function.name.ok_or_else(|| wire::missing(&path))?;
    match tools.contains(&*name) {
        true => Ok(name),
        false => Err(HttpError::at(&path, format!("there is no tool named {name}"))),
    }
}

/// Some of the tools. One that must be called is named, so that the prompt keeps them all.
fn allowed(given: Allowed, path: &str, tools: &mut Vec<Tool>) -> Result<ToolChoice, HttpError> {
    let path = format!("{path}.tools");
    let present = names(tools);
    let one = |(at, tool): (usize, AllowedTool)| {
        let nested = match tool.kind.as_deref() {
            Some("custom") => ("custom", tool.custom),
            _ => ("function", tool.function),
        };
        chosen(nested, tool.name, &format!("{path}[{at}]"), &present)
    };
    let all = given.tools.ok_or_else(|| wire::missing(&path))?.into_iter().enumerate();
    let names = all.map(one).collect::<Result<HashSet<String>, _>>()?;
    let mode = of_mode(given.mode.unwrap_or(Mode::Auto));
    if mode == ToolChoice::Required && names.len() == 1 {
        return Ok(ToolChoice::Named(names.into_iter().next().unwrap_or_default()));
    }
    tools.retain(|tool| names.contains(&tool.name));
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Value {
        json!({ "type": "function", "function": { "name": name } })
    }

    fn check_tools(read: Result<Vec<Tool>, HttpError>, expected: Value) {
        let sources: Vec<Value> = read.unwrap().into_iter().filter_map(|it| it.source).collect();
        assert_eq!(sources, [expected]);
    }

    #[test]
    fn tools_stay_as_they_are_told() {
        let given = json!({"type": "function", "extra": 1, "function":
            {"parameters": {}, "name": "f", "strict": true}});
        let read = |tools: &[Value]| read(tools).map(|(tools, _)| tools);
        check_tools(read(std::slice::from_ref(&given)), given);
        let flat = json!({"type": "function", "name": "f", "description": "d"});
        let whole = json!({"type": "function", "function": {"name": "f", "description": "d"}});
        check_tools(read(&[flat]), whole);
        check_tools(read(&[json!({"function": {"name": "f"}})]), tool("f"));
        check_tools(functions(&[json!({"name": "f"})]), tool("f"));
    }

    #[test]
    fn tools_that_cannot_be_called_are_named() {
        let check = |tool: Value, param: &str| {
            let error = read(&[tool]).unwrap_err();
            assert_eq!(error.body()["error"]["param"], param);
        };
        check(json!("x"), "tools[0]");
        check(json!({"type": "web_search"}), "tools[0].type");
        check(json!({"type": "custom"}), "tools[0].custom");
        check(json!({"type": "custom", "custom": {}}), "tools[0].custom.name");
        check(json!({"type": "custom", "name": "c", "format": 3}), "tools[0].format");
        check(json!({"type": "function"}), "tools[0].function");
        check(json!({"type": "function", "function": {}}), "tools[0].function.name");
        check(json!({"function": {"name": "f", "parameters": 3}}), "tools[0].function.parameters");
        check(json!({"name": "f", "parameters": 3}), "tools[0].parameters");
        assert_eq!(
            functions(&[json!({})]).unwrap_err().body()["error"]["param"],
            "functions[0].name"
        );
    }

    fn choose(given: Value) -> Result<(ToolChoice, usize), HttpError> {
        let mut tools = ["f", "g", "h"].map(|name| tool(name).into()).to_vec();
        let choice = choice(Some(&given), &mut tools)?;
        Ok((choice, tools.len()))
    }

    fn check(given: Value, expected: ToolChoice, tools: usize) {
        assert_eq!(choose(given.clone()).unwrap(), (expected, tools), "{given}");
    }

    fn allow(mode: &str, names: &[&str]) -> Value {
        let tools: Vec<Value> = names.iter().map(|name| tool(name)).collect();
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    }

    #[test]
    fn every_form_of_choice_is_understood() {
        check(json!("auto"), ToolChoice::Auto, 3);
        check(json!("none"), ToolChoice::None, 3);
        check(json!("required"), ToolChoice::Required, 3);
        check(tool("g"), ToolChoice::Named("g".into()), 3);
        for kind in ["function", "custom"] {
            check(json!({"type": kind, "name": "g"}), ToolChoice::Named("g".into()), 3);
            check(json!({"type": kind, kind: {"name": "g"}}), ToolChoice::Named("g".into()), 3);
        }
        let flat = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}]);
        let flat = json!({"type": "allowed_tools", "mode": "required", "tools": flat});
        check(flat, ToolChoice::Required, 2);
        check(allow("auto", &["f", "g"]), ToolChoice::Auto, 2);
        check(allow("required", &["f", "g"]), ToolChoice::Required, 2);
        check(allow("required", &["h"]), ToolChoice::Named("h".into()), 3);
    }

    #[test]
    fn what_cannot_be_chosen_is_named() {
        let check = |given: Value, param: &str| {
            let error = choose(given.clone()).expect_err(&given.to_string());
            assert_eq!(error.body()["error"]["param"], param, "{given}");
        };
        check(json!("sometimes"), "tool_choice");
        check(json!(3), "tool_choice");
        check(json!({}), "tool_choice.type");
        check(json!({"type": "web_search"}), "tool_choice.type");
        check(json!({"type": "custom", "custom": {"name": "c"}}), "tool_choice.custom.name");
        check(json!({"type": "function", "name": "x"}), "tool_choice.name");
        check(json!({"type": "function"}), "tool_choice.function");
        check(tool("x"), "tool_choice.function.name");
        check(json!({"type": "allowed_tools"}), "tool_choice.allowed_tools");
        check(allow("required", &[]), "tool_choice");
        check(allow("auto", &["x"]), "tool_choice.allowed_tools.tools[0].function.name");
        let none = choice(Some(&json!("required")), &mut Vec::new()).unwrap_err();
        assert_eq!(none.body()["error"]["param"], "tool_choice");
    }

    #[test]
    fn old_choices_are_understood() {
        let choose = |given: Value| old_choice(Some(&given), &[tool("f").into()]);
        assert_eq!(choose(json!("none")).unwrap(), ToolChoice::None);
        assert_eq!(choose(json!({"name": "f"})).unwrap(), ToolChoice::Named("f".into()));
        for wrong in [json!("required"), json!({"name": "x"}), json!({}), json!(3)] {
            assert!(choose(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
