//! The settings of servers: `NAME: { command: [..], env: {..}, net: true, sandbox: off }` or
//! `NAME: { url: .. }`.

use hyper::Uri;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most bytes of a server's name.
const MAX_NAME_BYTES: usize = 32;
/// The fields of a server.
const FIELDS: [&str; 5] = ["command", "env", "net", "sandbox", "url"];

/// The servers of the user's settings by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpSettings {
    /// The servers. Names have at most 32 letters, digits, `_` and `-`, without `__` and without
    /// `_` at the end, so that the name of a tool says whose it is.
    pub servers: BTreeMap<String, McpServerSettings>,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpServerSettings {
    /// A command that is started, and speaks over its standard input and output.
    Command(McpCommand),
    /// An address of the scheme `http` or `https`.
    Url(String),
}

/// A server that is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpCommand {
    /// The program and its arguments, at least the program.
    pub command: Vec<String>,
    /// Variables that are added to its environment.
    pub env: BTreeMap<String, String>,
    /// Whether it reaches the internet.
    pub net: bool,
    /// Whether it is confined: not where the settings say `sandbox: off`.
    pub is_confined: bool,
}

impl McpSettings {
    /// The settings that the key `mcp` has as its value. Scalars are texts, as a file of settings
    /// spells them, or values of JSON.
    ///
    /// # Errors
    ///
    /// If a server is none. The text begins with the place, such as `mcp.files.command`, and says
    /// what is expected there and what is found.
    pub fn read(value: &Value) -> Result<Self, String> {
        let written = Written { place: "mcp".to_owned(), value };
        let mut servers = BTreeMap::new();
        for (name, server) in written.members("a map of servers by their names")? {
            check_name(name)?;
            servers.insert(name.clone(), written.member(name, server).server()?);
        }
        Ok(Self { servers })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let is_name = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.chars().all(is_part)
        && !name.contains("__")
        && !name.ends_with('_');
    is_name.then_some(()).ok_or_else(|| {
        format!(
            "mcp: expected a name of at most {MAX_NAME_BYTES} letters, digits, `_` and `-`, \
             without `__` and without `_` at the end, found `{}`",
            name.escape_debug()
        )
    })
}

/// A value and its place in the file.
struct Written<'a> {
    place: String,
    value: &'a Value,
}

impl<'a> Written<'a> {
    fn wrong(&self, expected: &str) -> String {
        let found = match self.value {
            Value::Null => "nothing".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "a map".to_owned(),
            Value::String(text) => format!("`{}`", text.escape_debug()),
            Value::Bool(_) | Value::Number(_) => format!("`{}`", self.value),
        };
        format!("{}: expected {expected}, found {found}", self.place)
    }

    fn member(&self, name: &str, value: &'a Value) -> Self {
        Self { place: format!("{}.{}", self.place, name.escape_debug()), value }
    }

    fn members(&self, expected: &str) -> Result<&'a Map<String, Value>, String> {
        self.value.as_object().ok_or_else(|| self.wrong(expected))
    }

    fn text(&self, expected: &str) -> Result<String, String> {
        match self.value {
            Value::String(text) if !text.contains('\0') => Ok(text.clone()),
            Value::Bool(_) | Value::Number(_) => Ok(self.value.to_string()),
            _ => Err(self.wrong(expected)),
        }
    }

    fn server(&self) -> Result<McpServerSettings, String> {
        let members = self.members("a map with `command` or `url`")?;
        if let Some(name) = members.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            let place = self.member(name, self.value).place;
            return Err(format!("{place}: no such field (known: {})", FIELDS.join(", ")));
        }
        let field = |name: &str| members.get(name).map(|value| self.member(name, value));
        let (command, url) = (field("command"), field("url"));
        let expected = || format!("{}: expected `command` or `url`, found", self.place);
        match (command, url) {
            (Some(_), Some(_)) => Err(format!("{} both", expected())),
            (None, None) => Err(format!("{} none", expected())),
            (Some(command), None) => Ok(McpServerSettings::Command(McpCommand {
                command: command.command()?,
                env: field("env").map_or(Ok(BTreeMap::new()), |it| it.variables())?,
                net: field("net").map_or(Ok(false), |it| it.switch())?,
                is_confined: field("sandbox").map_or(Ok(true), |it| it.sandbox())?,
            })),
            (None, Some(url)) => match ["env", "net", "sandbox"].into_iter().find_map(field) {
                Some(Written { place, .. }) => {
                    Err(format!("{place}: a server with `url` is not started here"))
                }
                None => url.url().map(McpServerSettings::Url),
            },
        }
    }

    fn command(&self) -> Result<Vec<String>, String> {
        let expected = "a list of a program and its arguments";
        let parts = self.value.as_array().ok_or_else(|| self.wrong(expected))?;
        let part = |(number, value): (usize, &'a Value)| {
            let place = format!("{}[{number}]", self.place);
            Written { place, value }.text("a text without the character 0")
        };
        let command: Vec<String> = parts.iter().enumerate().map(part).collect::<Result<_, _>>()?;
        match command.first().is_none_or(String::is_empty) {
            true => Err(format!("{}: expected {expected}, found none", self.place)),
            false => Ok(command),
        }
    }

    fn variables(&self) -> Result<BTreeMap<String, String>, String> {
        let mut variables = BTreeMap::new();
        for (name, value) in self.members("a map of variables")? {
            if name.is_empty() || name.contains(['=', '\0']) {
                let name = name.escape_debug();
                return Err(format!("{}: expected names of variables, found `{name}`", self.place));
            }
            let value = self.member(name, value).text("a text without the character 0")?;
            variables.insert(name.clone(), value);
        }
        Ok(variables)
    }

    fn switch(&self) -> Result<bool, String> {
        let expected = "true or false";
        self.text(expected)?.parse().map_err(|_| self.wrong(expected))
    }

    /// Whether the server is confined.
    fn sandbox(&self) -> Result<bool, String> {
        match self.text("off")?.as_str() {
            "off" => Ok(false),
            _ => Err(self.wrong("off")),
        }
    }

    fn url(&self) -> Result<String, String> {
        let url = self.text("an address of http or https")?;
        endpoint(&url).map_err(|problem| format!("{}: {problem}", self.place))?;
        Ok(url)
    }
}

