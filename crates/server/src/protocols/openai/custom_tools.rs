//! Custom tools of a chat, whose argument is free text. To the model each is a function of one
//! string, as in the Responses API.

use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::freeform::{self, Freeform, GRAMMAR_IS_TOLD};
use crate::protocols::warnings::Warnings;
use api::{Tool, ToolCall};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashSet;
use utoipa::ToSchema;

/// A tool whose argument is free text.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatCustomTool)]
pub(crate) struct CustomTool {
    #[schema(value_type = String, min_length = 1)]
    name: Option<String>,
    description: Option<String>,
    format: Option<CustomFormat>,
}

/// What the text is like: any, or that of a grammar, which the model is shown. The members of the
/// grammar may stand beside `type`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatCustomFormat)]
struct CustomFormat {
    grammar: Option<CustomGrammar>,
    syntax: Option<String>,
    definition: Option<String>,
}

/// A grammar, in the syntax `lark`, which is the default, or `regex`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatCustomGrammar)]
struct CustomGrammar {
    syntax: Option<String>,
    definition: Option<String>,
}

/// The custom tools of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomTools {
    names: HashSet<String>,
    /// What a request asked for and does not get.
    pub warnings: Warnings,
}

impl CustomTools {
    /// Adds the tool at `path`, and returns the function that stands for it.
    ///
    /// # Errors
    /// If the tool has no name.
    pub fn add(&mut self, tool: CustomTool, path: &str) -> Result<Tool, HttpError> {
        let CustomTool { name, description, format } = tool;
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| wire::missing(&format!("{path}.name")))?;
        let grammar = format.map(|CustomFormat { grammar, syntax, definition }| {
            grammar.unwrap_or(CustomGrammar { syntax, definition })
        });
        let grammar = grammar.as_ref().and_then(|grammar| {
            Some((grammar.syntax.as_deref().unwrap_or("lark"), grammar.definition.as_deref()?))
        });
        if grammar.is_some() {
            self.warnings.add(&name, GRAMMAR_IS_TOLD);
        }
        self.names.insert(name.clone());
        Ok(freeform::function(name, description, grammar))
    }

    /// Whether the tool of this name takes free text.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// The call of a custom tool that the assistant made.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatPastCustom)]
pub(crate) struct PastCustom {
    #[schema(value_type = String)]
    name: Option<String>,
    input: Option<String>,
}

impl PastCustom {
    /// The call at `path` as that of the function that stands for the tool.
    ///
    /// # Errors
    /// If the call has no name.
    pub fn call(&self, id: Option<String>, path: &str) -> Result<ToolCall, HttpError> {
        let name = self.name.clone().ok_or_else(|| wire::missing(&format!("{path}.name")))?;
        let arguments = freeform::arguments(self.input.as_deref().unwrap_or_default());
        let mut source = json!({ "type": "function", "function": { "name": name } });
        source["function"]["arguments"] = arguments.clone();
        if let Some(id) = &id {
            source["id"] = json!(id);
        }
        let source = source.as_object().cloned().unwrap_or_default();
        Ok(ToolCall { id, name, arguments, source })
    }
}

/// The call of a custom tool that is being generated.
#[derive(Clone, Debug)]
pub(crate) struct OpenCall {
    /// The number of the call.
    pub index: usize,
    reader: Freeform,
    given: String,
}

impl OpenCall {
    /// The call of this number, of which nothing has come.
    pub fn new(index: usize) -> Self {
        Self { index, reader: Freeform::default(), given: String::new() }
    }

    /// The text that more of the arguments complete.
    pub fn push(&mut self, delta: &str) -> String {
        let text = self.reader.push(delta);
        self.given.push_str(&text);
        text
    }

    /// The rest of the text.
    pub fn finish(self) -> String {
        self.reader.finish(&self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn custom_tools_are_functions_of_one_string_that_are_told_their_grammar() {
        let add = |tool: Value| {
            let mut all = CustomTools::default();
            let tool = all.add(serde_json::from_value(tool).unwrap(), "tools[0].custom");
            (tool.unwrap(), all)
        };
        let (tool, all) = add(json!({"name": "c", "description": "d", "format": {"type": "text"}}));
        assert_eq!((&*tool.name, tool.description.as_deref()), ("c", Some("d")));
        assert_eq!(tool.parameters["properties"]["input"], json!({"type": "string"}));
        assert!(all.has("c") && !all.has("d") && all.warnings.is_empty());
        let grammar = json!({"syntax": "regex", "definition": "a+"});
        let nested = json!({"name": "c", "format": {"type": "grammar", "grammar": grammar}});
        let flat = json!({"name": "c", "format": {"type": "grammar", "syntax": "regex",
            "definition": "a+"}});
        for tool in [nested, flat] {
            let (tool, all) = add(tool);
            let told = &tool.parameters["properties"]["input"]["description"];
            assert_eq!(told, "Text of this regex grammar:\na+");
            let told = ["c: the grammar is told to the model and not enforced"];
            assert_eq!(json!(all.warnings), json!(told));
        }
    }

    #[test]
    fn a_call_comes_as_its_text() {
        let mut call = OpenCall::new(0);
        let text: String =
            ["{\"inp", "ut\": \"a\\", "nb", "\"}"].map(|delta| call.push(delta)).concat();
        assert_eq!((text.as_str(), call.finish().as_str()), ("a\nb", ""));
        let mut other = OpenCall::new(0);
        assert_eq!((other.push("{}"), other.finish()), (String::new(), "{}".to_owned()));
    }
}
