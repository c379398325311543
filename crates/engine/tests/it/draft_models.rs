//! Drafts of a second model: they change no bits, a model with the same weights is always right,
//! and what it keeps of sequences is released with them.

use crate::adapters::write_adapter;
use crate::checkpoints::{config_of, open, random, random_of, write};
use crate::constraints::Toy;
use crate::determinism::{Answer, collect};
use backend::AdapterSet;
use engine::metrics::{DraftStats, Stats};
use engine::{
    AdapterSource, Drafter, EngineHandle, EngineOptions, KvMemory, LoadOptions, Request, Runner,
    SamplingParams, Speculate, start,
};
use formats::Checkpoint;
use std::time::{Duration, Instant};

/// Sequences at once.
const RUNNING: usize = 4;

/// How an engine drafts.
struct Way {
    speculate: Speculate,
    /// Whether it always does.
    always: bool,
    /// Memory of the cache of the model, and of that of the draft model.
    memory: [KvMemory; 2],
    adapters: Vec<AdapterSource>,
}

impl Default for Way {
    fn default() -> Self {
        let memory = [KvMemory::Bytes(8 << 20); 2];
        Self { speculate: Speculate::Model(5), always: true, memory, adapters: Vec::new() }
    }
}

impl Way {
    fn start(self, model: &Checkpoint, draft: Option<&Checkpoint>) -> EngineHandle {
        let Self { speculate, always: drafts_always, memory: [kv_memory, drafts], adapters } = self;
        let options = EngineOptions {
            speculate,
            drafts_always,
            running: RUNNING,
            draft_memory: 0,
            ..EngineOptions::default()
        };
        let load = LoadOptions {
            logit_rows: options.logit_rows(),
            parallel: RUNNING,
            block: 16,
            threads: 2,
            kv_memory,
            adapters,
            ..LoadOptions::default()
        };
        let mut runner = Runner::load(model, &load).unwrap();
        if let Some(draft) = draft {
            let load = LoadOptions { kv_memory: drafts, adapters: Vec::new(), ..load };
            runner.draft_with(Runner::load(draft, &load).unwrap()).unwrap();
        }
        start(runner, options).0
    }
}

fn plain() -> Way {
    Way { speculate: Speculate::Off, always: false, ..Way::default() }
}

/// Greedy or sampled, with penalties or without, and a constraint in each fourth.
fn request(seed: u64) -> Request {
    let sampling = SamplingParams {
        temperature: if seed.is_multiple_of(2) { 0.0 } else { 1.0 },
        frequency_penalty: if seed.is_multiple_of(3) { 0.3 } else { 0.0 },
        seed: Some(seed),
        ..SamplingParams::default()
    };
    let constraint = (seed % 4 == 3).then(|| Toy::of(seed as usize).grammar());
    Request {
        prompt: (0..40 + seed as u32).map(|at| (at * 7 + seed as u32) % 113).collect(),
        sampling,
        constraint,
        max_tokens: Some(50),
        logprobs: Some(2),
        ..Request::default()
    }
}

/// The answers of requests that run together.
fn all(engine: &EngineHandle, requests: impl Iterator<Item = Request>) -> Vec<Answer> {
    let streams: Vec<_> = requests.map(|request| engine.submit(request).unwrap()).collect();
    streams.into_iter().map(|stream| collect(stream).0).collect()
}

fn drafts(stats: &Stats) -> DraftStats {
    stats.drafts[Drafter::Model as usize]
}

