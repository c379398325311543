//! MCP servers that are processes: what is left of them, and what they may do.

use crate::Test;
use agent::{HostSettings, McpCommand, McpServerSettings, McpSettings, McpTools, OtherTools};
use agent::{Sandbox, TOOL_HOST};
use api::ToolCall;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("nothing_that_a_server_has_started_is_left_when_the_agent_ends_it", agent_ends_it),
    ("nothing_is_left_of_a_server_that_does_not_end", stubborn),
    ("nothing_that_a_server_has_started_is_left_after_its_own_end", own_end),
    ("nothing_is_left_of_servers_when_the_agent_is_killed", killed_agent),
    ("a_server_ends_with_the_process_that_watches_over_it", killed_watcher),
    ("a_server_that_closes_its_output_is_ended", closed_output),
    ("servers_are_confined_as_their_settings_say", confined),
    ("states_of_servers_are_shown", states),
    ("a_server_is_confined_anew_with_its_next_call", confined_anew),
    ("a_server_that_ended_while_idle_is_started_again_by_a_call", idle_end),
];

/// The argument of this program by which it has servers until it is killed.
pub const HOLD: &str = "hold-servers";

const PYTHON: &str = "/usr/bin/python3";

/// A server whose tool executes Python and answers with `out`. Its argument is in the command lines
/// of all that `leave` starts: processes that ignore `SIGTERM` and have left their group and their
/// parent so many times.
const SERVER: &str = r#"
import json, os, signal, socket, subprocess, sys, time
mark = sys.argv[1]
STAYS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(int(sys.argv[2])):
    if os.fork():
        os._exit(0)
    os.setsid()
