//! Conversations that are replaced by shorter ones.

use crate::Test;
use crate::scene::{AskedAnswer, Person, Scene, bash, calls, texts, write};
use agent::{Record, WorkEnd, WorkLimits};
use api::Message;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("a_full_conversation_is_summed_up_with_what_is_known", summed_up),
    ("what_is_known_outlives_every_compaction", twice),
    ("answers_leave_space_for_a_summary", space),
    ("an_answer_without_space_is_made_anew_after_a_compaction", anew),
    ("results_leave_space_for_a_summary", many_calls),
    ("a_compaction_is_within_the_limits", limited),
    ("a_failed_compaction_changes_nothing", failed),
    ("compaction_never_loops", loops),
    ("an_interrupted_compaction_changes_nothing", interrupted),
];

fn summary() -> String {
    let texts: [&str; 0] = [];
    let all = json!({
        "goal": "count", "constraints": ["no tabs"], "decisions": texts, "state": "half",
        "next_step": "more",
    });
    all.to_string()
}

/// Commands with long outputs, in a context that they fill.
fn scene(summary: Option<String>) -> Scene {
    let long = "for i in $(seq 200); do echo line $i; done; exit 1";
    let ids: Vec<String> = (2..20).map(|id| id.to_string()).collect();
    let mut script = vec![calls(&[("1", "write", write("f", "text\n"))])];
    script.extend(ids.iter().map(|id| calls(&[(id.as_str(), "bash", bash(long))])));
    script.push(calls(&[("20", "write", write("g", "late\n"))]));
    script.push(Message::assistant("done"));
    Scene { context: 3000, summary, ..Scene::new(script) }
}

fn compactions(scene: &Scene) -> usize {
    scene.records().iter().filter(|it| matches!(it, Record::Compaction { .. })).count()
}

fn summed_up() {
    let scene = scene(Some(summary()));
    let mut agent = scene.agent();
    let mut person = Person::default();
    let filler = "x".repeat(300);
    assert_eq!(agent.work(&filler, &mut person).unwrap(), WorkEnd::Done);
    let lengths: Vec<usize> = texts(agent.model.messages()).iter().map(String::len).collect();
    let asked = scene.summaries();
    assert!(person.events.contains(&"compacted".to_owned()), "{asked} {lengths:?}");
    assert!(compactions(&scene) >= 1);
    let all = texts(agent.model.messages());
    assert_eq!(all[0], "system: You work.");
    for part in ["goal: count", "constraints: no tabs", "files changed: f", "word for word:\nxxx"] {
        assert!(all[1].contains(part), "{part}: {}", all[1]);
    }
    assert_eq!(all.last().unwrap(), "assistant: done");
    // What came after the summary is taken back, and no more.
    let undone = agent.undo().unwrap().unwrap();
    assert_eq!((undone.files, undone.kept), (vec!["removed g".to_owned()], vec![]));
    assert_eq!((scene.read("f"), scene.read("g")), ("text\n".to_owned(), "absent".to_owned()));
    assert!(!agent.is_unfinished());
    assert_eq!(agent.undo().unwrap(), None);
    let left = texts(agent.model.messages());
    assert!(left.len() < all.len() && left[..] == all[..left.len()], "{left:?}");
    drop(agent);
    assert_eq!(texts(scene.agent().model.messages()), left);
}

fn twice() {
    // In one process, and in one that ends after each compaction.
    for dies_at in [None, Some("compacted")] {
        let scene = Scene { context: 2000, ..scene(Some(summary())) };
        let mut processes = 0;
        let agent = loop {
            let mut agent = scene.agent();
            let writes = (processes == 0).then_some((1, "and no tabs"));
            let mut person = Person { dies_at, writes, ..Person::default() };
            let work = AssertUnwindSafe(|| match processes {
                0 => agent.work("count\nall", &mut person).unwrap(),
                _ => agent.go_on(&mut person).unwrap(),
            });
            let end = catch_unwind(work);
            processes += 1;
            if let Ok(end) = end {
                assert_eq!(end, WorkEnd::Done);
                break agent;
            }
        };
        let made = compactions(&scene);
        assert!(made >= 2, "{made}");
        assert_eq!(processes, if dies_at.is_some() { made + 1 } else { 1 });
        let text = &texts(agent.model.messages())[1];
        assert!(text.contains("\nfiles changed: f\n"), "{text}");
        let request = "The user's last request, word for word:\ncount\nall\nand no tabs";
        assert!(text.ends_with(request), "{text}");
        assert_eq!(text.matches("command: ").count(), 5, "{text}");
        let requests = agent.session.requests().to_vec();
        assert_eq!(requests.len(), 1);
        drop(agent);
        assert_eq!(scene.agent().session.requests(), requests);
    }
}

fn space() {
    let scene = scene(Some(summary()));
    let mut agent = scene.agent();
    agent.limits.tokens = Some(1600);
    agent.work(&"x".repeat(300), &mut Person::default()).unwrap();
    let asked = scene.asked.borrow();
    let mut smallest = usize::MAX;
    for AskedAnswer { used, options } in asked.iter().filter(|it| !it.is_summary()) {
        let most = options.sampling.max_tokens.unwrap();
        // An eighth of the context for a summary, and some for its request.
        assert!(used + most + 3000 / 8 <= 3000, "{used} {most}");
        smallest = smallest.min(most);
    }
    assert!((1..1500).contains(&smallest), "{smallest}");
    assert!(asked[0].options.sampling.max_tokens == Some(1600));
    let summaries: Vec<_> = asked.iter().filter(|it| it.is_summary()).collect();
    assert!(!summaries.is_empty());
    for AskedAnswer { used, options } in summaries {
        assert_eq!((options.sampling.max_tokens, options.reasoning_budget), (Some(375), Some(0)));
        assert!(used + 375 <= 3000, "{used}");
    }
}

