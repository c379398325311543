//! Tests with scripted servers: processes of Python, and addresses on loopback.

mod web_server;

mod http;
mod stdio;
mod stdio_faults;

use super::answer::McpAnswer;
use super::fault::McpError;
use super::{
    McpCommand, McpContext, McpLimits, McpProcess, McpServerSettings, McpServers, McpSettings,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A context that starts commands as they are, and shows escapes as `<1b>`.
pub(super) fn context() -> McpContext {
    McpContext {
        launcher: Arc::new(|_, settings| {
            let mut command = Command::new(&settings.command[0]);
            command.args(&settings.command[1..]).envs(&settings.env);
            Ok(McpProcess { command, is_watched: false })
        }),
        printable: |bytes| String::from_utf8_lossy(bytes).replace('\u{1b}', "<1b>"),
        limits: McpLimits {
            call: Duration::from_secs(60),
            start: Duration::from_secs(60),
            probe: Duration::from_secs(60),
            end: Duration::from_millis(500),
        },
    }
}

fn started(servers: &[(&str, McpServerSettings)], context: &McpContext) -> McpServers {
    let servers = servers.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
    McpServers::start(&McpSettings { servers }, context, &|| false)
}

/// The only problem of `servers`.
fn problem(servers: &McpServers) -> &str {
    match servers.problems() {
        [problem] => &problem.text,
        problems => panic!("{problems:?}"),
    }
}

fn call(servers: &mut McpServers, tool: &str, arguments: Value) -> Result<McpAnswer, McpError> {
    servers.call(tool, &arguments, &|| false)
}

fn text(text: &str) -> Result<McpAnswer, McpError> {
    Ok(McpAnswer { ok: true, text: text.to_owned() })
}

/// What scripts of Python begin with. `serve(handle)` answers with what `handle` returns for a
/// request, or not at all for `None`; `modern` and `legacy` answer how a server begins.
const PYTHON: &str = r#"
import json, os, sys, time
def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
def receive():
    line = sys.stdin.readline()
    return json.loads(line) if line else None
def result(request, **members):
    return {"jsonrpc": "2.0", "id": request["id"], "result": members}
def error(request, code, message, **data):
    e = {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request["id"], "error": e}
def text(request, text):
    return result(request, content=[{"type": "text", "text": text}])
TOOLS = [{"name": "t", "inputSchema": {"type": "object"}, "description": "T"}]
def modern(request):
    meta = request["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    if request["method"] == "server/discover":
        return result(request, resultType="complete", supportedVersions=["2026-07-28"],
                      capabilities={"tools": {}})
    if request["method"] == "tools/list":
        return result(request, resultType="complete", tools=TOOLS)
state = {"begun": False}
def legacy(request):
    method = request["method"]
    if method == "initialize":
        return result(request, protocolVersion="2025-06-18", capabilities={"tools": {}},
                      serverInfo={"name": "x", "version": "1"})
    if method == "notifications/initialized":
        state["begun"] = True
    elif not state["begun"]:
        return error(request, -32602, "not initialized")
    if method == "tools/list":
        assert "_meta" not in request["params"]
        return result(request, tools=TOOLS)
def serve(handle, begin=modern):
    while (request := receive()) is not None:
        answer = begin(request) or handle(request)
        if answer is not None:
            send(answer)
"#;

/// The server that is a script of Python; `None`, with a note, without Python.
fn script(body: &str) -> Option<McpServerSettings> {
    if Command::new("python3").arg("--version").output().is_err() {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let mut log = std::io::stderr();
        let _ = std::io::Write::write_fmt(&mut log, format_args!("skipped {test}: no python3\n"));
        return None;
    }
    let command = ["python3", "-u", "-c", &format!("{PYTHON}\n{body}")];
    Some(McpServerSettings::Command(McpCommand {
        command: command.map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        net: false,
        is_confined: true,
    }))
}

/// Runs `test` with a server `s` that is a script, if there is Python.
fn with_script(body: &str, test: impl FnOnce(McpServers)) {
    with_script_in(&context(), body, test);
}

fn with_script_in(context: &McpContext, body: &str, test: impl FnOnce(McpServers)) {
    if let Some(server) = script(body) {
        test(started(&[("s", server)], context));
    }
}