open(sys.argv[1] + "-" + sys.argv[2], "w")
time.sleep(1000)
"""
def leave():
    for times in range(3):
        subprocess.Popen([sys.executable, "-c", STAYS, mark, str(times)], stdin=subprocess.DEVNULL)
    while not all(os.path.exists(f"{mark}-{times}") for times in range(3)):
        time.sleep(0.01)
def answer(request):
    if request["method"] == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if request["method"] == "tools/list":
        return {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}
    names = dict(globals(), out="done")
    try:
        exec(request["params"]["arguments"]["code"], names)
    except OSError as error:
        names["out"] = type(error).__name__
    return {"content": [{"type": "text", "text": str(names["out"])}]}
for line in sys.stdin:
    request = json.loads(line)
    message = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
"#;

/// A folder for servers. Its name is in their command lines.
struct Place(tempfile::TempDir);

impl Place {
    /// A place, if there is Python.
    fn new() -> Option<Self> {
        if Path::new(PYTHON).exists() {
            return Some(Self(tempfile::tempdir().unwrap()));
        }
        crate::say(&format!("skipped: servers of MCP: no {PYTHON}"));
        None
    }

    fn mark(&self) -> PathBuf {
        self.0.path().join("work/mark")
    }

    fn tools(&self, change: impl FnOnce(&mut McpCommand)) -> McpTools {
        tools(self.0.path(), change)
    }

    /// The processes that have the mark in their command line, but this one.
    fn processes(&self) -> Vec<u32> {
        let mark = self.mark().display().to_string();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let has_mark = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&mark)
        };
        let all = fs::read_dir("/proc").unwrap().flatten().filter_map(number);
        all.filter(|pid| *pid != std::process::id()).filter(has_mark).collect()
    }

    fn assert_empty(&self) {
        assert!(self.processes().is_empty(), "{:?}", self.processes());
    }

    fn wait_until(&self, is_reached: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_reached(self) {
            assert!(Instant::now() < end, "{:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The tools of a server `s` in `folder`, whose settings are changed.
fn tools(folder: &Path, change: impl FnOnce(&mut McpCommand)) -> McpTools {
    let [workspace, temporary] = ["work", "temporary"].map(|name| folder.join(name));
    fs::create_dir_all(&workspace).unwrap();
    fs::create_dir_all(&temporary).unwrap();
    let mark = workspace.join("mark").display().to_string();
    let mut command = McpCommand {
        command: [PYTHON, "-u", "-c", SERVER, &mark].map(str::to_owned).to_vec(),
        env: [("GIVEN_TOKEN".to_owned(), "given".to_owned())].into(),
        net: false,
        is_confined: true,
    };
    change(&mut command);
    let servers = [("s".to_owned(), McpServerSettings::Command(command))].into();
    let git = temporary.join("gitconfig");
    let environment = confine::environment(std::env::vars_os(), &temporary, &git);
    let host = HostSettings {
        workspace,
        temporary,
        kept: None,
        write: Vec::new(),
        read: Vec::new(),
        sandbox: Sandbox::Workspace,
        net: false,
        command: Vec::new(),
    };
    let program = std::env::current_exe().unwrap();
    McpTools::start(&McpSettings { servers }, (&program, &host), environment, &|| false)
}

fn run(tools: &mut McpTools, code: &str) -> (bool, String) {
    let arguments = json!({ "code": code });
    let call = ToolCall { name: "s__run".to_owned(), arguments, ..ToolCall::default() };
    tools.call(&call, &|| false)
}

fn done(text: &str) -> (bool, String) {
    (true, text.to_owned())
}

fn agent_ends_it() {
    let Some(place) = Place::new() else { return };
    for is_confined in [true, false] {
        let mut tools = place.tools(|server| server.is_confined = is_confined);
        assert_eq!(tools.problems().collect::<Vec<_>>(), [""; 0]);
        assert_eq!(run(&mut tools, "leave()"), done("done"));
        // The server, the process that watches over it, and what the server has left.
        place.wait_until(|place| place.processes().len() == 5);
        drop(tools);
        place.assert_empty();
    }
}

fn stubborn() {
    let Some(place) = Place::new() else { return };
    let mut tools = place.tools(|_| ());
    let code = "leave(); signal.signal(signal.SIGTERM, signal.SIG_IGN); import atexit; \
                atexit.register(time.sleep, 1000)";
    assert_eq!(run(&mut tools, code), done("done"));
    drop(tools);
    place.assert_empty();
}

fn own_end() {
    let Some(place) = Place::new() else { return };
    let mut tools = place.tools(|_| ());
    let (ok, text) = run(&mut tools, "leave(); os._exit(3)");
    assert!(!ok && text.contains("has ended") && text.contains("exit status: 3"), "{text}");
    place.wait_until(|place| place.processes().is_empty());
    let (ok, text) = run(&mut tools, "leave(); os.kill(os.getpid(), signal.SIGKILL)");
    assert!(!ok && text.contains("exit status: 137"), "{text}");
    place.wait_until(|place| place.processes().is_empty());
}

/// Has servers in `folder` until this process is killed.
pub fn hold(folder: &str) -> ! {
    let mut tools = tools(Path::new(folder), |_| ());
    assert_eq!(run(&mut tools, "leave(); open(mark + '-ready', 'w')"), done("done"));
    loop {
        std::thread::park();
    }
}

fn killed_agent() {
    let Some(place) = Place::new() else { return };
    let program = std::env::current_exe().unwrap();
    let mut agent = Command::new(program);
    let mut agent = agent.arg(HOLD).arg(place.0.path()).stdin(Stdio::null()).spawn().unwrap();
    place.wait_until(|_| place.0.path().join("work/mark-ready").exists());
    assert_eq!(place.processes().len(), 5);
    agent.kill().unwrap();
    agent.wait().unwrap();
    place.wait_until(|place| place.processes().is_empty());
}

fn killed_watcher() {
    let Some(place) = Place::new() else { return };
    let mut tools = place.tools(|_| ());
    assert_eq!(run(&mut tools, ""), done("done"));
    let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let is_watcher = |pid: &u32| line(pid).contains(TOOL_HOST);
    let [watcher] = place.processes().into_iter().filter(is_watcher).collect::<Vec<_>>()[..] else {
        panic!("{:?}", place.processes());
    };
    let killed = Command::new("kill").args(["-9", &watcher.to_string()]).status().unwrap();
    assert!(killed.success());
    place.wait_until(|place| place.processes().is_empty());
    place.wait_until(|_| tools.states() != ["s: running; run"]);
    assert_eq!(run(&mut tools, ""), done("done"));
}

fn closed_output() {
    let Some(place) = Place::new() else { return };
    let mut tools = place.tools(|_| ());
    let (ok, text) = run(&mut tools, "os.close(1); time.sleep(1000)");
    assert!(!ok && text.contains("it has closed its output"), "{text}");
    place.assert_empty();
}

fn confined() {
    let Some(place) = Place::new() else { return };
    let outside = place.0.path().join("outside").display().to_string();
    let write = format!("open({outside:?}, 'w')");
    let connect = "socket.socket(socket.AF_INET); socket.socket(socket.AF_UNIX)";
    let signal = "os.kill(os.getppid(), 0)";
    let mut tools = place.tools(|_| ());
    assert_eq!(run(&mut tools, &write), done("PermissionError"));
    assert_eq!(run(&mut tools, "open(mark, 'w')"), done("done"));
    assert_eq!(run(&mut tools, connect), done("PermissionError"));
    if confine::support().unwrap().scopes {
        assert_eq!(run(&mut tools, signal), done("PermissionError"));
    }
    let variables = "out = [os.environ.get(name) for name in ['GIVEN_TOKEN', 'CARGO_PKG_NAME']]";
    assert_eq!(run(&mut tools, variables), done("['given', None]"));
    let mut with_net = place.tools(|server| server.net = true);
    let internet = "socket.socket(socket.AF_INET)";
    assert_eq!(run(&mut with_net, internet), done("done"));
    assert_eq!(run(&mut with_net, &write), done("PermissionError"));
    let mut free = place.tools(|server| server.is_confined = false);
    for code in [&write, connect, signal] {
        assert_eq!(run(&mut free, code), done("done"), "{code}");
    }
}

fn confined_anew() {
    let Some(place) = Place::new() else { return };
    let write = "open(mark, 'w')";
    let mut tools = place.tools(|_| ());
    assert_eq!(run(&mut tools, write), done("done"));
    tools.confine(Sandbox::ReadOnly);
    // Nothing that may still write is left.
    place.assert_empty();
    assert_eq!(tools.states(), ["s: the next call starts it; run"]);
    assert_eq!(run(&mut tools, write), done("PermissionError"));
    let before = place.processes();
    tools.confine(Sandbox::ReadOnly);
    assert_eq!(place.processes(), before);
    tools.confine(Sandbox::Workspace);
    assert_eq!(run(&mut tools, write), done("done"));
    // None of these were ends of its own.
    run(&mut tools, "os._exit(0)");
    assert_eq!(run(&mut tools, ""), done("done"));
    let mut free = place.tools(|server| server.is_confined = false);
    free.confine(Sandbox::ReadOnly);
    assert_eq!(free.states(), ["s: running; run"]);
}

fn idle_end() {
    let Some(place) = Place::new() else { return };
    let mut tools = place.tools(|_| ());
    let code = "import threading; threading.Timer(0.1, os._exit, [0]).start()";
    assert_eq!(run(&mut tools, code), done("done"));
    place.wait_until(|_| tools.states() != ["s: running; run"]);
    assert_eq!(tools.states(), ["s: ended, the next call starts it again; run"]);
    assert_eq!(run(&mut tools, ""), done("done"));
}

fn states() {
    let Some(place) = Place::new() else { return };
    let mut tools = place.tools(|_| ());
    assert_eq!(tools.states(), ["s: running; run"]);
    // It may be seen later than the end of the call.
    run(&mut tools, "os._exit(0)");
    assert_eq!(tools.states(), ["s: ended, the next call starts it again; run"]);
    assert_eq!(run(&mut tools, ""), done("done"));
    assert_eq!(tools.states(), ["s: running; run"]);
    run(&mut tools, "os._exit(0)");
    assert_eq!(tools.states(), ["s: ended; run"]);
    let tools = place.tools(|server| server.command = vec!["/none".to_owned()]);
    let states = tools.states();
    assert!(states[0].starts_with("s: not started: it has closed its "), "{states:?}");
    assert!(states.iter().any(|line| line.starts_with("  /none: ")), "{states:?}");
}
