//! What the loop does with answers, calls, questions, interrupts and limits.

use crate::Test;
use crate::scene::{Person, Scene, bash, calls, texts, write};
use agent::{
    CallReach, Confirm, FinalResult, OtherTools, Record, Reply, RuleSubject, Sandbox, WorkEnd,
    WorkLimits,
};
use api::{Message, Tool, ToolCall};
use serde_json::json;
use std::path::PathBuf;

pub const TESTS: &[Test] = &[
    ("a_request_ends_when_an_answer_calls_nothing", request_ends),
    ("calls_outside_run_as_the_policy_says", policy),
    ("a_rule_for_the_session_asks_once", session_rule),
    ("guarded_files_are_changed_where_the_user_says_so", guarded),
    ("guarded_files_come_back_from_tools_of_other_processes", neighbours),
    ("what_the_user_is_told_of_guarded_files_is_what_came_of_it", told),
    ("changes_after_the_last_call_are_offered_at_the_end", late_changes),
    ("looks_at_jobs_are_no_writes", looks_at_jobs),
    ("questions_show_what_would_change_and_change_nothing", previews),
    ("interrupted_calls_are_answered_and_the_work_goes_on_later", interrupts),
    ("what_the_user_writes_skips_the_other_calls", steering),
    ("limits_end_the_work", limits),
    ("instructions_are_read_by_the_tools", instructions),
    ("a_result_is_a_value_of_its_schema", result),
];

fn request_ends() {
    let script = vec![
        calls(&[("1", "write", write("a/b.txt", "one\n"))]),
        calls(&[("2", "bash", bash("cat a/b.txt; exit 3")), ("3", "none", json!({}))]),
        Message::assistant("It says one."),
    ];
    let scene = Scene::new(script);
    let (mut agent, mut person) = (scene.agent(), Person::default());
    assert_eq!(agent.work("write", &mut person).unwrap(), WorkEnd::Done);
    assert_eq!(scene.read("a/b.txt"), "one\n");
    let texts = texts(agent.model.messages());
    assert_eq!(texts[0], "system: You work.");
    assert_eq!(texts[3], "tool: created a/b.txt: 4 bytes, 1 lines");
    assert!(texts[5].contains("one\n") && texts[5].contains('3'), "{}", texts[5]);
    assert_eq!(&texts[6..], ["tool: there is no tool none", "assistant: It says one."]);
    let expected = [
        "answer",
        "event",
        "event",
        "call write",
        "result write true",
        "answer",
        "event",
        "event",
        "call bash",
        "result bash true",
        "result none false",
        "answer",
        "event",
        "event",
    ];
    assert_eq!(person.events, expected);
    assert!(!agent.has_refused && !agent.is_unfinished());
}

fn policy() {
    let script = || vec![calls(&[("1", "bash", bash("echo x >f"))]), Message::assistant("ok")];
    let cases = [
        (Confirm::Refuse, Sandbox::Workspace, vec![], "x\n", false),
        (Confirm::Refuse, Sandbox::Off, vec![], "absent", true),
        (Confirm::Allow, Sandbox::Off, vec![], "x\n", false),
        (Confirm::Outside, Sandbox::Off, vec![Reply::Once], "x\n", false),
        (Confirm::Outside, Sandbox::Off, vec![Reply::No(Some("later".into()))], "absent", true),
        (Confirm::Writes, Sandbox::Workspace, vec![], "absent", true),
    ];
    for (confirm, sandbox, replies, expected, has_refused) in cases {
        let scene = Scene { confirm, sandbox, ..Scene::new(script()) };
        let mut agent = scene.agent();
        let mut person = Person { replies: replies.clone(), ..Person::default() };
        assert_eq!(agent.work("write", &mut person).unwrap(), WorkEnd::Done);
        assert_eq!(scene.read("f"), expected, "{confirm:?} {sandbox:?}");
        assert_eq!(agent.has_refused, has_refused, "{confirm:?} {sandbox:?}");
        if replies.contains(&Reply::No(Some("later".into()))) {
            assert_eq!(texts(agent.model.messages())[3], "tool: the call was refused: later");
        }
    }
}

fn session_rule() {
    let script = vec![
        calls(&[("1", "bash", bash("touch a"))]),
        calls(&[("2", "bash", bash("touch a")), ("3", "bash", bash("touch a; touch b"))]),
        Message::assistant("ok"),
    ];
    let scene = Scene { confirm: Confirm::Writes, ..Scene::new(script) };
    let mut agent = scene.agent();
    let mut person = Person { replies: vec![Reply::Session], ..Person::default() };
    agent.work("touch", &mut person).unwrap();
    let asked: Vec<_> = person.events.iter().filter(|it| it.starts_with("asked")).collect();
    assert_eq!(asked, ["asked bash bash exactly: touch a", "asked bash "]);
    let expected = [("1", "bash exactly: touch a", "session"), ("3", "bash", "no")];
    assert_eq!(
        questions(&scene),
        expected.map(|(id, what, answer)| format!("{id} {what} {answer}"))
    );
    assert_eq!((scene.read("a").as_str(), scene.read("b").as_str()), ("", "absent"));
}

