//! The tools of a request: as functions for the model, with the way back to what the client
//! calls them, and which of them the model may or must call. Tools of items of the conversation
//! follow those of the member `tools`.

use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use crate::protocols::freeform::{self, GRAMMAR_IS_TOLD};
use crate::protocols::warnings::Warnings;
use api::{Tool, ToolChoice};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The type, and the function's name, of the tool that searches for tools.
pub(crate) const SEARCH: &str = "tool_search";

/// What kind of tool a call is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallKind {
    #[default]
    Function,
    /// The argument of the tool is free text.
    Custom,
    /// A search for tools, which the client makes.
    Search,
}

/// Members of tools that have no effect, and what a warning says of them.
const UNUSED: [(&str, &str); 2] = [
    ("async", "the client decides when it answers a call"),
    ("output_schema", "the model is not told what a tool returns"),
];

/// The client's own name for a function of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wire {
    pub name: String,
    pub namespace: Option<String>,
    pub kind: CallKind,
}

/// Where tools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The member `tools`, where a name counts once.
    Member,
    /// An item of the conversation, which defines its tools anew.
    Item,
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
    ///
    /// # Errors
    /// If a member of a tool is missing or cannot be read.
    pub fn read(tools: &[Value], warnings: &mut Warnings) -> Result<Self, HttpError> {
        let mut all = Self::default();
        all.extend(tools, "tools", Origin::Member, warnings)?;
        Ok(all)
    }

    /// Adds `tools`, which stand at `path` of the body.
    ///
    /// # Errors
    /// If a member of a tool is missing or cannot be read.
    pub fn extend(
        &mut self,
        tools: &[Value],
        path: &str,
        origin: Origin,
        warnings: &mut Warnings,
    ) -> Result<(), HttpError> {
        for fields in ObjectReader::all(tools, path) {
            let fields = fields?;
            if fields.text("type")? != Some("namespace") {
                self.add(&fields, None, origin, warnings)?;
                continue;
            }
            let namespace = fields.required("name")?;
            if fields.text("description")?.is_some_and(|text| !text.is_empty()) {
                warnings.add("description", "that of a namespace is not told to the model");
            }
            let tools = fields.array("tools")?.unwrap_or_default();
            for tool in ObjectReader::all(tools, &fields.path("tools")) {
                self.add(&tool?, Some(namespace), origin, warnings)?;
            }
        }
        Ok(())
    }

    /// What the client calls the function `name`.
    pub fn wire(&self, name: &str) -> Wire {
        let known = self.by_name.get(name).cloned();
        known.unwrap_or_else(|| Wire { name: name.to_owned(), ..Wire::default() })
    }

    fn add(
        &mut self,
        fields: &ObjectReader<'_>,
        namespace: Option<&str>,
        origin: Origin,
        warnings: &mut Warnings,
    ) -> Result<(), HttpError> {
        let (kind, name) = match fields.required("type")? {
            "function" => (CallKind::Function, fields.required("name")?),
            "custom" => (CallKind::Custom, fields.required("name")?),
            SEARCH if execution(fields)? == "client" => (CallKind::Search, SEARCH),
            other => {
                warnings.add(other, "tools of this type are not supported and were left out");
                return Ok(());
            }
        };
        let flat = flat(namespace, name);
        let known = self.by_name.contains_key(&flat);
        if known && origin == Origin::Member {
            warnings.add(name, "a tool of this name came twice; the later one was left out");
            return Ok(());
        }
        warnings.add_given(fields.object, &UNUSED);
        let callers = fields.array("allowed_callers")?;
        if callers.is_some_and(|callers| !callers.iter().any(|caller| caller == "direct")) {
            warnings.add("allowed_callers", "the model itself calls every tool");
        }
        let tool = function(fields, flat.clone(), kind, warnings)?;
        match self.functions.iter_mut().find(|tool| known && tool.name == flat) {
            Some(before) => *before = tool,
            None => self.functions.push(tool),
        }
        let (name, namespace) = (name.to_owned(), namespace.map(str::to_owned));
        self.by_name.insert(flat, Wire { name, namespace, kind });
        Ok(())
    }
}

/// Who executes a search for tools.
pub(crate) fn execution<'a>(fields: &ObjectReader<'a>) -> Result<&'a str, HttpError> {
    match fields.text("execution")? {
        None => Ok("server"),
        Some(execution @ ("client" | "server")) => Ok(execution),
        Some(other) => {
            let problem = format!("must be client or server, not {other}");
            Err(HttpError::member(&fields.path("execution"), problem))
        }
    }
}

/// The members of a function that a response always shows.
const SHOWN: [&str; 3] = ["description", "parameters", "strict"];