fn anew() {
    let whole = "whole ".repeat(200);
    for summary in [Some(summary()), None] {
        let is_summed_up = summary.is_some();
        let script = vec![Message::assistant("x".repeat(6600)), Message::assistant(&*whole)];
        let scene = Scene { context: 3000, summary, ..Scene::new(script) };
        let mut agent = scene.agent();
        assert_eq!(agent.work("one", &mut Person::default()).unwrap(), WorkEnd::Done);
        let end = agent.work("two", &mut Person::default()).unwrap();
        assert_eq!(end, if is_summed_up { WorkEnd::Done } else { WorkEnd::Full });
        assert_eq!((compactions(&scene), scene.summaries()), (usize::from(is_summed_up), 1));
        let all = texts(agent.model.messages());
        let last = if is_summed_up { format!("assistant: {whole}") } else { "user: two".into() };
        assert_eq!(*all.last().unwrap(), last);
        assert_eq!(agent.is_unfinished(), !is_summed_up);
        drop(agent);
        assert_eq!(texts(scene.agent().model.messages()), all);
    }
}

fn many_calls() {
    let long = "for i in $(seq 200); do echo line $i; done";
    let ids: Vec<String> = (0..20).map(|id| id.to_string()).collect();
    let all: Vec<_> = ids.iter().map(|id| (id.as_str(), "bash", bash(long))).collect();
    let script = vec![calls(&all), Message::assistant("done")];
    let scene = Scene { context: 4000, summary: Some(summary()), ..Scene::new(script) };
    let mut agent = scene.agent();
    let mut person = Person::default();
    assert_eq!(agent.work("go", &mut person).unwrap(), WorkEnd::Done);
    // All of them ran, and none was repeated.
    assert_eq!(person.events.iter().filter(|it| *it == "result bash true").count(), 20);
    assert_eq!(compactions(&scene), 1, "{:?}", person.events);
    let short = scene.records().into_iter().filter_map(|record| match record {
        Record::CallFinished { text, .. } => {
            let path = text.strip_prefix("[there is no space for the result; the whole is in ")?;
            Some(path.trim_end_matches(']').to_owned())
        }
        _ => None,
    });
    let short: Vec<String> = short.collect();
    assert!(!short.is_empty());
    let whole = std::fs::read_to_string(&short[0]).unwrap();
    assert!(whole.contains("line 200"), "{whole}");
    let asked = scene.asked.borrow();
    let summary = asked.iter().find(|it| it.is_summary()).unwrap();
    assert!(summary.used + 500 <= 4000, "{}", summary.used);
}

fn limited() {
    let scene = scene(Some(summary()));
    let mut agent = scene.agent();
    agent.work("go", &mut Person::default()).unwrap();
    let before = texts(agent.model.messages());
    agent.limits.end = Some(Instant::now());
    assert_eq!(agent.compact(None, &mut Person::default()).unwrap(), None);
    assert_eq!(texts(agent.model.messages()), before);
    agent.limits = WorkLimits { tokens: Some(100), ..WorkLimits::default() };
    let mut person = Person::default();
    agent.compact(None, &mut person).unwrap();
    assert_eq!(agent.limits.tokens, Some(95));
    let options = scene.asked.borrow().last().unwrap().options.clone();
    assert_eq!(options.sampling.max_tokens, Some(100));
    // The counts of its tokens are shown.
    assert_eq!(person.events[..3], ["answer", "event", "event"]);
}

fn failed() {
    let other = summary().replace("[\"no tabs\"]", "\"no tabs\"");
    let wrong =
        ["no JSON", "{\"goal\":\"cu", "null", "{}", "[]", &other].map(|it| Some(it.to_owned()));
    for summary in wrong.into_iter().chain([None]) {
        let scene = scene(summary);
        let (mut agent, mut person) = (scene.agent(), Person::default());
        let filler = "x".repeat(1000);
        assert_eq!(agent.work(&filler, &mut person).unwrap(), WorkEnd::Done);
        // The user decides.
        assert_eq!(person.events.iter().filter(|it| *it == "not compacted").count(), 1);
        let before = texts(agent.model.messages());
        assert_eq!(agent.compact(Some("tabs"), &mut Person::default()).unwrap(), None);
        assert_eq!(texts(agent.model.messages()), before);
        assert_eq!(compactions(&scene), 0);
        drop(agent);
        assert_eq!(texts(scene.agent().model.messages()), before);
    }
}

fn loops() {
    // A request that fills the context: a summary that repeats it frees nothing.
    let scene = scene(Some(summary()));
    let mut agent = scene.agent();
    let mut person = Person::default();
    assert_eq!(agent.work(&"x".repeat(9000), &mut person).unwrap(), WorkEnd::Done);
    let asked = scene.summaries();
    assert_eq!(asked, 1, "{:?}", person.events);
    assert_eq!(compactions(&scene), 0);
}

fn interrupted() {
    let scene = scene(Some(summary()));
    let mut agent = scene.agent();
    agent.work("go", &mut Person::default()).unwrap();
    let before = texts(agent.model.messages());
    let mut person = Person { stops_after: Some(0), ..Person::default() };
    assert_eq!(agent.compact(None, &mut person).unwrap(), None);
    assert_eq!(texts(agent.model.messages()), before);
}
