//! What sessions compute: every token once.

use crate::Test;
use crate::forced::PlannedAnswer;
use crate::forced_session::{ForcedSession, Watcher};
use crate::plans::{PlannedAct, answers, make_files, plan};
use crate::scene::Scene;
use crate::tiny_model;
use agent::{LocalModel, WorkEnd, WorkLimits};
use api::{ChatRequest, Message, TurnTokens, Usage};
use gannet::KvDir;
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("a_turn_computes_only_new_tokens", only_new_tokens),
    ("tokens_that_are_not_those_of_the_messages_are_rendered_anew", other_tokens),
    ("an_answer_that_a_limit_cuts_off_is_not_done", cut_off),
    ("a_new_process_computes_only_what_is_in_no_full_block", other_process),
];

/// Tokens of a block of the cache.
const BLOCK: usize = 32;
/// Time for what is still written to disk.
const END: Duration = Duration::from_secs(60);

/// Twenty answers with calls in four requests, none of which is taken back.
fn twenty() -> Vec<PlannedAct> {
    let mut plan = plan(7, &[4, 4, 4, 4]);
    plan.retain(|act| matches!(act, PlannedAct::Ask { .. }));
    plan
}

/// Tokens that an answer computed: of its prompt what was not cached, and its own.
fn computed(usage: &Usage) -> usize {
    usage.prompt_tokens - usage.cached_tokens + usage.completion_tokens
}

fn only_new_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let engine = tiny_model::load(folder.path(), |it| it);
    let (scene, plan) = (Scene::new(Vec::new()), twenty());
    make_files(&scene.work());
    let mut watcher = Watcher::default();
    ForcedSession::open(&scene, &plan, engine.service()).work(&mut watcher, None);
    let Watcher { usages, rendered_anew, .. } = watcher;
    assert_eq!((usages.len(), rendered_anew), (20, 0));
    // Texts may come without.
    assert!(usages.iter().filter(|it| it.reasoning_tokens > 0).count() >= 16, "{usages:?}");
    let all: usize = usages.iter().map(computed).sum();
    let last = usages[19];
    let new = last.prompt_tokens + last.completion_tokens;
    assert!(100 * all <= 102 * new, "{all} computed of {new}: {usages:?}");
}

fn other_process() {
    let folder = tempfile::tempdir().unwrap();
    let (scene, plan) = (Scene::new(Vec::new()), twenty());
    make_files(&scene.work());
    let mut known = 0;
    for answer in 0..20 {
        let kept = KvDir::new(folder.path().join("kept"), 1 << 30).keeping_all();
        let engine = tiny_model::load(folder.path(), |it| it.kv_dir(kept));
        let mut watcher = Watcher::default();
        ForcedSession::open(&scene, &plan, engine.service()).work(&mut watcher, Some(1));
        assert!(engine.finish(END));
        assert_eq!((watcher.usages.len(), watcher.rendered_anew), (1, 0));
        let Usage { prompt_tokens, completion_tokens, cached_tokens, .. } = watcher.usages[0];
        // The last sampled token is computed with the prompt after it.
        assert!(cached_tokens + BLOCK >= known, "answer {answer}: {cached_tokens} of {known}");
        known = prompt_tokens + completion_tokens;
    }
}

fn cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let engine = tiny_model::load(folder.path(), |it| it);
    let all = vec![PlannedAnswer::Say("No tool is needed for it.".into())];
    let plan = [PlannedAct::Ask { answers: all, writes_after: None }];
    let limited = |tokens, time: Option<Duration>| {
        let scene = Scene::new(Vec::new());
        let mut session = ForcedSession::open(&scene, &plan, engine.service());
        let end = time.map(|time| Instant::now() + time);
        session.agent.limits = WorkLimits { answers: None, tokens, end };
        session.answers.to_come.borrow_mut().extend(answers(&plan));
        session.agent.work("?", &mut Watcher::default()).unwrap()
    };
    assert_eq!(limited(Some(9), None), WorkEnd::Limit);
    assert_eq!(limited(Some(500), None), WorkEnd::Done);
    assert_eq!(limited(None, Some(Duration::ZERO)), WorkEnd::Limit);
}

fn other_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let engine = tiny_model::load(folder.path(), |it| it);
    let messages = vec![Message::user("hello"), Message::assistant("yes")];
    let turn = TurnTokens { message: 1, continues: false, prompt: vec![1, 2], sampled: vec![3] };
    let transcript = |turn: TurnTokens| {
        let request = ChatRequest { messages: messages.clone(), ..ChatRequest::default() };
        LocalModel::transcript(engine.service(), request, vec![turn]).unwrap()
    };
    let (whole, fault) = transcript(turn.clone());
    assert!(fault.is_none() && whole.turns().count() == 1);
    for wrong in
        [TurnTokens { message: 0, ..turn.clone() }, TurnTokens { sampled: vec![u32::MAX], ..turn }]
    {
        let (anew, fault) = transcript(wrong);
        assert!(fault.unwrap().to_string().contains("not those of its answers"));
        assert_eq!((anew.messages(), anew.turns().count()), (&messages[..], 0));
    }
}