/// The tools of a request as the response shows them.
pub(crate) fn shown(mut tools: Vec<Value>) -> Vec<Value> {
    for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
        match tool.get("type").and_then(Value::as_str) {
            Some("function") => SHOWN.into_iter().for_each(|name| {
                tool.entry(name).or_insert(Value::Null);
            }),
            Some("namespace") => {
                if let Some(Value::Array(inner)) = tool.get_mut("tools") {
                    *inner = shown(std::mem::take(inner));
                }
            }
            _ => {}
        }
    }
    tools
}

/// The name of a tool to the model, which knows no namespaces.
pub(crate) fn flat(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(space) if space.ends_with(['_', '.', '/', ':']) => format!("{space}{name}"),
        Some(space) => format!("{space}__{name}"),
    }
}

/// The tool in `fields` as a function `name`.
fn function(
    fields: &ObjectReader<'_>,
    name: String,
    kind: CallKind,
    warnings: &mut Warnings,
) -> Result<Tool, HttpError> {
    let description = fields.text("description")?.map(str::to_owned);
    if kind != CallKind::Custom {
        let parameters = fields.fields("parameters")?;
        let parameters = parameters.map(|all| all.object.clone()).unwrap_or_default();
        let strict = fields.flag("strict")? == Some(true);
        return Ok(Tool { name, description, parameters, strict, source: None });
    }
    let mut grammar = None;
    if let Some(format) = fields.fields("format")?
        && let Some(definition) = format.text("definition")?
    {
        grammar = Some((format.text("syntax")?.unwrap_or("lark"), definition));
        warnings.add(&name, GRAMMAR_IS_TOLD);
    }
    Ok(freeform::function(name, description, grammar))
}

const CHOICE: &str = "tool_choice";

/// Reads `tool_choice`. Tools that it does not allow leave `tools`.
pub(crate) fn choice(choice: Option<&Value>, tools: &mut Tools) -> Result<ToolChoice, HttpError> {
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(Value::String(mode)) => of_mode(mode, CHOICE)?,
        Some(value @ Value::Object(_)) => {
            let fields = ObjectReader::of(value, CHOICE)?;
            match fields.required("type")? {
                "function" | "custom" => ToolChoice::Named(named(&fields, tools)?),
                "allowed_tools" => allowed(&fields, tools)?,
                other => {
                    let message = format!("a tool_choice of type {other} is not supported");
                    return Err(HttpError::invalid(fields.path("type"), message));
                }
            }
        }
        Some(other) => return Err(wrong(CHOICE, "a string or an object", other)),
    };
    if choice == ToolChoice::Required && tools.functions.is_empty() {
        return Err(HttpError::member(CHOICE, "requires a call, but there is no tool"));
    }
    Ok(choice)
}

fn of_mode(mode: &str, path: &str) -> Result<ToolChoice, HttpError> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => {
            Err(HttpError::member(path, format!("must be auto, none or required, not {other}")))
        }
    }
}

/// The name that the model has for the tool in `fields`, which must be one of `tools`.
fn named(fields: &ObjectReader<'_>, tools: &Tools) -> Result<String, HttpError> {
    let name = flat(fields.text("namespace")?, fields.required("name")?);
    if tools.by_name.contains_key(&name) {
        return Ok(name);
    }
    Err(HttpError::at(&fields.path("name"), format!("there is no tool named {name}")))
}

