//! Sessions that continue after the process has ended anywhere.

use crate::Test;
use crate::scene::{Person, Scene, bash, calls, texts, write};
use crate::tool_process::tool_process;
use agent::{AgentError, Confirm, Record, Sandbox, WorkEnd};
use api::Message;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub const TESTS: &[Test] = &[
    ("a_session_killed_at_any_event_continues_and_no_call_runs_twice", killed_anywhere),
    ("a_session_killed_at_any_event_takes_a_new_request", killed_then_asked),
    ("a_new_request_skips_calls_that_were_not_started", new_request),
    ("a_new_request_says_of_a_call_that_was_started_that_it_was_interrupted", started),
    ("a_call_whose_tools_have_ended_is_interrupted", tools_end),
    ("a_call_with_the_id_of_an_interrupted_one_runs", same_id),
    ("another_process_with_another_model_renders_anew", another_model),
];

/// The result of a call that was started and has none.
const UNKNOWN: &str = "tool: interrupted, it is not known how far it came";

fn script() -> Vec<Message> {
    let read = json!({"path": "log", "from": null, "lines": null});
    vec![
        calls(&[("1", "bash", bash("echo 1 >>log")), ("2", "bash", bash("echo 2 >>log"))]),
        calls(&[("3", "write", write("f", "text\n")), ("4", "bash", bash("echo 4 >>log"))]),
        calls(&[("5", "read", read)]),
        Message { reasoning: Some("hm".into()), ..Message::assistant("done") },
    ]
}

/// Works until the process ends after so many events; whether it did.
fn dies(scene: &Scene, is_first: bool, events: usize) -> bool {
    let mut agent = scene.agent();
    let mut person = Person { dies_after: Some(events), ..Person::default() };
    let work = AssertUnwindSafe(|| match is_first {
        true => agent.work("go", &mut person).unwrap(),
        false => agent.go_on(&mut person).unwrap(),
    });
    catch_unwind(work).is_err()
}

fn killed_anywhere() {
    let whole = Scene::new(script());
    let mut agent = whole.agent();
    assert_eq!(agent.work("go", &mut Person::default()).unwrap(), WorkEnd::Done);
    let expected = texts(agent.model.messages());
    let mut kills = 0;
    // Once after each number of events, and again and again after it.
    for events in 1.. {
        let scene = Scene::new(script());
        if !dies(&scene, true, events) {
            assert!(events > 18, "{events}");
            break;
        }
        kills += 1;
        for _ in 0..3 {
            kills += usize::from(dies(&scene, false, 1 + events % 3));
        }
        let mut agent = scene.agent();
        assert_eq!(agent.go_on(&mut Person::default()).unwrap(), WorkEnd::Done);
        let found = texts(agent.model.messages());
        assert_eq!(found.len(), expected.len(), "{events}: {found:?}");
        for (found, expected) in found.iter().zip(&expected) {
            // What the log has depends on calls that were interrupted.
            let is_same = found == expected || found == UNKNOWN || found.contains("log: lines");
            assert!(is_same, "{events}: {found}, expected {expected}");
        }
        let log = scene.read("log");
        for line in ["1", "2", "4"] {
            assert!(log.matches(line).count() <= 1, "{events}: {line} in {log}");
        }
    }
    assert!(kills > 40, "{kills}");
}

fn killed_then_asked() {
    let mut unknown = 0;
    for events in 1.. {
        let scene = Scene::new(script());
        if !dies(&scene, true, events) {
            break;
        }
        let started = match scene.records().pop() {
            Some(Record::CallStarted { id, .. }) => Some(id),
            _ => None,
        };
        let mut agent = scene.agent();
        // The user writes while a later call runs, too.
        let mut person = Person { writes: Some((1, "and this")), ..Person::default() };
        assert_eq!(agent.work("next", &mut person).unwrap(), WorkEnd::Done);
        let messages = agent.model.messages().to_vec();
        for call in messages.iter().flat_map(|message| &message.calls) {
            let results: Vec<_> = messages.iter().filter(|it| it.call_id == call.id).collect();
            assert_eq!(results.len(), 1, "{events}: {:?}", call.id);
            let is_unknown = format!("tool: {}", results[0].text().unwrap()) == UNKNOWN;
            assert_eq!(is_unknown, call.id == started, "{events}: {:?}", call.id);
            unknown += usize::from(is_unknown);
        }
        let log = scene.read("log");
        for line in ["1", "2", "4"] {
            assert!(log.matches(line).count() <= 1, "{events}: {line} in {log}");
        }
        let requests = agent.session.requests().to_vec();
        drop(agent);
        let agent = scene.agent();
        assert_eq!(texts(agent.model.messages()), texts(&messages), "{events}");
        assert_eq!(agent.session.requests(), requests, "{events}");
    }
    assert!(unknown >= 4, "{unknown}");
}

