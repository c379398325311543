//! Which tools the model may or must call.

use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use crate::protocols::responses::tools::{Tools, flat, required};
use api::ToolChoice;
use serde_json::Value;
use std::collections::HashSet;

const FIELD: &str = "tool_choice";

/// Reads `tool_choice`. Tools that it does not allow leave `tools`.
pub(crate) fn read(choice: Option<&Value>, tools: &mut Tools) -> Result<ToolChoice, HttpError> {
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(Value::String(mode)) => of_mode(mode, FIELD)?,
        Some(value @ Value::Object(_)) => of_object(&ObjectReader::of(value, FIELD)?, tools)?,
        Some(other) => return Err(wrong(FIELD, "a string or an object", other)),
    };
    if choice == ToolChoice::Required && tools.functions.is_empty() {
        return Err(HttpError::invalid(FIELD, "tool_choice requires a call, but there is no tool"));
    }
    Ok(choice)
}

fn of_mode(mode: &str, path: &str) -> Result<ToolChoice, HttpError> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => {
            let message = format!("{path} must be auto, none or required, not {other}");
            Err(HttpError::invalid(path, message))
        }
    }
}

fn of_object(fields: &ObjectReader<'_>, tools: &mut Tools) -> Result<ToolChoice, HttpError> {
    match required(fields, "type")? {
        "function" | "custom" => Ok(ToolChoice::Named(known(fields, tools)?)),
        "allowed_tools" => allowed(fields, tools),
        other => {
            let message = format!("a tool_choice of type {other} is not supported");
            Err(HttpError::invalid(fields.path("type"), message))
        }
    }
}

/// The name that the model has for the tool in `fields`, which must be one of `tools`.
fn known(fields: &ObjectReader<'_>, tools: &Tools) -> Result<String, HttpError> {
    let name = flat(fields.text("namespace")?, required(fields, "name")?);
    if tools.knows(&name) {
        return Ok(name);
    }
    let path = fields.path("name");
    Err(HttpError::invalid(&path, format!("{path}: there is no tool named {name}")))
}

/// Some of the tools. One that must be called is named, so that the prompt keeps them all.
fn allowed(fields: &ObjectReader<'_>, tools: &mut Tools) -> Result<ToolChoice, HttpError> {
    let mode = of_mode(fields.text("mode")?.unwrap_or("auto"), &fields.path("mode"))?;
    let path = fields.path("tools");
    let mut names = HashSet::new();
    for (at, tool) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
        let fields = ObjectReader::of(tool, &format!("{path}[{at}]"))?;
        // Those that the server would run were left out with a warning.
        if matches!(required(&fields, "type")?, "function" | "custom") {
            names.insert(known(&fields, tools)?);
        }
    }
    if mode == ToolChoice::Required && names.len() == 1 {
        return Ok(ToolChoice::Named(names.into_iter().next().unwrap_or_default()));
    }
    tools.retain(|name| names.contains(name));
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::responses::warnings::Warnings;
    use serde_json::json;

    fn choose(choice: Value) -> Result<(ToolChoice, usize), HttpError> {
        let given = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}]);
        let mut tools = Tools::read(given.as_array().unwrap(), &mut Warnings::default()).unwrap();
        let choice = read(Some(&choice), &mut tools)?;
        Ok((choice, tools.functions.len()))
    }

    fn check(given: Value, expected: ToolChoice, tools: usize) {
        assert_eq!(choose(given.clone()).unwrap(), (expected, tools), "{given}");
    }

    #[test]
    fn every_form_is_understood() {
        check(json!("auto"), ToolChoice::Auto, 3);
        check(json!("none"), ToolChoice::None, 3);
        check(json!("required"), ToolChoice::Required, 3);
        check(json!({"type": "function", "name": "f"}), ToolChoice::Named("f".into()), 3);
        check(json!({"type": "custom", "name": "c"}), ToolChoice::Named("c".into()), 3);
        let some = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
                          {"type": "web_search"}]);
        let allowed = |mode| json!({"type": "allowed_tools", "mode": mode, "tools": some});
        check(allowed("auto"), ToolChoice::Auto, 2);
        check(allowed("required"), ToolChoice::Required, 2);
        let one = json!([{"type": "function", "name": "g", "namespace": "n"}]);
        let one = json!({"type": "allowed_tools", "mode": "required", "tools": one});
        check(one, ToolChoice::Named("n__g".into()), 3);
    }

    #[test]
    fn what_cannot_be_chosen_is_refused() {
        for (choice, param) in [
            (json!("sometimes"), "tool_choice"),
            (json!(3), "tool_choice"),
            (json!({}), "tool_choice.type"),
            (json!({"type": "web_search"}), "tool_choice.type"),
            (json!({"type": "function", "name": "x"}), "tool_choice.name"),
            (json!({"type": "allowed_tools", "mode": "required"}), "tool_choice"),
            (json!({"type": "allowed_tools", "tools": [3]}), "tool_choice.tools[0]"),
        ] {
            let error = choose(choice.clone()).unwrap_err();
            assert_eq!(error.body()["error"]["param"], param, "{choice}");
        }
    }
}
