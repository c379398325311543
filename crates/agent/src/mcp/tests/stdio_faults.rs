//! Processes that end, flood, lie or are silent.

use super::*;
use std::time::Instant;

fn ended(answer: Result<McpAnswer, McpError>) -> String {
    match answer {
        Err(McpError::Ended { server, problem }) if server == "s" => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_ends_at_its_start_is_reported_with_its_last_lines() {
    let body = "sys.stderr.write('one\\n\\x1b[31mtwo\\n'); print('out'); sys.exit(3)";
    with_script(body, |servers| {
        let problem = problem(&servers);
        assert!(problem.contains("it has closed its "), "{problem}");
        assert!(problem.contains("exit status: 3"), "{problem}");
        assert!(problem.contains("<1b>[31mtwo") && problem.contains("out"), "{problem}");
        assert_eq!(servers.tools().len(), 0);
    });
}

#[test]
fn a_server_that_ends_in_its_list_is_reported() {
    let body = "
def begin(r):
    if r['method'] == 'tools/list': sys.exit('gone')
    return modern(r)
serve(None, begin)";
    with_script(body, |servers| {
        let problem = problem(&servers);
        assert!(problem.contains("(exit status: 1); its last lines:\ngone"), "{problem}");
    });
}

#[test]
fn a_server_that_ends_in_a_call_is_started_again_once() {
    let body = "
def handle(r):
    if r['method'] != 'tools/call': return None
    if r['params']['arguments'].get('end'): os._exit(7)
    return text(r, 'pid %d' % os.getpid())
serve(handle, ";
    for begin in ["modern)", "legacy)"] {
        with_script(&format!("{body}{begin}"), |mut servers| {
            let first = call(&mut servers, "s__t", json!({})).unwrap();
            assert!(ended(call(&mut servers, "s__t", json!({"end": 1}))).contains("status: 7"));
            let second = call(&mut servers, "s__t", json!({})).unwrap();
            assert_ne!(first, second);
            assert!(ended(call(&mut servers, "s__t", json!({"end": 1}))).contains("status: 7"));
            for _ in 0..2 {
                let problem = ended(call(&mut servers, "s__t", json!({})));
                assert_eq!(problem, "it was started again once already");
            }
        });
    }
}

#[test]
fn garbage_and_answers_to_other_requests_are_passed_over() {
    let body = "
def handle(r):
    out = sys.stdout.buffer
    out.write(b'\\xff\\xfe garbage\\n\\n{\\n[]\\nnull\\n\"x\"\\n' + b'[' * 100000 + b'\\n')
    out.write(b'{\"id\": 1, \"result\": 1, \"error\": 2}\\n{\"id\": \"x\"}\\r\\n')
    out.flush()
    for id in [r['id'] + 1, r['id'] - 1, str(r['id']), None, -1, 1.5, [r['id']]]:
        send({'jsonrpc': '2.0', 'id': id, 'result': {'content': []}})
    return text(r, 'right')
serve(handle)";
    with_script(body, |mut servers| {
        assert_eq!(call(&mut servers, "s__t", json!({})), text("right"));
        assert_eq!(call(&mut servers, "s__t", json!({})), text("right"));
    });
}

#[test]
fn an_error_without_a_number_is_about_the_request_that_waits() {
    let body = "serve(lambda r: {'id': None, 'error': {'code': -32700, 'message': 'parse'}})";
    with_script(body, |mut servers| {
        let answer = call(&mut servers, "s__t", json!({}));
        assert!(matches!(answer, Err(McpError::Refused { code: -32700, .. })), "{answer:?}");
    });
}

#[test]
fn results_that_are_no_answers_are_errors() {
    let body = "
RESULTS = [[], None, 3, {'resultType': 'task'}, {'resultType': 'input_required',
    'inputRequests': {'a': {'method': 'elicitation/create'}}}]
serve(lambda r: {'id': r['id'], 'result': RESULTS[r['params']['arguments']['n']]})";
    with_script(body, |mut servers| {
        for n in 0..5 {
            let answer = call(&mut servers, "s__t", json!({"n": n}));
            assert!(matches!(answer, Err(McpError::Failed { .. })), "{answer:?}");
        }
        let no_list = "
def begin(r):
    return result(r, tools={}) if r['method'] == 'tools/list' else modern(r)
serve(None, begin)";
        with_script(no_list, |servers| {
            assert_eq!(problem(&servers), "it answers no list of tools");
        });
    });
}

#[test]
fn a_message_that_is_too_large_ends_the_server() {
    let body = "
def handle(r):
    size = r['params']['arguments']['size']
    if r['params']['arguments'].get('endless'):
        while True: sys.stdout.write('x' * 65536)
    return text(r, 'x' * size)
serve(handle)";
    with_script(body, |mut servers| {
        let large = call(&mut servers, "s__t", json!({"size": (8 << 20) - 200})).unwrap();
        assert_eq!(large.text.len(), (8 << 20) - 200);
        let problem = ended(call(&mut servers, "s__t", json!({"size": 8 << 20})));
        assert!(problem.starts_with("a message has over 8388608 bytes"), "{problem}");
        assert_eq!(call(&mut servers, "s__t", json!({"size": 1})), text("x"));
        let problem = ended(call(&mut servers, "s__t", json!({"size": 0, "endless": 1})));
        assert!(problem.starts_with("a message has over 8388608 bytes"), "{problem}");
    });
}

#[test]
fn floods_of_standard_error_and_of_requests_hold_nothing_up() {
    let body = "
def handle(r):
    sys.stderr.write('x' * (1 << 22))
    for i in range(5000):
        sys.stderr.write('line %d\\n' % i)
        send({'jsonrpc': '2.0', 'method': 'roots/list', 'id': i})
        send({'jsonrpc': '2.0', 'method': 'notifications/message', 'params': {'data': 'x' * 99}})
    if r['params']['arguments'].get('end'): os._exit(9)
    return text(r, 'done')
serve(lambda r: handle(r) if r.get('method') == 'tools/call' else None,
      lambda r: 'method' in r and legacy(r) or None)";
    with_script(body, |mut servers| {
        assert_eq!(servers.problems(), []);
        assert_eq!(call(&mut servers, "s__t", json!({})), text("done"));
        let problem = ended(call(&mut servers, "s__t", json!({"end": 1})));
        assert!(problem.ends_with("line 4998\nline 4999") && problem.len() < 5000, "{problem}");
    });
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let mut context = context();
    context.limits.start = Duration::from_millis(400);
    context.limits.probe = Duration::from_millis(200);
    context.limits.end = Duration::from_millis(100);
    let begun = Instant::now();
    with_script_in(&context, "time.sleep(60)", |servers| {
        assert_eq!(problem(&servers), "no answer in time");
        assert!(begun.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn a_start_that_is_cancelled_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("begun");
    let name = file.display().to_string();
    let body = format!("sys.stderr.write('hm'); open({name:?}, 'w'); time.sleep(600)");
    let Some(server) = script(&body) else { return };
    let settings = McpSettings { servers: [("s".to_owned(), server)].into() };
    let servers = McpServers::start(&settings, &context(), &|| file.exists());
    assert_eq!(problem(&servers), "cancelled; its last lines:\nhm");
    assert!(servers.tools().is_empty());
}

#[test]
fn a_server_that_does_not_read_holds_no_call_up() {
    let body = "
handled = modern(receive())
send(handled)
send(modern(receive()))
time.sleep(60)";
    let mut context = context();
    context.limits.call = Duration::from_millis(60);
    context.limits.end = Duration::from_millis(100);
    with_script_in(&context, body, |mut servers| {
        let large = json!({"x": "y".repeat(1 << 20)});
        for _ in 0..25 {
            let answer = call(&mut servers, "s__t", large.clone());
            assert!(matches!(answer, Err(McpError::TimedOut { .. })), "{answer:?}");
        }
        let begun = Instant::now();
        drop(servers);
        assert!(begun.elapsed() < Duration::from_secs(3));
    });
}

#[test]
fn a_server_that_closes_its_output_is_ended() {
    let body = "
def handle(r):
    os.close(1)
    time.sleep(60)
serve(handle)";
    with_script(body, |mut servers| {
        let begun = Instant::now();
        assert!(ended(call(&mut servers, "s__t", json!({}))).starts_with("it has closed its out"));
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}