/// The questions of the log: the id of the call, the subject and the answer.
fn questions(scene: &Scene) -> Vec<String> {
    let questions = scene.records().into_iter().filter_map(|record| match record {
        Record::Question { id, subject, answer } => Some(format!("{id} {subject} {answer}")),
        _ => None,
    });
    questions.collect()
}

fn guarded() {
    let script = || vec![calls(&[("1", "bash", bash("echo x >.envrc"))]), Message::assistant("ok")];
    for (replies, expected) in [(vec![Reply::Once], "x\n"), (vec![], "absent")] {
        let scene = Scene { confirm: Confirm::Outside, ..Scene::new(script()) };
        let mut agent = scene.agent();
        let mut person = Person { replies, ..Person::default() };
        agent.work("write", &mut person).unwrap();
        assert!(person.events.contains(&"asked .envrc".to_owned()), "{:?}", person.events);
        let answer = if expected == "x\n" { "once" } else { "no" };
        let [question] = &questions(&scene)[..] else { panic!("expected one question") };
        assert!(question.ends_with(&format!(" .envrc {answer}")), "{question}");
        assert_eq!((scene.read(".envrc"), agent.has_refused), (expected.into(), expected != "x\n"));
    }
}

/// A tool of another process, which says that it only reads, and writes a guarded file.
#[derive(Debug)]
struct Neighbour(PathBuf);

impl OtherTools for Neighbour {
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    fn reach(&self, call: &ToolCall) -> Option<CallReach> {
        let reach = CallReach { is_inside: true, writes: false, subject: RuleSubject::None };
        (call.name == "put").then_some(reach)
    }

    fn has_processes(&self) -> bool {
        true
    }

    fn call(&mut self, _: &ToolCall, _: &dyn Fn() -> bool) -> (bool, String) {
        std::fs::write(self.0.join(".envrc"), "x\n").unwrap();
        (true, "looked".to_owned())
    }
}

fn neighbours() {
    let script = vec![
        calls(&[("1", "put", json!({}))]),
        calls(&[("2", "bash", bash("touch a"))]),
        Message::assistant("ok"),
    ];
    for (replies, expected) in [(vec![], "absent"), (vec![Reply::Once], "x\n")] {
        let scene = Scene { confirm: Confirm::Outside, ..Scene::new(script.clone()) };
        let mut agent = scene.agent();
        agent.others.push(Box::new(Neighbour(scene.work())));
        let mut person = Person { replies, ..Person::default() };
        agent.work("look", &mut person).unwrap();
        let asked: Vec<_> = person.events.iter().filter(|it| it.starts_with("asked")).collect();
        assert_eq!(asked, ["asked .envrc"]);
        assert_eq!(scene.read(".envrc"), expected);
        let result = &texts(agent.model.messages())[3];
        assert!(result.starts_with("tool: looked\n[changes of guarded files"), "{result}");
    }
}

/// A tool that lets a job change a guarded file, and waits until that is undone.
#[derive(Debug)]
struct Signal(PathBuf);

impl OtherTools for Signal {
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    fn reach(&self, call: &ToolCall) -> Option<CallReach> {
        let reach = CallReach { is_inside: true, writes: false, subject: RuleSubject::None };
        (call.name == "signal").then_some(reach)
    }

    fn call(&mut self, _: &ToolCall, _: &dyn Fn() -> bool) -> (bool, String) {
        std::fs::write(self.0.join("go"), "").unwrap();
        while !self.0.join("done").exists() || self.0.join(".envrc").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        (true, "done".to_owned())
    }
}

fn late_changes() {
    let command = "while [ ! -e go ]; do sleep 0.01; done; echo x >.envrc; touch done; sleep 1000";
    let script = vec![
        calls(&[("1", "bash", json!({"command": command, "wait_s": 0}))]),
        calls(&[("2", "signal", json!({}))]),
        Message::assistant("ok"),
    ];
    let scene = Scene { confirm: Confirm::Outside, ..Scene::new(script) };
    let mut agent = scene.agent();
    agent.others.push(Box::new(Signal(scene.work())));
    let mut person = Person { replies: vec![Reply::Once], ..Person::default() };
    assert_eq!(agent.work("change", &mut person).unwrap(), WorkEnd::Done);
    assert_eq!(person.events.last().map(String::as_str), Some("asked .envrc"));
    assert_eq!(scene.read(".envrc"), "x\n");
}

