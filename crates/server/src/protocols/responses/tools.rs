//! The tools of a request: as functions for the model, with the way back to what the client
//! calls them.

use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use crate::protocols::responses::warnings::Warnings;
use api::Tool;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The parameter that carries the text of a custom tool.
pub(crate) const INPUT: &str = "input";

/// What one function of the model is to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub name: String,
    pub namespace: Option<String>,
    /// Its argument is free text.
    pub custom: bool,
}

/// The tools that the model may call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    /// The tools as functions.
    pub functions: Vec<Tool>,
    by_name: HashMap<String, Wire>,
}

impl Tools {
    /// Reads the array `tools`.
    pub fn read(tools: &[Value], warnings: &mut Warnings) -> Result<Self, HttpError> {
        let mut all = Self::default();
        for (at, tool) in tools.iter().enumerate() {
            let fields = ObjectReader::of(tool, &format!("tools[{at}]"))?;
            match fields.text("type")? {
                Some("namespace") => all.add_namespace(&fields, warnings)?,
                _ => all.add(&fields, None, warnings)?,
            }
        }
        Ok(all)
    }

    /// What the client calls the function `name`.
    pub fn wire(&self, name: &str) -> Wire {
        let plain = || Wire { name: name.to_owned(), namespace: None, custom: false };
        self.by_name.get(name).cloned().unwrap_or_else(plain)
    }

    /// Whether the model knows the function `name`.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Keeps those whose name is wanted.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| wanted(name));
        let by_name = &self.by_name;
        self.functions.retain(|tool| by_name.contains_key(&tool.name));
    }

    fn add_namespace(
        &mut self,
        fields: &ObjectReader<'_>,
        warnings: &mut Warnings,
    ) -> Result<(), HttpError> {
        let namespace = required(fields, "name")?;
        let path = fields.path("tools");
        for (at, tool) in fields.array("tools")?.unwrap_or_default().iter().enumerate() {
            let fields = ObjectReader::of(tool, &format!("{path}[{at}]"))?;
            self.add(&fields, Some(namespace), warnings)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        fields: &ObjectReader<'_>,
        namespace: Option<&str>,
        warnings: &mut Warnings,
    ) -> Result<(), HttpError> {
        let kind = required(fields, "type")?;
        let custom = kind == "custom";
        if !custom && kind != "function" {
            warnings.add(kind, "tools of this type are not supported and were left out");
            return Ok(());
        }
        let name = required(fields, "name")?;
        let flat = flat(namespace, name);
        if self.knows(&flat) {
            warnings.add(name, "a tool of this name came twice; the later one was left out");
            return Ok(());
        }
        self.functions.push(match custom {
            true => custom_function(fields, &flat, warnings)?,
            false => plain_function(fields, &flat)?,
        });
        let namespace = namespace.map(str::to_owned);
        self.by_name.insert(flat, Wire { name: name.to_owned(), namespace, custom });
        Ok(())
    }
}

/// The name of a tool to the model, which knows no namespaces.
pub(crate) fn flat(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(space) if space.ends_with(['_', '.', '/', ':']) => format!("{space}{name}"),
        Some(space) => format!("{space}__{name}"),
    }
}

/// The string `name` of an object, which must be there.
pub(crate) fn required<'a>(fields: &ObjectReader<'a>, name: &str) -> Result<&'a str, HttpError> {
    fields.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| {
        let path = fields.path(name);
        HttpError::invalid(&path, format!("{path} is missing"))
    })
}

fn plain_function(fields: &ObjectReader<'_>, name: &str) -> Result<Tool, HttpError> {
    let parameters = fields.fields("parameters")?.map(|parameters| parameters.object().clone());
    Ok(Tool {
        name: name.to_owned(),
        description: fields.text("description")?.map(str::to_owned),
        parameters: parameters.map(Value::Object).unwrap_or_default(),
        strict: fields.flag("strict")? == Some(true),
        source: None,
    })
}

