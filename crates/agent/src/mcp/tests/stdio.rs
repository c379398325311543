//! Processes of both protocols: how they are found out, listed, called and ended.

use super::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[test]
fn a_server_without_sessions_is_listed_and_called() {
    with_script("serve(lambda r: text(r, json.dumps(r['params']['arguments'])))", |mut servers| {
        assert_eq!(servers.problems(), []);
        let [tool] = servers.tools() else { panic!("{:?}", servers.tools()) };
        assert_eq!((tool.name.as_str(), tool.description.as_str()), ("s__t", "T"));
        assert_eq!(call(&mut servers, "s__t", json!({"a": "é"})), text(r#"{"a": "\u00e9"}"#));
        let unknown = call(&mut servers, "s__u", json!({}));
        assert_eq!(unknown, Err(McpError::UnknownTool("s__u".to_owned())));
    });
}

#[test]
fn an_older_server_gets_initialize() {
    let body = "serve(lambda r: 'id' in r and text(r, r['params']['name']) or None, legacy)";
    with_script(body, |mut servers| {
        assert_eq!(servers.problems(), []);
        assert_eq!(call(&mut servers, "s__t", json!({})), text("t"));
    });
}

#[test]
fn an_older_server_that_ends_at_the_first_question_is_started_again_for_initialize() {
    let body = "
first = receive()
if first['method'] != 'initialize':
    sys.exit(1)
send(legacy(first))
serve(lambda r: 'id' in r and text(r, 'yes') or None, legacy)";
    with_script(body, |mut servers| {
        assert_eq!(servers.problems(), []);
        assert_eq!(call(&mut servers, "s__t", json!({})), text("yes"));
    });
}

/// Servers that are silent at first, of either protocol.
#[test]
fn a_server_that_does_not_answer_the_first_question_gets_initialize_too() {
    let silent = "
def begin(request):
    return None if request['method'] == 'server/discover' else legacy(request)
serve(lambda r: 'id' in r and r['method'] == 'tools/call' and text(r, 'old') or None, begin)";
    let slow = "
time.sleep(1)
serve(lambda r: error(r, -32601, 'no') if r['method'] == 'initialize' else text(r, 'new'))";
    // The answer to `initialize` lacks what the protocol without sessions demands.
    let slow = slow.replace("serve(", "serve_slow(");
    let slow = format!(
        "
def serve_slow(handle):
    while (r := receive()) is not None:
        send(handle(r) if r['method'] == 'initialize' else modern(r) or handle(r))
{slow}"
    );
    let mut context = context();
    context.limits.probe = Duration::from_millis(400);
    for (body, expected) in [(silent, "old"), (&slow, "new")] {
        with_script_in(&context, body, |mut servers| {
            assert_eq!(servers.problems(), [], "{expected}");
            assert_eq!(call(&mut servers, "s__t", json!({})), text(expected));
        });
    }
}

#[test]
fn versions_decide_which_protocol_is_spoken() {
    let discovered = |versions: &str| {
        format!(
            "
def begin(request):
    if request['method'] == 'server/discover':
        return error(request, -32022, 'version', supported={versions})
    return legacy(request)
serve(lambda r: None, begin)"
        )
    };
    with_script(&discovered("['2025-11-25']"), |servers| assert_eq!(servers.problems(), []));
    with_script(&discovered("['2031-01-01']"), |servers| {
        assert!(problem(&servers).contains(r#"found ["2031-01-01"]"#), "{:?}", servers.problems());
    });
    let refused = "serve(lambda r: error(r, -32021, 'needs roots\\x1b'), lambda r: None)";
    with_script(refused, |servers| assert!(problem(&servers).contains("needs roots<1b>")));
    let old = "serve(lambda r: result(r, protocolVersion='2020-01-01') if r['method'] == \
               'initialize' else error(r, 1, 'x'), lambda r: None)";
    with_script(old, |servers| assert!(problem(&servers).contains(r#"found "2020-01-01""#)));
    let unwilling = "serve(lambda r: error(r, -32601, 'no\\x1b'), lambda r: None)";
    with_script(unwilling, |servers| {
        assert_eq!(problem(&servers), "it refuses to begin: no<1b> (-32601)");
    });
}

#[test]
fn pages_are_followed_and_tools_are_bounded() {
    let body = "
def begin(r):
    if r['method'] != 'tools/list':
        return modern(r)
    page = int(r['params'].get('cursor', '0'))
    tools = [{'name': f't{page * 40 + i}', 'inputSchema': {'type': 'object'}} for i in range(40)]
    return result(r, tools=tools, nextCursor=str(page + 1))
serve(lambda r: text(r, r['params']['name']), begin)";
    with_script(body, |mut servers| {
        assert_eq!(servers.tools().len(), 64);
        assert_eq!(problem(&servers), "tools after the first 64 are left out");
        assert_eq!(call(&mut servers, "s__t63", json!({})), text("t63"));
    });
    let endless = body.replace("range(40)", "range(0)");
    with_script(&endless, |servers| {
        assert_eq!(servers.tools().len(), 0);
        assert_eq!(problem(&servers), "tools after 64 pages are left out");
    });
}

#[test]
fn servers_without_tools_are_not_asked_for_them() {
    let body = "
def begin(r):
    assert r['method'] == 'server/discover'
    return result(r, supportedVersions=['2026-07-28'], capabilities={'prompts': {}})
serve(lambda r: None, begin)";
    with_script(body, |servers| {
        assert_eq!((servers.problems(), servers.tools().len()), (&[][..], 0));
    });
}

#[test]
fn one_server_that_fails_leaves_the_others() {
    let Some(good) = script("serve(lambda r: text(r, 'good'))") else { return };
    let missing = McpServerSettings::Command(McpCommand {
        command: vec!["/nonexistent/program".to_owned()],
        env: BTreeMap::new(),
        net: false,
        is_confined: true,
    });
    let mut servers = started(&[("a", missing), ("b", good.clone()), ("c", good)], &context());
    assert!(problem(&servers).contains("`/nonexistent/program` cannot be started"));
    assert_eq!(servers.problems()[0].server, "a");
    let names: Vec<&str> = servers.tools().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["b__t", "c__t"]);
    assert_eq!(call(&mut servers, "c__t", json!({})), text("good"));
}

#[test]
fn errors_of_tools_are_answers_and_errors_of_the_protocol_are_errors() {
    let body = "
def handle(r):
    if r['params']['arguments'].get('x'):
        return error(r, -32602, 'unknown\\x1b tool')
    return result(r, content=[{'type': 'text', 'text': 'bad'}], isError=True)
serve(handle)";
    with_script(body, |mut servers| {
        let bad = McpAnswer { ok: false, text: "bad".to_owned() };
        assert_eq!(call(&mut servers, "s__t", json!({})), Ok(bad));
        let (server, message) = ("s".to_owned(), "unknown<1b> tool".to_owned());
        let refused = McpError::Refused { server, code: -32602, message };
        assert_eq!(call(&mut servers, "s__t", json!({"x": 1})), Err(refused));
    });
}

/// Requests of a server, and what it gets for them, in both protocols.
#[test]
fn requests_of_older_servers_are_refused_and_others_are_ignored() {
    let ask = |begin: &str, wait: &str| {
        format!(
            "
def handle(r):
    if r['method'] != 'tools/call': return None
    send({{'jsonrpc': '2.0', 'method': 'notifications/tools/list_changed'}})
    send({{'jsonrpc': '2.0', 'method': 'ping', 'id': 'p'}})
    send({{'jsonrpc': '2.0', 'method': 'sampling/createMessage', 'id': 7, 'params': {{}}}})
    return text(r, json.dumps({wait}))
serve(handle, {begin})"
        )
    };
    with_script(&ask("legacy", "[receive(), receive()]"), |mut servers| {
        let answer = call(&mut servers, "s__t", json!({})).unwrap();
        let answers: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
        assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(7), &json!(-32601)));
    });
    with_script(&ask("modern", "'none'"), |mut servers| {
        for _ in 0..2 {
            assert_eq!(call(&mut servers, "s__t", json!({})), text("\"none\""));
        }
    });
}

#[test]
fn cancelled_and_late_calls_are_cancelled_at_the_server() {
    let body = "
def handle(r):
    if r['params'].get('name'):
        return None if r['params']['arguments'] else text(r, 'next')
serve(lambda r: r['method'] == 'tools/call' and handle(r) or
      r['method'] == 'notifications/cancelled' and
      send({'jsonrpc': '2.0', 'id': r['params']['requestId'], 'result': {}}) or
      sys.stderr.write(r['method'] + '\\n') and None,
      lambda r: 'params' in r and '_meta' in r['params'] and modern(r) or None)";
    let mut context = context();
    context.limits.call = Duration::from_millis(300);
    with_script_in(&context, body, |mut servers| {
        assert_eq!(servers.problems(), []);
        let begun = Instant::now();
        let late = call(&mut servers, "s__t", json!({"wait": 1}));
        assert!(matches!(late, Err(McpError::TimedOut { .. })), "{late:?}");
        assert_eq!(call(&mut servers, "s__t", json!({})), text("next"));
        let cancelled = AtomicBool::new(false);
        let is_cancelled = || cancelled.fetch_or(true, Ordering::Relaxed);
        let answer = servers.call("s__t", &json!({"wait": 1}), &is_cancelled);
        assert_eq!(answer, Err(McpError::Cancelled("s".to_owned())));
        assert_eq!(call(&mut servers, "s__t", json!({})), text("next"));
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}

/// The server's own record of what it got, and that its end comes without a signal.
#[test]
fn the_end_closes_the_input_and_kills_the_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let child = path("child").display().to_string();
    let done = path("done").display().to_string();
    let body = format!(
        "
import subprocess
child = subprocess.Popen(['sleep', '1000'])
open({child:?}, 'w').write(str(child.pid))
serve(lambda r: text(r, 'x'))
open({done:?}, 'w').write('done')"
    );
    with_script(&body, |servers| {
        drop(servers);
        assert_eq!(std::fs::read_to_string(path("done")).unwrap(), "done");
        let pid = std::fs::read_to_string(path("child")).unwrap();
        assert!(!is_running(&pid));
    });
}

#[test]
fn a_server_that_does_not_end_gets_signals() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (pid, term) = (path("pid").display().to_string(), path("term").display().to_string());
    let body = format!(
        "
import signal
signal.signal(signal.SIGTERM, lambda *_: open({term:?}, 'w').write('term'))
open({pid:?}, 'w').write(str(os.getpid()))
serve(lambda r: text(r, 'x'))
while True: time.sleep(0.05)"
    );
    with_script(&body, |servers| {
        let begun = Instant::now();
        drop(servers);
        assert!(begun.elapsed() < Duration::from_secs(4));
        assert_eq!(std::fs::read_to_string(path("term")).unwrap(), "term");
        assert!(!is_running(&std::fs::read_to_string(path("pid")).unwrap()));
    });
}

/// Whether a process is there after a while that is no zombie. One that was killed takes a moment
/// to end, and a zombie whose parent is dead waits for the first process.
fn is_running(pid: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    let stat = Path::new("/proc").join(pid).join("stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        if Instant::now() > end {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