fn told() {
    // A folder that is a file now has no place for what it had.
    let script = |more: &str| {
        let command = format!("mv deep d; echo x >deep{more}");
        vec![calls(&[("1", "bash", bash(&command))]), Message::assistant("ok")]
    };
    let told = |script: Vec<Message>, replies: Vec<Reply>| {
        let scene = Scene { confirm: Confirm::Outside, ..Scene::new(script) };
        std::fs::create_dir(scene.work().join("deep")).unwrap();
        std::fs::write(scene.work().join("deep/.envrc"), "x\n").unwrap();
        let (mut agent, mut person) = (scene.agent(), Person { replies, ..Person::default() });
        agent.work("move", &mut person).unwrap();
        person.events.retain(|it| it.starts_with("asked") || it.starts_with("refused"));
        (person.events.join("; "), texts(agent.model.messages())[3].clone(), agent.has_refused)
    };
    let (events, text, _) = told(script("; rm -r d"), vec![]);
    let no = "refused: the change could not be undone and is still there";
    assert_eq!(events, format!("asked deep/.envrc; {no}"));
    assert!(text.contains("and could not be undone: deep/.envrc"), "{text}");
    let (events, _, has_refused) = told(script("; rm -r d"), vec![Reply::Once]);
    assert_eq!((&*events, has_refused), ("asked deep/.envrc", false));
    // A change that is accepted and cannot be made is said.
    let big = "head -c 9000000 /dev/zero >.mcp.json";
    let script = vec![calls(&[("1", "bash", bash(big))]), Message::assistant("ok")];
    let (events, _, has_refused) = told(script, vec![Reply::Once]);
    assert!(events.starts_with("asked .mcp.json; refused: cannot change .mcp.json"), "{events}");
    assert!(has_refused);
}

fn looks_at_jobs() {
    let job = |id: &str, action: &str| calls(&[(id, "job", json!({"id": 1, "action": action}))]);
    let command = json!({"command": "sleep 100", "wait_s": 0});
    let script = vec![
        calls(&[("1", "bash", command)]),
        job("2", "status"),
        job("3", "stop"),
        Message::assistant("ok"),
    ];
    let scene = Scene { confirm: Confirm::Writes, ..Scene::new(script) };
    let mut person = Person { replies: vec![Reply::Once; 2], ..Person::default() };
    scene.agent().work("wait", &mut person).unwrap();
    let asked: Vec<_> = person.events.iter().filter(|it| it.starts_with("asked")).collect();
    assert_eq!(asked, ["asked bash bash exactly: sleep 100", "asked job "]);
}

fn previews() {
    let edit = |lines: &str| json!({"path": "f", "old": null, "lines": lines, "new": "2\n"});
    let read = json!({"path": "f", "from": null, "lines": null});
    let script = vec![
        calls(&[("1", "write", write("f", "one\nnew\n"))]),
        calls(&[("2", "edit", edit("2:2"))]),
        calls(&[("3", "read", read)]),
        calls(&[("4", "edit", edit("2:2"))]),
        calls(&[("5", "write", write("a/b", "x\n"))]),
        Message::assistant("ok"),
    ];
    let scene = Scene { confirm: Confirm::Writes, ..Scene::new(script) };
    std::fs::write(scene.work().join("f"), "one\ntwo\n").unwrap();
    let mut person = Person::default();
    scene.agent().work("write", &mut person).unwrap();
    let asked: Vec<_> = person.events.iter().filter(|it| it.starts_with("asked")).collect();
    let of = |name: &str, range: &str, rest: &str| {
        format!("--- {name}\n+++ {name}\n@@ {range} @@\n{rest}")
    };
    assert_eq!(
        asked,
        [
            &format!("asked write {}", of("f", "-1,2 +1,2", " one\n-two\n+new\n")),
            // Lines that were not shown cannot be edited.
            "asked edit ",
            &format!("asked edit {}", of("f", "-1,2 +1,2", " one\n-two\n+2\n")),
            &format!("asked write {}", of("a/b", "-0,0 +1,1", "+x\n")),
        ]
    );
    assert_eq!(scene.read("f"), "one\ntwo\n");
    assert!(!scene.work().join("a").exists());
}

