//! The tools of a server, as its lists have them and as the model may call them.
//!
//! Invariant: there are at most [`MAX_TOOLS`] tools, and their names differ.

use super::context::McpContext;
use super::headers::{HeaderParam, header_params};
use serde_json::Value;

/// Most tools of a server.
pub const MAX_TOOLS: usize = 64;
/// Most bytes of a description.
const MAX_DESCRIPTION_BYTES: usize = 1 << 10;
/// Most bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 8 << 10;
/// Most bytes of a name that models call.
const MAX_CALL_BYTES: usize = 64;
/// Most pages of a list.
const MAX_PAGES: usize = 64;
/// Most bytes of what the next page is asked by.
const MAX_CURSOR_BYTES: usize = 64 << 10;
/// Tools whose absence is explained.
const MAX_EXPLAINED: usize = 16;

/// A tool of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpTool {
    /// Its name in calls: `NAME__tool`, of at most 64 letters, digits, `_` and `-`.
    pub name: String,
    /// The server's name in the settings.
    pub server: String,
    /// The tool's name there.
    pub tool: String,
    /// What the model reads of it: printable, and at most 1 KiB.
    pub description: String,
    /// The JSON schema of its arguments, an object as the server wrote it, of at most 8 KiB.
    pub schema: Value,
    /// Whether the server says that the tool only reads. It may say what is wrong.
    pub is_read_only: bool,
}

/// A tool with the header fields of its calls.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    pub tool: McpTool,
    pub headers: Vec<HeaderParam>,
}

/// What is listed so far.
#[derive(Debug)]
pub(super) struct ToolListing {
    server: String,
    repeats_arguments: bool,
    pages: usize,
    left_out: usize,
    /// The tools.
    pub tools: Vec<ListedTool>,
    /// Why tools are missing.
    pub problems: Vec<String>,
}