/// Some of the tools. One that must be called is named, so that the prompt keeps them all.
fn allowed(fields: &ObjectReader<'_>, tools: &mut Tools) -> Result<ToolChoice, HttpError> {
    let mode = of_mode(fields.text("mode")?.unwrap_or("auto"), &fields.path("mode"))?;
    let mut names = HashSet::new();
    let given = fields.array("tools")?.unwrap_or_default();
    for tool in ObjectReader::all(given, &fields.path("tools")) {
        let tool = tool?;
        // Those that the server would run were left out with a warning.
        if matches!(tool.required("type")?, "function" | "custom") {
            names.insert(named(&tool, tools)?);
        }
    }
    if mode == ToolChoice::Required && names.len() == 1 {
        return Ok(ToolChoice::Named(names.into_iter().next().unwrap_or_default()));
    }
    tools.by_name.retain(|name, _| names.contains(name));
    tools.functions.retain(|tool| names.contains(&tool.name));
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn functions_are_shown_with_every_member_and_other_tools_as_they_came() {
        let given = json!([
            {"type": "function", "name": "f"},
            {"type": "function", "name": "g", "description": "d", "parameters": {}, "strict": true},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "h"}]},
            {"type": "custom", "name": "c"},
        ]);
        let mut expected = given.clone();
        for name in ["description", "parameters", "strict"] {
            expected[0][name] = Value::Null;
            expected[2]["tools"][0][name] = Value::Null;
        }
        assert_eq!(json!(shown(given.as_array().unwrap().clone())), expected);
    }

    #[test]
    fn names_in_a_namespace_find_their_way_back() {
        let (tools, _) = read(json!([
            {"type": "namespace", "name": "mail", "tools": [
                {"type": "function", "name": "send"}, {"type": "custom", "name": "draft"}]},
        ]));
        let wire = tools.wire("mail__draft");
        assert_eq!((wire.name.as_str(), wire.namespace.as_deref()), ("draft", Some("mail")));
        assert_eq!(
            [wire.kind, tools.wire("mail__send").kind],
            [CallKind::Custom, CallKind::Function]
        );
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

    #[test]
    fn tools_of_items_follow_those_of_the_request_and_define_theirs_anew() {
        let (mut tools, mut warnings) = read(json!([
            {"type": "function", "name": "f", "defer_loading": true},
            {"type": "function", "name": "g"}]));
        let found = json!([{"type": "namespace", "name": "n", "tools": [
            {"type": "custom", "name": "c"}]}, {"type": "function", "name": "f", "description": "d"}]);
        let found = found.as_array().unwrap();
        tools.extend(found, "input[0].tools", Origin::Item, &mut warnings).unwrap();
        let names: Vec<&str> = tools.functions.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["f", "g", "n__c"]);
        assert_eq!(tools.functions[0].description.as_deref(), Some("d"));
        assert!(warnings.is_empty());
    }

    #[test]
    fn members_without_effect_are_named() {
        let check = |tool: Value, named: &str| {
            let (tools, warnings) = read(json!([tool]));
            assert_eq!(tools.functions.len(), 1);
            assert!(json!(warnings)[0].as_str().unwrap().starts_with(named), "{named}");
        };
        let tool =
            |name: &str, value: Value| json!({"type": "function", "name": "f", (name): value});
        check(tool("async", json!(true)), "async");
        check(tool("output_schema", json!({})), "output_schema");
        check(tool("allowed_callers", json!(["programmatic"])), "allowed_callers");
        let space = json!({"type": "namespace", "name": "n", "description": "d",
                           "tools": [{"type": "function", "name": "f"}]});
        check(space, "description");
        let (_, warnings) = read(json!([tool("allowed_callers", json!(["direct"])),
            {"type": "function", "name": "g", "async": false, "defer_loading": true}]));
        assert!(warnings.is_empty());
    }

    #[test]
    fn a_search_that_the_client_makes_is_a_function() {
        let (tools, warnings) = read(json!([{"type": "tool_search", "execution": "client",
            "description": "d", "parameters": {"type": "object"}}]));
        assert_eq!(tools.functions[0].name, "tool_search");
        assert_eq!(tools.wire("tool_search").kind, CallKind::Search);
        assert!(warnings.is_empty());
        let (tools, warnings) = read(json!([{"type": "tool_search"}]));
        assert!(tools.functions.is_empty() && !warnings.is_empty());
    }

    fn choose(choice: Value) -> Result<(ToolChoice, usize), HttpError> {
        let given = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}]);
        let mut tools = Tools::read(given.as_array().unwrap(), &mut Warnings::default()).unwrap();
        let choice = super::choice(Some(&choice), &mut tools)?;
        Ok((choice, tools.functions.len()))
    }

    fn check_choice(given: Value, expected: ToolChoice, tools: usize) {
        assert_eq!(choose(given.clone()).unwrap(), (expected, tools), "{given}");
    }

    #[test]
    fn every_form_is_understood() {
        check_choice(json!("auto"), ToolChoice::Auto, 3);
        check_choice(json!("none"), ToolChoice::None, 3);
        check_choice(json!("required"), ToolChoice::Required, 3);
        check_choice(json!({"type": "function", "name": "f"}), ToolChoice::Named("f".into()), 3);
        check_choice(json!({"type": "custom", "name": "c"}), ToolChoice::Named("c".into()), 3);
        let some = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
                          {"type": "web_search"}]);
        let allowed = |mode| json!({"type": "allowed_tools", "mode": mode, "tools": some});
        check_choice(allowed("auto"), ToolChoice::Auto, 2);
        check_choice(allowed("required"), ToolChoice::Required, 2);
        let one = json!([{"type": "function", "name": "g", "namespace": "n"}]);
        let one = json!({"type": "allowed_tools", "mode": "required", "tools": one});
        check_choice(one, ToolChoice::Named("n__g".into()), 3);
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