fn interrupts() {
    let script = vec![
        calls(&[("1", "bash", bash("sleep 60; touch a")), ("2", "bash", bash("touch b"))]),
        Message::assistant("ok"),
    ];
    let scene = Scene::new(script);
    let mut agent = scene.agent();
    let mut person = Person { stops_after: Some(6), ..Person::default() };
    let begun = std::time::Instant::now();
    assert_eq!(agent.work("wait", &mut person).unwrap(), WorkEnd::Interrupted);
    assert!(begun.elapsed().as_secs() < 30);
    let texts = texts(agent.model.messages());
    assert!(texts[3].contains("interrupted"), "{}", texts[3]);
    assert_eq!(texts[4], "tool: interrupted");
    assert_eq!(scene.read("b"), "absent");
    // Both calls are answered: the model is next.
    assert!(agent.is_unfinished());
    assert_eq!(agent.go_on(&mut Person::default()).unwrap(), WorkEnd::Done);
    assert_eq!(scene.read("b"), "absent");
}

fn steering() {
    let script = vec![
        calls(&[("1", "bash", bash("touch a")), ("2", "bash", bash("touch b"))]),
        Message::assistant("ok"),
    ];
    let scene = Scene::new(script);
    let mut agent = scene.agent();
    let mut person = Person { writes: Some((1, "not b")), ..Person::default() };
    assert_eq!(agent.work("touch", &mut person).unwrap(), WorkEnd::Done);
    let texts = texts(agent.model.messages());
    assert_eq!(&texts[4..], ["tool: skipped: the user wrote", "user: not b", "assistant: ok"]);
    assert_eq!((scene.read("a").as_str(), scene.read("b").as_str()), ("", "absent"));
}

fn limits() {
    let again = |id: &str| calls(&[(id, "bash", bash("echo x >>f"))]);
    let script = || vec![again("1"), again("2"), again("3"), Message::assistant("ok")];
    let answers = WorkLimits { answers: Some(2), ..WorkLimits::default() };
    let tokens = WorkLimits { tokens: Some(9), ..WorkLimits::default() };
    for limits in [answers, tokens] {
        let scene = Scene::new(script());
        let mut agent = scene.agent();
        agent.limits = limits;
        assert_eq!(agent.work("x", &mut Person::default()).unwrap(), WorkEnd::Limit);
        assert_eq!(scene.read("f"), "x\nx\n", "{limits:?}");
        assert!(agent.is_unfinished());
    }
    let scene = Scene::new(vec![calls(&[("1", "bash", bash("sleep 60"))]), again("2")]);
    let mut agent = scene.agent();
    let soon = std::time::Instant::now() + std::time::Duration::from_millis(700);
    agent.limits = WorkLimits { end: Some(soon), ..WorkLimits::default() };
    assert_eq!(agent.work("x", &mut Person::default()).unwrap(), WorkEnd::Limit);
    assert_eq!(scene.read("f"), "absent");
}

fn instructions() {
    let scene = Scene::new(Vec::new());
    let mut agent = scene.agent();
    assert_eq!(agent.host.instructions().unwrap(), None);
    std::fs::write(scene.work().join("AGENTS.md"), "Use tabs.\x1b[31m\n").unwrap();
    let text = agent.host.instructions().unwrap().unwrap();
    assert!(text.starts_with("Use tabs.") && !text.contains('\x1b'), "{text}");
    std::fs::write(scene.work().join("AGENTS.md"), "x".repeat(100_000)).unwrap();
    let text = agent.host.instructions().unwrap().unwrap();
    assert!(text.len() < 33 << 10 && text.ends_with("[... more left out ...]\n"));
}

fn result() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let result = |answer: &str, limits: WorkLimits| {
        let scene = Scene::new(vec![Message::assistant("done"), Message::assistant(answer)]);
        let (mut agent, mut person) = (scene.agent(), Person::default());
        assert_eq!(agent.work("count", &mut person).unwrap(), WorkEnd::Done);
        agent.limits = limits;
        let result = agent.result(&schema, &mut person).unwrap();
        let asked = texts(agent.model.messages()).iter().any(|it| it.contains(&schema.to_string()));
        assert_eq!(asked, limits.answers != Some(0));
        assert!(!agent.is_unfinished() || !asked);
        result
    };
    let free = WorkLimits::default();
    assert_eq!(result("{\"n\": 3}", free), FinalResult::Fits(json!({"n": 3})));
    let wrong = "member `n`: expected integer, found string".to_owned();
    assert_eq!(result("{\"n\": \"3\"}", free), FinalResult::Wrong(wrong));
    let text = FinalResult::Wrong("the last answer is no JSON".to_owned());
    assert_eq!(result("three", free), text);
    let none = WorkLimits { answers: Some(0), ..free };
    assert_eq!(result("{\"n\": 3}", none), FinalResult::Ended(WorkEnd::Limit));
}
