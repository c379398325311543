//! Requests through the engine thread.

use crate::checkpoints::{config, open, random, write};
use engine::{
    EngineHandle, EngineOptions, Event, Finished, LoadOptions, Outcome, Request, Runner,
    SamplingParams, SubmitError, start,
};
use std::thread::JoinHandle;

struct Running {
    handle: EngineHandle,
    thread: JoinHandle<()>,
}

fn engine(threads: usize, chunk: usize) -> Running {
    let (checkpoint, _folder) = random("qwen3");
    let options = LoadOptions { threads, chunk: Some(chunk), ..LoadOptions::default() };
    let runner = Runner::load(&checkpoint, &options).unwrap();
    let options = EngineOptions { queue: 4, running: 8, ..EngineOptions::default() };
    let (handle, thread) = start(runner, options);
    Running { handle, thread }
}

fn request(prompt: usize, max_tokens: usize) -> Request {
    Request {
        prompt: (0..prompt as u32).map(|i| i * 37 % 131).collect(),
        max_tokens: Some(max_tokens),
        sampling: SamplingParams { temperature: 0.9, seed: Some(5), ..SamplingParams::default() },
        ..Request::default()
    }
}

fn collect(mut generation: engine::Generation) -> (Vec<u32>, Finished) {
    let mut ids = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            Event::Token { id, .. } => ids.push(id),
            Event::Finished(finished) => {
                assert_eq!(generation.next_blocking(), None, "the end is the end");
                return (ids, finished);
            }
            Event::Admitted { .. } => {}
            Event::Prefill { done, total } => assert!(done < total),
            other => panic!("{other:?}"),
        }
    }
    panic!("no end");
}

fn answer(engine: &Running, request: Request) -> (Vec<u32>, Finished) {
    collect(engine.handle.submit(request).unwrap())
}

#[test]
fn same_seed_same_text_on_any_thread_count_and_chunk() {
    let (want, finished) = answer(&engine(1, 64), request(40, 30));
    assert_eq!((want.len(), finished.outcome), (30, Outcome::Length));
    assert_eq!((finished.usage.prompt_tokens, finished.usage.completion_tokens), (40, 30));
    for (threads, chunk) in [(2, 64), (3, 7), (1, 9)] {
        assert_eq!(answer(&engine(threads, chunk), request(40, 30)).0, want);
    }
    let other = SamplingParams { seed: Some(6), ..request(40, 30).sampling };
    assert_ne!(answer(&engine(1, 64), Request { sampling: other, ..request(40, 30) }).0, want);
}

#[test]
fn other_requests_do_not_change_an_answer() {
    let engine = engine(2, 16);
    let alone = answer(&engine, request(30, 20)).0;
    let submit = |prompt| engine.handle.submit(request(prompt, 20)).unwrap();
    let together: Vec<_> = [30, 55, 30].map(submit).into_iter().map(|g| collect(g).0).collect();
    assert_eq!(together[0], alone);
    assert_eq!(together[2], alone);
}

#[test]
fn stop_ids_end_an_answer_unless_fewer_than_min_tokens() {
    let engine = engine(1, 64);
    let ids = answer(&engine, request(20, 20)).0;
    let stop = ids[4];
    let first = ids.iter().position(|id| *id == stop).unwrap();
    let stopped = Request { stop_ids: vec![stop, 1 << 30], ..request(20, 20) };
    let (short, finished) = answer(&engine, stopped.clone());
    assert_eq!((&short[..], finished.outcome), (&ids[..first], Outcome::StopId(stop)));
    let (long, _) = answer(&engine, Request { min_tokens: 10, ..stopped });
    assert!(long.len() >= 10 && !long[..10].contains(&stop));
}

#[test]
fn logprobs_come_with_every_token_if_requested() {
    let engine = engine(1, 64);
    let request = Request { logprobs: Some(3), ..request(8, 5) };
    let mut generation = engine.handle.submit(request).unwrap();
    while let Some(event) = generation.next_blocking() {
        if let Event::Token { logprobs, .. } = event {
            let logprobs = logprobs.unwrap();
            assert_eq!(logprobs.top.len(), 3);
            assert!(logprobs.logprob <= 0.0 && logprobs.logprob <= logprobs.top[0].1);
        }
    }
}

#[test]
fn a_dropped_generation_frees_its_blocks() {
    let engine = engine(1, 64);
    for _ in 0..3 {
        // Each reserves the whole context; only one fits at a time.
        let whole = Request { max_tokens: None, ..request(10, 0) };
        let mut generation = engine.handle.submit(whole).unwrap();
        assert!(matches!(generation.next_blocking(), Some(Event::Admitted { .. })));
        assert!(matches!(generation.next_blocking(), Some(Event::Token { .. })));
    }
    assert_eq!(answer(&engine, request(10, 5)).0.len(), 5);
}