fn new_request() {
    let scene = Scene::new(script());
    // After the first result.
    assert!(dies(&scene, true, 5));
    let mut agent = scene.agent();
    assert!(agent.is_unfinished());
    assert_eq!(agent.work("something else", &mut Person::default()).unwrap(), WorkEnd::Done);
    let texts = texts(agent.model.messages());
    assert_eq!(&texts[4..6], ["tool: skipped: the user wrote", "user: something else"]);
    assert_eq!(scene.read("log"), "1\n4\n");
}

fn started() {
    let scene = Scene::new(script());
    // Within the first call.
    assert!(dies(&scene, true, 4));
    let mut agent = scene.agent();
    assert_eq!(agent.work("something else", &mut Person::default()).unwrap(), WorkEnd::Done);
    let all = texts(agent.model.messages());
    let results = [UNKNOWN, "tool: skipped: the user wrote", "user: something else"];
    assert_eq!(&all[3..6], results);
    drop(agent);
    assert_eq!(texts(scene.agent().model.messages()), all);
}

fn tools_end() {
    let end = calls(&[("1", "bash", bash("kill -9 $PPID; sleep 60")), ("2", "bash", bash("true"))]);
    let script = vec![end, Message::assistant("done")];
    for goes_on in [true, false] {
        let mut scene = Scene::new(script.clone());
        // Confined commands do not signal their tools.
        (scene.sandbox, scene.confirm) = (Sandbox::Off, Confirm::Allow);
        let mut agent = scene.agent();
        let error = agent.work("go", &mut Person::default()).unwrap_err();
        assert!(matches!(error, AgentError::Host(_)), "{error}");
        agent.host = tool_process(&scene.work(), &scene.folders(), Sandbox::Off);
        let end = match goes_on {
            true => agent.go_on(&mut Person::default()),
            false => agent.work("what now", &mut Person::default()),
        };
        assert_eq!(end.unwrap(), WorkEnd::Done);
        let all = texts(agent.model.messages());
        assert_eq!(all[3], UNKNOWN);
        assert_eq!(all[4] == "tool: skipped: the user wrote", !goes_on, "{}", all[4]);
        drop(agent);
        assert_eq!(texts(scene.agent().model.messages()), all);
    }
}

fn same_id() {
    for is_other_process in [false, true] {
        let scene = Scene::new(script());
        assert!(dies(&scene, true, 4));
        let mut agent = scene.agent();
        assert!(agent.undo().unwrap().is_some());
        if is_other_process {
            drop(agent);
            agent = scene.agent();
        }
        assert_eq!(agent.work("go", &mut Person::default()).unwrap(), WorkEnd::Done);
        assert_eq!(scene.read("log"), "1\n2\n4\n");
        assert!(!texts(agent.model.messages()).contains(&UNKNOWN.to_owned()));
    }
}

fn another_model() {
    let scene = Scene::new(script());
    let mut agent = scene.agent();
    agent.work("go", &mut Person::default()).unwrap();
    let messages = agent.model.messages().len();
    let head = Record::head("other", "1".into(), scene.work());
    agent.session.add(&head).unwrap();
    drop(agent);
    let resumed = agent::ResumedSession::of(scene.records()).unwrap();
    assert_eq!((resumed.model.as_str(), resumed.messages.len()), ("other", messages));
    assert!(resumed.turns.is_empty());
    assert!(!scene.agent().is_unfinished());
}