fn custom_function(
    fields: &ObjectReader<'_>,
    name: &str,
    warnings: &mut Warnings,
) -> Result<Tool, HttpError> {
    let mut input = json!({ "type": "string" });
    if let Some(format) = fields.fields("format")?
        && let Some(definition) = format.text("definition")?
    {
        let syntax = format.text("syntax")?.unwrap_or("lark");
        input["description"] = format!("Text of this {syntax} grammar:\n{definition}").into();
        warnings.add(name, "the grammar is told to the model and not enforced");
    }
    let description = fields.text("description")?.unwrap_or_default().to_owned();
    let parameters = json!({
        "type": "object",
        "properties": { (INPUT): input },
        "required": [INPUT],
        "additionalProperties": false,
    });
    let (name, description) = (name.to_owned(), Some(description));
    Ok(Tool { name, description, parameters, strict: false, source: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tools: Value) -> (Tools, Warnings) {
        let mut warnings = Warnings::default();
        let tools = Tools::read(tools.as_array().unwrap(), &mut warnings).unwrap();
        (tools, warnings)
    }

    #[test]
    fn functions_are_nested_as_chat_has_them() {
        let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let (tools, _) = read(json!([
            {"type": "function", "name": "f", "description": "d", "parameters": &parameters,
             "strict": false},
            {"type": "function", "name": "g", "parameters": null, "strict": true},
        ]));
        let description = Some("d".to_owned());
        let expected = [
            Tool { name: "f".into(), description, parameters, ..Tool::default() },
            Tool { name: "g".into(), strict: true, ..Tool::default() },
        ];
        assert_eq!(tools.functions, expected);
    }

    #[test]
    fn names_in_a_namespace_find_their_way_back() {
        let (tools, _) = read(json!([
            {"type": "namespace", "name": "mail", "tools": [
                {"type": "function", "name": "send"}, {"type": "custom", "name": "draft"}]},
        ]));
        let wire = tools.wire("mail__draft");
        assert_eq!((wire.name.as_str(), wire.namespace.as_deref()), ("draft", Some("mail")));
        assert!(wire.custom && !tools.wire("mail__send").custom);
        assert_eq!(flat(Some("mcp__x__"), "send"), "mcp__x__send");
        assert_eq!(tools.wire("other").name, "other");
    }

    #[test]
    fn custom_tools_take_one_string_and_are_told_their_grammar() {
        let (tools, warnings) = read(json!([{"type": "custom", "name": "c", "format": {
            "type": "grammar", "syntax": "lark", "definition": "start: \"x\""}}]));
        let parameters = &tools.functions[0].parameters;
        let input = &parameters["properties"]["input"];
        assert_eq!(
            (&input["type"], &parameters["required"]),
            (&json!("string"), &json!(["input"]))
        );
        assert!(input["description"].as_str().unwrap().ends_with("start: \"x\""));
        assert!(!warnings.is_empty());
    }

    #[test]
    fn tools_of_other_types_are_left_out_and_named() {
        let (tools, warnings) =
            read(json!([{"type": "web_search"}, {"type": "web_search"}, {"type": "brand_new"}]));
        assert!(tools.functions.is_empty());
        let told = serde_json::to_string(&warnings).unwrap();
        assert_eq!(told.matches("web_search").count(), 1);
        assert!(told.contains("brand_new"));
    }

    #[test]
    fn faults_name_their_place() {
        let check = |tool: Value, param: &str| {
            let error = Tools::read(&[tool], &mut Warnings::default()).unwrap_err();
            assert_eq!(error.body()["error"]["param"], param);
        };
        check(json!(3), "tools[0]");
        check(json!({}), "tools[0].type");
        check(json!({"type": "function"}), "tools[0].name");
        check(json!({"type": "function", "name": "f", "parameters": 3}), "tools[0].parameters");
        check(json!({"type": "namespace", "name": "n", "tools": [1]}), "tools[0].tools[0]");
    }
}