#[test]
fn the_computed_part_of_an_abandoned_prompt_is_counted() {
    let engine = engine(1, 1);
    let mut generation = engine.handle.submit(request(240, 1)).unwrap();
    let computed = loop {
        match generation.next_blocking().unwrap() {
            Event::Prefill { done, .. } => break done as u64,
            _ => continue,
        }
    };
    drop(generation);
    let ended = || engine.handle.metrics.snapshot().finished.iter().sum::<u64>() == 1;
    while !ended() {
        std::thread::yield_now();
    }
    let counted = engine.handle.metrics.snapshot().prompt_tokens;
    assert!((computed..=240).contains(&counted), "{computed} {counted}");
}

#[test]
fn bad_requests_are_rejected_when_submitted() {
    let engine = engine(1, 64);
    let refusal = |request| engine.handle.submit(request).unwrap_err();
    assert_eq!(
        refusal(request(256, 1)),
        SubmitError::ContextLength { prompt_tokens: 256, context_length: 256 }
    );
    assert!(matches!(refusal(request(0, 1)), SubmitError::Invalid { .. }));
    let outside = Request { prompt: vec![131], ..Request::default() };
    assert!(
        matches!(refusal(outside), SubmitError::Invalid { message, .. } if message.contains("131"))
    );
    for marks in [vec![0], vec![5], vec![2, 2], vec![3, 1], (1..10).collect()] {
        let message = refusal(Request { marks, ..request(5, 5) }).to_string();
        assert!(message.contains("at most 8 ascending positions"), "{message}");
    }
    let hot = SamplingParams { temperature: f32::NAN, ..SamplingParams::default() };
    let refused = refusal(Request { sampling: hot, ..request(5, 5) });
    assert!(
        matches!(refused, SubmitError::Invalid { message, .. } if message.contains("temperature"))
    );
}

#[test]
fn an_answer_ends_where_the_context_does() {
    let engine = engine(2, 64);
    let (ids, finished) = answer(&engine, Request { max_tokens: None, ..request(250, 0) });
    assert_eq!((ids.len(), finished.outcome), (6, Outcome::Length));
}

#[test]
fn the_engine_ends_with_its_last_handle_and_a_failed_request_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("qwen3"), |name, values| {
        // Token 7 alone is poisoned.
        if name == "token_embd.weight" {
            values[7 * 72] = f32::NAN;
        }
    });
    let runner = Runner::load(&open(folder.path()), &LoadOptions::default()).unwrap();
    let (handle, thread) = start(runner, EngineOptions::default());
    // The head is tied: every logit row holds one NaN.
    let mut generation = handle.submit(request(3, 3)).unwrap();
    assert!(matches!(generation.next_blocking(), Some(Event::Admitted { .. })));
    let end = generation.next_blocking();
    assert!(
        matches!(end, Some(Event::Finished(Finished { outcome: Outcome::Failed(text), .. })) if text.contains("NaN")),
        "no token 0"
    );
    assert!(handle.is_alive());
    drop((generation, handle));
    thread.join().unwrap();
    let Running { handle, thread } = engine(1, 64);
    drop(handle);
    thread.join().unwrap();
}

#[test]
fn checking_ends_the_failed_sequence_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("llama"), |name, values| {
        if name == "token_embd.weight" {
            values[7 * 72] = f32::NAN;
        }
    });
    let options = LoadOptions { check: true, ..LoadOptions::default() };
    let runner = Runner::load(&open(folder.path()), &options).unwrap();
    let (handle, thread) = start(runner, EngineOptions::default());
    let banned =
        SamplingParams { logit_bias: vec![(7, f32::NEG_INFINITY)], ..request(1, 1).sampling };
    let good = Request { sampling: banned, prompt: vec![1, 2, 3], ..request(3, 20) };
    let broken = Request { prompt: vec![1, 7, 3], ..good.clone() };
    let [a, mut b, c] = [good.clone(), broken, good].map(|request| handle.submit(request).unwrap());
    let (want, got) = (collect(a).0, collect(c).0);
    assert_eq!((want.len(), want), (20, got));
    let ends: Vec<Event> = std::iter::from_fn(|| b.next_blocking()).collect();
    assert!(
        matches!(&ends[..], [Event::Admitted { .. }, Event::Finished(Finished { outcome: Outcome::Failed(text), .. })] if text.contains("token embedding")),
        "{ends:?}"
    );
    drop(handle);
    thread.join().unwrap();
}

#[test]
fn wrong_options_are_errors_or_harmless() {
    let (checkpoint, _folder) = random("qwen3");
    let load = |options| Runner::load(&checkpoint, &options);
    let runner = load(LoadOptions { chunk: Some(usize::MAX), ..LoadOptions::default() }).unwrap();
    assert_eq!(runner.chunk(), 256, "no more than the context");
    for options in [
        LoadOptions { threads: 100_000, ..LoadOptions::default() },
        LoadOptions {
            context: Some(usize::MAX),
            chunk: Some(usize::MAX),
            ..LoadOptions::default()
        },
    ] {
        assert!(load(options).is_err());
    }
}