impl ToolListing {
    /// An empty listing. Header fields matter where they repeat arguments.
    pub(super) fn new(server: &str, repeats_arguments: bool) -> Self {
        Self {
            server: server.to_owned(),
            repeats_arguments,
            pages: 0,
            left_out: 0,
            tools: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Adds the tools of a page, and returns what the next one is asked by, if there is one.
    ///
    /// # Errors
    ///
    /// If it is no page.
    pub(super) fn add(
        &mut self,
        page: &Value,
        context: &McpContext,
    ) -> Result<Option<String>, String> {
        let tools = page["tools"].as_array().ok_or("it answers no list of tools")?;
        self.pages += 1;
        for tool in tools {
            if self.tools.len() == MAX_TOOLS {
                self.problems.push(format!("tools after the first {MAX_TOOLS} are left out"));
                return Ok(None);
            }
            match self.listed(tool, context) {
                Ok(tool) => self.tools.push(tool),
                Err(problem) => self.leave_out(&tool["name"], &problem, context),
            }
        }
        let cursor = page["nextCursor"].as_str().filter(|_| self.pages < MAX_PAGES);
        let has_more = cursor.is_none() && page["nextCursor"].is_string();
        if has_more || cursor.is_some_and(|cursor| cursor.len() > MAX_CURSOR_BYTES) {
            self.problems.push(format!("tools after {} pages are left out", self.pages));
            return Ok(None);
        }
        Ok(cursor.map(str::to_owned))
    }

    fn listed(&self, tool: &Value, context: &McpContext) -> Result<ListedTool, String> {
        let name = tool["name"].as_str().unwrap_or_default();
        let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
        if name.is_empty() || !name.chars().all(is_part) {
            return Err("a name has letters, digits, `_` and `-`".to_owned());
        }
        let call = format!("{}__{name}", self.server);
        if call.len() > MAX_CALL_BYTES {
            return Err(format!("`{}__` and a name have {MAX_CALL_BYTES} bytes", self.server));
        }
        if self.tools.iter().any(|it| it.tool.name == call) {
            return Err("the name is there already".to_owned());
        }
        let schema = &tool["inputSchema"];
        if !schema.is_object() || schema.get("type").is_some_and(|kind| kind != "object") {
            return Err("its schema is that of no object".to_owned());
        }
        if schema.to_string().len() > MAX_SCHEMA_BYTES {
            return Err(format!("its schema has over {MAX_SCHEMA_BYTES} bytes"));
        }
        if tool["execution"]["taskSupport"] == "required" {
            return Err("it is called by tasks alone, which this client does not have".to_owned());
        }
        let headers = if self.repeats_arguments { header_params(schema)? } else { Vec::new() };
        let tool = McpTool {
            name: call,
            server: self.server.clone(),
            tool: name.to_owned(),
            description: description(tool["description"].as_str().unwrap_or_default(), context),
            schema: schema.clone(),
            is_read_only: tool["annotations"]["readOnlyHint"].as_bool() == Some(true),
        };
        Ok(ListedTool { tool, headers })
    }

    fn leave_out(&mut self, name: &Value, problem: &str, context: &McpContext) {
        self.left_out += 1;
        if self.left_out <= MAX_EXPLAINED {
            let name = name.as_str().unwrap_or_default();
            // A line end in the name begins no line of what is said.
            let name = context.shown(&name[..name.floor_char_boundary(MAX_CALL_BYTES)]);
            let name = name.replace(['\n', '\t'], " ");
            self.problems.push(format!("the tool `{name}` is left out: {problem}"));
        } else if self.left_out == MAX_EXPLAINED + 1 {
            self.problems.push("more tools are left out".to_owned());
        }
    }
}

fn description(text: &str, context: &McpContext) -> String {
    let mut text = context.shown(&text[..text.floor_char_boundary(MAX_DESCRIPTION_BYTES)]);
    text.truncate(text.floor_char_boundary(MAX_DESCRIPTION_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::context;
    use super::*;
    use serde_json::json;

    fn list(pages: &[Value]) -> ToolListing {
        let mut listing = ToolListing::new("s", true);
        for page in pages {
            let _ = listing.add(page, &context()).unwrap();
        }
        listing
    }

    fn tool(name: &str, schema: Value) -> Value {
        json!({"name": name, "inputSchema": schema})
    }

    #[test]
    fn tools_that_models_cannot_call_are_left_out() {
        let object = || json!({"type": "object"});
        let long = "é".repeat(600);
        let tools = json!([
            {"name": "a", "inputSchema": {}, "description": long,
             "annotations": {"readOnlyHint": true}},
            tool("a", object()), tool("b.c", object()), tool("", object()),
            tool(&"x".repeat(62), object()), tool(&"y".repeat(61), object()),
            tool("no", json!({"type": "string"})), tool("list", json!([])),
            tool("large", json!({"description": "x".repeat(8 << 10)})), {"name": "none"},
            tool("h", json!({"properties": {"a": {"x-mcp-header": "A"}}})), 3, null,
            {"name": "task", "inputSchema": {}, "execution": {"taskSupport": "required"}},
            tool("\u{1b}[2J\ny", object()),
        ]);
        let listing = list(&[json!({"tools": tools})]);
        let names: Vec<&str> = listing.tools.iter().map(|it| it.tool.name.as_str()).collect();
        assert_eq!(names, ["s__a", &format!("s__{}", "y".repeat(61))]);
        assert_eq!(listing.tools[0].tool.description, "é".repeat(512));
        assert!(listing.tools[0].tool.is_read_only && !listing.tools[1].tool.is_read_only);
        assert_eq!(listing.problems.len(), 13);
        assert!(listing.problems[12].contains("`<1b>[2J y`"), "{:?}", listing.problems);
    }

    #[test]
    fn lists_end_whatever_the_server_says() {
        let page = |tools: usize| {
            let tools = (0..tools).map(|it| tool(&format!("t{it}"), json!({})));
            json!({"tools": tools.collect::<Vec<_>>(), "nextCursor": "x"})
        };
        let listing = list(&[page(40), page(100)]);
        assert_eq!((listing.tools.len(), listing.problems.len()), (64, 18));
        let mut listing = ToolListing::new("s", false);
        let pages = (0..).take_while(|_| listing.add(&page(0), &context()).unwrap().is_some());
        assert_eq!(pages.count(), MAX_PAGES - 1);
        assert_eq!(listing.problems, ["tools after 64 pages are left out"]);
        let long = json!({"tools": [], "nextCursor": "x".repeat(MAX_CURSOR_BYTES + 1)});
        assert_eq!(listing.add(&long, &context()), Ok(None));
        assert!(listing.add(&json!({}), &context()).is_err());
    }
}
