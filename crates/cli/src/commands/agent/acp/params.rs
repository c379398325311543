//! What requests ask for. Members that are not known are left out, as the protocol grows by them.

use super::wire::AcpError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeParams {
    /// The newest version that the client has.
    #[serde(rename = "protocolVersion")]
    pub _version: u16,
    #[serde(default)]
    pub client_capabilities: Value,
}

/// `session/new`, and `session/load` with the id of a session.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionParams {
    pub session_id: Option<String>,
    pub cwd: PathBuf,
    #[serde(default)]
    pub mcp_servers: Option<Vec<Value>>,
}

impl SessionParams {
    /// The folder to work in.
    ///
    /// # Errors
    ///
    /// If its path is not absolute.
    pub fn folder(&self) -> Result<&Path, AcpError> {
        match self.cwd.is_absolute() {
            true => Ok(&self.cwd),
            false => {
                let text = format!("cwd: expected an absolute path, found {}", self.cwd.display());
                Err(AcpError::invalid_params(text))
            }
        }
    }
}

/// `session/prompt`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptParams {
    pub session_id: String,
    prompt: Vec<PromptPart>,
}

/// `session/set_mode`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModeParams {
    pub session_id: String,
    pub mode_id: String,
}

/// What names a session alone.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionIdParams {
    pub session_id: String,
}

/// A part of a prompt.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PromptPart {
    Text { text: String },
    ResourceLink { name: String, uri: String },
    Resource { resource: PromptResource },
    Image {},
    Audio {},
}

/// The content of a file or page.
#[derive(Debug, Deserialize)]
struct PromptResource {
    uri: String,
    text: Option<String>,
}

/// The parameters of a request.
///
/// # Errors
///
/// If a member is missing or of another type; the error names it.
pub(super) fn read<T: DeserializeOwned>(params: Value) -> Result<T, AcpError> {
    // A list would be taken for members in order.
    if !params.is_object() {
        return Err(AcpError::invalid_params("params: expected an object"));
    }
    serde_path_to_error::deserialize(params)
        .map_err(|error| AcpError::invalid_params(format!("params: {error}")))
}

impl PromptParams {
    /// The prompt as text.
    ///
    /// # Errors
    ///
    /// If it has a part that is no text, or is empty.
    pub fn text(&self) -> Result<String, AcpError> {
        let mut text = String::new();
        for part in &self.prompt {
            text.push_str(&part.text()?);
        }
        match text.trim().is_empty() {
            true => Err(AcpError::invalid_params("prompt: expected text, found none")),
            false => Ok(text),
        }
    }
}

impl PromptPart {
    fn text(&self) -> Result<String, AcpError> {
        let none = |what| AcpError::invalid_params(format!("prompt: expected text, found {what}"));
        match self {
            Self::Text { text } => Ok(text.clone()),
            Self::ResourceLink { name, uri } => Ok(format!("[{name}]({uri})")),
            Self::Resource { resource: PromptResource { uri, text: Some(text) } } => {
                Ok(format!("\n{uri}:\n{}\n", fenced(text)))
            }
            Self::Resource { .. } => Err(none("a resource without a text")),
            Self::Image {} => Err(none("an image")),
            Self::Audio {} => Err(none("audio")),
        }
    }
}

/// `text` as a block of code that no line of it ends.
pub(super) fn fenced(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prompt(parts: Value) -> Result<String, AcpError> {
        read::<PromptParams>(json!({"sessionId": "s", "prompt": parts}))?.text()
    }

    #[test]
    fn a_prompt_is_the_text_of_its_parts() {
        let parts = json!([
            {"type": "text", "text": "See ", "annotations": null, "_meta": {"a": 1}},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///w/a.rs", "size": 3},
            {"type": "text", "text": " and"},
            {"type": "resource", "resource": {"uri": "file:///w/b.md", "text": "```\nx\n```"}},
        ]);
        let expected = "See [a.rs](file:///w/a.rs) and\nfile:///w/b.md:\n````\n```\nx\n```\n````\n";
        assert_eq!(prompt(parts).unwrap(), expected);
    }

    #[test]
    fn what_is_no_text_is_named() {
        let check = |parts: Value, expected: &str| {
            let found = prompt(parts.clone()).unwrap_err().to_json()["message"].to_string();
            assert!(found.contains(expected), "{parts}: {found}");
        };
        check(json!([]), "found none");
        check(json!([{"type": "text", "text": " "}]), "found none");
        check(json!([{"type": "image", "data": "", "mimeType": "image/png"}]), "an image");
        check(json!([{"type": "audio", "data": ""}]), "audio");
        check(
            json!([{"type": "resource", "resource": {"uri": "u", "blob": ""}}]),
            "without a text",
        );
        check(json!([{"type": "video"}]), "prompt[0]");
        check(json!("text"), "prompt: invalid type");
    }

    #[test]
    fn folders_are_absolute() {
        let folder = |cwd: &str| {
            read::<SessionParams>(json!({"cwd": cwd, "mcpServers": []})).unwrap().folder().is_ok()
        };
        assert!(folder("/w") && !folder("w") && !folder("") && !folder("~/w"));
        for wrong in [json!([]), json!(null), json!({}), json!({"cwd": 1})] {
            assert!(read::<SessionParams>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
