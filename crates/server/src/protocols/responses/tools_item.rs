//! Items that add tools to a conversation: `additional_tools`, and results of searches for tools.
//!
//! Source: the types of OpenAI's official clients. Their tools belong to the tools of every request
//! whose conversation holds the item, after those of the member `tools`.

use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use crate::http::random;
use crate::protocols::responses::tools::{Origin, Tools, execution, flat};
use crate::protocols::warnings::Warnings;
use serde_json::{Value, json};

/// The type of items that a client adds tools with.
pub(crate) const ADDITIONAL: &str = "additional_tools";
/// The type of results of a search for tools.
pub(crate) const FOUND: &str = "tool_search_output";

/// Tools that the model may call from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolsItem {
    pub id: String,
    pub tools: Vec<Value>,
    /// The search that found them.
    pub search: Option<Search>,
}

/// A search for tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    /// The call that asked for it.
    pub call_id: Option<String>,
    /// `client` or `server`.
    pub execution: String,
}

impl ToolsItem {
    /// Reads an item of the type `kind`.
    ///
    /// # Errors
    /// If a member is missing, a tool cannot be read, or the role is not one that may add tools.
    pub fn read(
        fields: &ObjectReader<'_>,
        kind: &str,
        warnings: &mut Warnings,
    ) -> Result<Self, HttpError> {
        let given = fields.text("id")?.filter(|id| !id.is_empty()).map(str::to_owned);
        let tools = fields.array("tools")?.ok_or_else(|| fields.missing("tools"))?;
        Tools::default().extend(tools, &fields.path("tools"), Origin::Item, warnings)?;
        let search = if kind == FOUND { Some(Search::read(fields)?) } else { None };
        if search.is_none() {
            check_role(fields)?;
        }
        let prefix = if search.is_some() { "tso_" } else { "at_" };
        let id = given.unwrap_or_else(|| random::id(prefix));
        Ok(Self { id, tools: tools.to_vec(), search })
    }

    /// Approximate bytes of the tools in memory.
    pub fn size(&self) -> usize {
        self.tools.iter().map(|tool| 64 + tool.to_string().len()).sum()
    }

    /// The JSON that lists the item.
    pub fn json(&self) -> Value {
        let Self { id, tools, search } = self;
        match search {
            None => json!({ "id": id, "type": ADDITIONAL, "role": "developer", "tools": tools }),
            Some(Search { call_id, execution }) => json!({
                "id": id, "type": FOUND, "call_id": call_id, "execution": execution,
                "status": "completed", "tools": tools,
            }),
        }
    }

    /// The result of the search as the model reads it.
    pub fn found(&self) -> String {
        let mut names = Vec::new();
        for tool in &self.tools {
            let name = tool["name"].as_str();
            match tool["tools"].as_array() {
                Some(inner) => {
                    let own = inner.iter().filter_map(|tool| tool["name"].as_str());
                    names.extend(own.map(|own| flat(name, own)));
                }
                None => names.extend(name.map(str::to_owned)),
            }
        }
        match names.as_slice() {
            [] => "No tools were found.".into(),
            names => format!("These tools can be called now: {}", names.join(", ")),
        }
    }
}

impl Search {
    fn read(fields: &ObjectReader<'_>) -> Result<Self, HttpError> {
        let execution = execution(fields)?.to_owned();
        Ok(Self { call_id: fields.text("call_id")?.map(str::to_owned), execution })
    }
}

fn check_role(fields: &ObjectReader<'_>) -> Result<(), HttpError> {
    match fields.text("role")? {
        None | Some("developer" | "system") => Ok(()),
        Some(other) => {
            let problem = format!("must be developer, not {other}");
            Err(HttpError::member(&fields.path("role"), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(item: &Value) -> Result<ToolsItem, HttpError> {
        let fields = ObjectReader::of(item, "input[1]")?;
        ToolsItem::read(&fields, item["type"].as_str().unwrap(), &mut Warnings::default())
    }

    #[test]
    fn items_are_listed_as_they_came() {
        let tools = json!([{"type": "function", "name": "f"},
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]}]);
        for item in [
            json!({"id": "a", "type": ADDITIONAL, "role": "developer", "tools": tools}),
            json!({"id": "a", "type": FOUND, "call_id": "c", "execution": "client",
                   "status": "completed", "tools": tools}),
            json!({"id": "a", "type": FOUND, "call_id": null, "execution": "server",
                   "status": "completed", "tools": []}),
        ] {
            assert_eq!(read(&item).unwrap().json(), item);
        }
    }

    #[test]
    fn the_model_reads_the_names_that_it_calls() {
        let found = |tools: Value| read(&json!({"type": FOUND, "tools": tools})).unwrap().found();
        assert_eq!(found(json!([])), "No tools were found.");
        let tools = json!([{"type": "function", "name": "f"},
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]}]);
        assert_eq!(found(tools), "These tools can be called now: f, n__c");
    }

    #[test]
    fn faults_name_their_place() {
        let check = |item: Value, param: &str| {
            let error = read(&item).expect_err(&item.to_string());
            assert_eq!(error.body()["error"]["param"], param, "{item}");
        };
        check(json!({"type": ADDITIONAL}), "input[1].tools");
        check(json!({"type": ADDITIONAL, "tools": [3]}), "input[1].tools[0]");
        check(json!({"type": ADDITIONAL, "tools": [], "role": "user"}), "input[1].role");
        let nameless = json!([{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]);
        check(json!({"type": FOUND, "tools": nameless}), "input[1].tools[0].tools[0].name");
        check(json!({"type": FOUND, "tools": [], "execution": "x"}), "input[1].execution");
    }
}