/// The counts once the engine has nothing to do.
fn idle(engine: &EngineHandle) -> Stats {
    let start = Instant::now();
    loop {
        let stats = engine.metrics.snapshot();
        let is_idle = stats.running == 0 && stats.waiting == 0;
        if is_idle && stats.blocks[0].used == 0 && stats.draft_blocks.used == 0 {
            return stats;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{stats:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_draft_model_with_the_models_weights_is_always_right() {
    for architecture in ["llama", "mistral", "qwen3_moe", "qwen3_5", "falcon_h1"] {
        let (checkpoint, _folder) = random(architecture);
        for at_once in [1, 6] {
            let engine = Way::default().start(&checkpoint, Some(&checkpoint));
            let plain = plain().start(&checkpoint, None);
            for first in (0..6).step_by(at_once) {
                let seeds = || (first..first + at_once as u64).map(request);
                assert_eq!(all(&engine, seeds()), all(&plain, seeds()), "{architecture}, {first}");
            }
            let stats = drafts(&idle(&engine));
            assert_eq!(stats.accepted, stats.drafted, "{architecture}, {at_once}");
            // All but the first of each step are drafted, of which a step has five.
            assert!(stats.accepted > 6 * 50 / 2, "{architecture}, {at_once}: {stats:?}");
        }
    }
}

/// A draft model of another shape: wider, with fewer layers, and a vocabulary that is filled up to
/// another size.
fn other(words: usize) -> (Checkpoint, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of("qwen3", 1).with(|said| {
        (said.hidden_size, said.intermediate_size, said.vocab_size) = (96, 64, words);
    });
    write(folder.path(), &config, |_, _| {});
    (open(folder.path()), folder)
}

#[test]
fn the_text_is_the_same_with_any_draft_model() {
    for architecture in ["llama", "mistral", "qwen3_5"] {
        let (model, _folder) = random(architecture);
        let seeds = || (0..8).map(request);
        let want = all(&plain().start(&model, None), seeds());
        for words in [131, 120, 160] {
            let (draft, _folder) = other(words);
            for (how, always) in [("model:1", true), ("model:7", true), ("auto", false)] {
                let way = Way { speculate: how.parse().unwrap(), always, ..Way::default() };
                let engine = way.start(&model, Some(&draft));
                // The second time, prefixes are found in both caches.
                for round in 0..2 {
                    let found = all(&engine, seeds());
                    assert_eq!(found, want, "{architecture}, {words}, {how}, {round}");
                }
                let stats = idle(&engine);
                assert!(!always || drafts(&stats).drafted > 100, "{architecture}: {stats:?}");
            }
            let off = Request { speculate: Some(Speculate::Off), ..request(0) };
            let engine = Way::default().start(&model, Some(&draft));
            assert_eq!(all(&engine, std::iter::once(off)), want[..1]);
            assert_eq!(drafts(&idle(&engine)).drafted, 0);
        }
    }
}

/// The rows of wrong drafts are gone: what the draft model has kept of a sequence is right.
#[test]
fn rejected_drafts_leave_no_trace() {
    for architecture in ["llama", "mistral", "qwen3_5", "falcon_h1"] {
        let (checkpoint, _folder) = random(architecture);
        let folder = tempfile::tempdir().unwrap();
        write_adapter(folder.path(), &checkpoint, 5, |_| true);
        let adapters = vec![AdapterSource::new(folder.path(), 0.15)];
        let engine = Way { adapters, ..Way::default() }.start(&checkpoint, Some(&checkpoint));
        let texts = [0, 1, 2].map(|seed| {
            let answer = all(&engine, std::iter::once(request(seed))).remove(0);
            [request(seed).prompt, answer.ids].concat()
        });
        let wrong = drafts(&idle(&engine));
        assert!(wrong.accepted > 0 && wrong.accepted < wrong.drafted, "{wrong:?}");
        // Without the adapter, drafts that continue these texts are right.
        for text in texts {
            let base = Some(AdapterSet::default());
            let continued = Request { prompt: text, adapters: base, ..request(4) };
            all(&engine, std::iter::once(continued));
        }
        let right = drafts(&idle(&engine));
        let (drafted, accepted) = (right.drafted - wrong.drafted, right.accepted - wrong.accepted);
        assert!(drafted > 60 && accepted == drafted, "{accepted} of {drafted}");
    }
}

/// After wrong drafts as after right ones, the draft model continues the text as it would alone.
#[test]
fn drafts_are_what_the_draft_model_says_after_the_text() {
    const DRAFTS: usize = 5;
    for architecture in ["llama", "mistral", "qwen3_5", "kimi_linear"] {
        let (checkpoint, _folder) = random(architecture);
        let folder = tempfile::tempdir().unwrap();
        write_adapter(folder.path(), &checkpoint, 5, |_| true);
        let adapters = vec![AdapterSource::new(folder.path(), 0.15)];
        let engine = Way { adapters, ..Way::default() }.start(&checkpoint, Some(&checkpoint));
        let alone = plain().start(&checkpoint, None);
        let (mut want, mut some_wrong) = (0, 0);
        for seed in [2, 4, 8] {
            let prompt = request(seed).prompt;
            let answer = all(&engine, std::iter::once(request(seed))).remove(0).ids;
            let text = [&prompt[..], &answer].concat();
            // The first token comes without drafts, the next with the one of the prompt.
            let (mut known, mut most) = (prompt.len() + 1, 1);
            while known + 1 < text.len() {
                let prompt = text[..known].to_vec();
                let request = Request { prompt, max_tokens: Some(most), ..request(seed) };
                let drafted = all(&alone, std::iter::once(request)).remove(0).ids;
                let pairs = drafted.iter().zip(&text[known..]);
                let right = pairs.take_while(|(drafted, token)| drafted == token).count();
                some_wrong += usize::from(0 < right && right < most);
                want += right;
                known += right + 1;
                most = DRAFTS.min(text.len().saturating_sub(known + 1));
            }
        }
        assert!(some_wrong > 3, "{architecture}: {some_wrong}");
        let accepted = drafts(&idle(&engine)).accepted as usize;
        assert_eq!(accepted, want, "{architecture}, {some_wrong}");
    }
}

#[test]
fn short_memory_drops_drafts_and_changes_no_text() {
    let (model, _folder) = random("llama");
    let seeds = || (0..8).map(request);
    let want = all(&plain().start(&model, None), seeds());
    // Of a block of 16 positions in two layers: 2 * 16 * 2 * 2 * 24 values of two bytes.
    let block = 2 * 16 * 2 * 2 * 24 * 2;
    let large = KvMemory::Bytes(8 << 20);
    let (few, fewer) = (KvMemory::Bytes(12 * block), KvMemory::Bytes(7 * block));
    for (memory, must_preempt) in
        [([few, large], true), ([large, fewer], false), ([few, fewer], false)]
    {
        let engine = Way { memory, ..Way::default() }.start(&model, Some(&model));
        // How many run together depends on when they come.
        for _ in 0..20 {
            assert_eq!(all(&engine, seeds()), want, "{memory:?}");
            if !must_preempt || idle(&engine).preemptions > 0 {
                break;
            }
        }
        let stats = idle(&engine);
        assert!(!must_preempt || stats.preemptions > 0, "{memory:?}");
        let DraftStats { drafted, accepted, .. } = drafts(&stats);
        assert!(accepted == drafted && drafted > 20, "{memory:?}: {accepted} of {drafted}");
    }
}

#[test]
fn requests_that_are_dropped_release_their_drafts() {
    let (model, _folder) = random("llama");
    let (draft, _other) = random_of("llama", 1);
    let engine = Way::default().start(&model, Some(&draft));
    for round in 0..10 {
        let streams: Vec<_> = (0..6).map(|seed| engine.submit(request(seed)).unwrap()).collect();
        for (mut stream, events) in streams.into_iter().zip(round..) {
            (0..events).for_each(|_| drop(stream.next_blocking()));
        }
    }
    let stats = idle(&engine);
    assert!(drafts(&stats).drafted > 0);
    assert_eq!(all(&engine, std::iter::once(request(1)))[0].ids.len(), 50);
}

#[test]
fn models_that_cannot_draft_are_refused() {
    let load = |architecture| {
        let (checkpoint, _folder) = random(architecture);
        Runner::load(&checkpoint, &LoadOptions::default()).unwrap()
    };
    let refused = |model, draft, words: &str| {
        let message = load(model).draft_with(load(draft)).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused("llama", "bert", "the draft model generates no text");
    refused("bert", "llama", "the model generates no text");
    let few = |state_memory, parallel| {
        let (checkpoint, _folder) = random("qwen3_5");
        let few = LoadOptions { state_memory, parallel, ..LoadOptions::default() };
        Runner::load(&checkpoint, &few).unwrap()
    };
    let state = few(None, 1).memory().states / 2;
    let message = load("llama").draft_with(few(Some(state), 1)).unwrap_err().to_string();
    assert!(message.contains("holds one of the draft model; expected two"), "{message}");
    assert!(load("qwen3_5").draft_with(load("llama")).is_ok());
}