/// The parsed address of a server.
///
/// # Errors
///
/// If it is none of HTTP, has no host, or has a name and a password in it.
pub(super) fn endpoint(url: &str) -> Result<Uri, String> {
    let wrong = |found: &str| format!("expected an address of http or https, found {found}");
    let uri: Uri = url.parse().map_err(|error| wrong(&format!("`{url:?}` ({error})")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong(&format!("{url:?}")));
    }
    match (uri.host(), uri.authority()) {
        (Some(""), _) | (None, _) | (_, None) => Err(wrong("no host")),
        (_, Some(authority)) if authority.as_str().contains('@') => {
            Err(wrong("a name or a password in it"))
        }
        _ => Ok(uri),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_read_as_written() {
        let settings = McpSettings::read(&json!({
            "files": {"command": ["npx", "x"], "env": {"A": "b", "PORT": 8080}, "net": true,
                      "sandbox": "off"},
            "docs-1": {"url": "https://example.org/mcp"},
            "p": {"command": ["p", 8]},
            "q": {"command": ["q"], "net": "false", "env": {}},
        }));
        let servers = settings.unwrap().servers;
        let command = |command: &[&str], env: &[(&str, &str)], net, is_confined| {
            McpServerSettings::Command(McpCommand {
                command: command.iter().map(|&it| it.to_owned()).collect(),
                env: env.iter().map(|&(name, it)| (name.to_owned(), it.to_owned())).collect(),
                net,
                is_confined,
            })
        };
        let env = [("A", "b"), ("PORT", "8080")];
        assert_eq!(servers["files"], command(&["npx", "x"], &env, true, false));
        assert_eq!(servers["docs-1"], McpServerSettings::Url("https://example.org/mcp".to_owned()));
        assert_eq!(servers["p"], command(&["p", "8"], &[], false, true));
        assert_eq!(servers["q"], command(&["q"], &[], false, true));
    }

    fn check(value: Value, expected: &str) {
        let found = McpSettings::read(&value).unwrap_err();
        assert!(found.starts_with(expected), "{value}: {found}");
    }

    #[test]
    fn errors_name_the_server_and_the_field() {
        let server = |server: Value, expected: &str| check(json!({ "a": server }), expected);
        check(json!(null), "mcp: expected a map of servers by their names, found nothing");
        check(json!(["a"]), "mcp: expected a map of servers by their names, found a list");
        server(json!("x"), "mcp.a: expected a map with `command` or `url`, found `x`");
        server(json!({}), "mcp.a: expected `command` or `url`, found none");
        server(json!({"command": ["x"], "url": "http://x"}), "mcp.a: expected `command` or `url`");
        server(json!({"command": []}), "mcp.a.command: expected a list");
        server(json!({"command": [""]}), "mcp.a.command: expected a list");
        server(json!({"command": ["x", ["y"]]}), "mcp.a.command[1]: expected a text");
        server(json!({"command": ["x\0"]}), "mcp.a.command[0]: expected a text without");
        server(json!({"command": "x"}), "mcp.a.command: expected a list of a program and its arg");
        let evn = "mcp.a.evn: no such field (known: command, env, net, sandbox, url)";
        server(json!({"command": ["x"], "evn": {}}), evn);
        server(json!({"command": ["x"], "env": []}), "mcp.a.env: expected a map of variables");
        server(json!({"command": ["x"], "env": {"A=B": ""}}), "mcp.a.env: expected names of");
        server(json!({"command": ["x"], "env": {"A": null}}), "mcp.a.env.A: expected a text");
        server(json!({"command": ["x"], "net": "yes"}), "mcp.a.net: expected true or false, found");
        server(json!({"command": ["x"], "sandbox": "on"}), "mcp.a.sandbox: expected off, found `o");
        server(json!({"command": ["x"], "sandbox": true}), "mcp.a.sandbox: expected off, found `t");
        server(json!({"url": "http://x", "net": true}), "mcp.a.net: a server with `url` is not");
        server(json!({"url": "http://x", "sandbox": "off"}), "mcp.a.sandbox: ");
        for url in ["ftp://x", "x", "/x", "", "http://", "http://a:b@x", "http://[", "http://a b"] {
            server(json!({ "url": url }), "mcp.a.url: expected an address of http or https");
        }
        let long = "a".repeat(33);
        for name in ["", "a__b", "a_", "a b", "é", "a/b", "\u{1b}", &long] {
            check(json!({name: {"url": "http://x"}}), "mcp: expected a name");
        }
    }
}
