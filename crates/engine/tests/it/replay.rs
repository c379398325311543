//! Traces, time limits and the queue.

use crate::checkpoints::{least, random, random_of};
use crate::constraints::{Steered, Toy};
use engine::trace::TraceFiles;
use engine::{
    AnswerRecord, EngineHandle, EngineOptions, Event, LoadOptions, Outcome, Request, Runner,
    SamplingParams, Speculate, SubmitError, Trace, WeightsMemory, request_channel, start,
};
use serde_json::Value;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

fn engine(options: EngineOptions, threads: usize) -> EngineHandle {
    let (checkpoint, _folder) = random("qwen3");
    let load = LoadOptions { threads, logit_rows: options.logit_rows(), ..LoadOptions::default() };
    start(Runner::load(&checkpoint, &load).unwrap(), options).0
}

fn traced(speculate: Speculate, threads: usize) -> (EngineHandle, Receiver<Trace>) {
    let (sink, traces) = sync_channel(64);
    let options = EngineOptions { speculate, traces: Some(sink), ..EngineOptions::default() };
    (engine(options, threads), traces)
}

fn request(seed: u64) -> Request {
    Request {
        prompt: (0..40).map(|i| (i * i + seed as u32) % 131).collect(),
        sampling: SamplingParams { temperature: 0.9, seed: Some(seed), ..Default::default() },
        max_tokens: Some(25),
        constraint: (seed % 2 == 1).then(|| Steered::grammar(|id| id % 2 == 0)),
        name: Some(format!("request {seed}")),
        ..Request::default()
    }
}

fn wait(engine: &EngineHandle, request: Request) -> Vec<Event> {
    let mut generation = engine.submit(request).unwrap();
    std::iter::from_fn(|| generation.next_blocking()).collect()
}

#[test]
fn a_trace_comes_out_the_same_when_its_request_is_computed_alone() {
    let (together, traces) = traced(Speculate::Ngram(2), 2);
    let generations: Vec<_> = (0..8).map(|seed| together.submit(request(seed)).unwrap()).collect();
    for mut generation in generations {
        while generation.next_blocking().is_some() {}
    }
    let (alone, again) = traced(Speculate::Off, 1);
    let mut in_company = false;
    for trace in traces.iter().take(8) {
        in_company |= trace.steps.iter().any(|step| step.sequences > 1);
        assert_eq!((trace.ids.len(), trace.finish.as_str()), (25, "length"));
        let even = trace.ids.iter().enumerate().filter(|(_, id)| **id % 2 == 0);
        let behind = even.map(|(at, _)| at + 1).filter(|at| *at < 25);
        let steered = trace.name.ends_with(['1', '3', '5', '7']);
        let greedy: Vec<usize> = [0].into_iter().chain(behind).filter(|_| steered).collect();
        assert_eq!(trace.greedy, greedy, "{}", trace.name);
        wait(&alone, trace.request(None).unwrap());
        let mut now = again.recv().unwrap();
        assert_eq!(trace.divergence(&now), None, "{}", trace.name);
        now.logits[7] = "0".into();
        assert_eq!(trace.divergence(&now).unwrap().at, 7);
        now.ids[3] += 1;
        assert_eq!(trace.divergence(&now).unwrap().at, 3);
    }
    assert!(in_company);
}

/// Drafts, traces and company do not change the record of an answer.
#[test]
fn a_record_has_the_choices_of_the_trace() {
    let recorded = |engine: &EngineHandle, seed| {
        let record = AnswerRecord::default();
        wait(engine, Request { record: Some(record.clone()), ..request(seed) });
        record.first(usize::MAX)
    };
    let (with_traces, traces) = traced(Speculate::Ngram(2), 2);
    let without = engine(EngineOptions::default(), 1);
    for seed in 0..3 {
        let choices = recorded(&with_traces, seed);
        let trace = traces.recv().unwrap();
        let logits: Vec<_> = choices.logits.iter().map(|it| format!("{it:016x}")).collect();
        assert_eq!((logits, choices.greedy.clone()), (trace.logits, trace.greedy));
        assert_eq!((choices.logits.len(), recorded(&without, seed)), (25, choices));
    }
}

#[test]
fn a_trace_of_a_constrained_request_comes_out_the_same_with_its_constraint_alone() {
    let (together, traces) = traced(Speculate::Ngram(2), 2);
    let toy = |number: usize| Toy { steers: number.is_multiple_of(2), ..Toy::of(number) }.grammar();
    let constrained = |seed: u64| {
        let constraint = Some(toy(seed as usize));
        Request { constraint, max_tokens: Some(40), ..request(seed) }
    };
    let running: Vec<_> = (0..4).map(|seed| together.submit(constrained(seed)).unwrap()).collect();
    for mut generation in running {
        while generation.next_blocking().is_some() {}
    }
    let (alone, again) = traced(Speculate::Off, 1);
    for trace in traces.iter().take(4) {
        let number = trace.request.constraint.as_ref().and_then(Value::as_u64).unwrap() as usize;
        assert_eq!(trace.greedy.is_empty(), number % 2 == 1, "{}", trace.name);
        let json = serde_json::to_vec(&trace).unwrap();
        let trace: Trace = serde_json::from_slice(&json).unwrap();
        let replayed = |constraint| {
            wait(&alone, trace.request(Some(constraint)).unwrap());
            again.recv().unwrap()
        };
        let now = replayed(toy(number));
        assert_eq!(trace.divergence(&now), None, "{}", trace.name);
        assert_eq!((&now.greedy, &now.request), (&trace.greedy, &trace.request), "{}", trace.name);
        assert_ne!(trace.divergence(&replayed(toy(number + 1))), None, "{}", trace.name);
        let problem = trace.request(None).unwrap_err();
        assert!(problem.contains("an earlier version wrote the trace"), "{problem}");
    }
}

#[test]
fn requests_without_an_answer_leave_no_trace() {
    let (engine, traces) = traced(Speculate::Off, 1);
    let prompt = || Request { prompt: vec![1, 2, 3], ..Request::default() };
    wait(&engine, Request { logits: true, ..prompt() });
    wait(&engine, Request { embed: Some(engine::Embed::default()), ..prompt() });
    wait(&engine, request(0));
    assert_eq!(traces.recv().unwrap().name, "request 0");
    assert!(traces.try_recv().is_err());
}

#[test]
fn a_trace_of_a_resident_model_comes_out_the_same_when_weights_are_streamed() {
    let (checkpoint, _folder) = random_of("qwen3_moe", 6);
    let traced = |weights_memory| {
        let (sink, traces) = sync_channel(64);
        let options = EngineOptions { traces: Some(sink), ..EngineOptions::default() };
        let load = LoadOptions { weights_memory, threads: 2, ..LoadOptions::default() };
        let runner = Runner::load(&checkpoint, &load).unwrap();
        assert_eq!(runner.stream_stats().is_some(), weights_memory != WeightsMemory::All);
        (start(runner, options).0, traces)
    };
    let (resident, traces) = traced(WeightsMemory::All);
    let least = least(&checkpoint, &LoadOptions { threads: 2, ..LoadOptions::default() });
    let (streamed, again) = traced(WeightsMemory::Bytes(least));
    for seed in 0..6 {
        wait(&resident, request(seed));
        let trace = traces.recv().unwrap();
        wait(&streamed, trace.request(None).unwrap());
        let now = again.recv().unwrap();
        assert_eq!(trace.settings.placement, now.settings.placement);
        assert_eq!(trace.divergence(&now), None, "{}", trace.name);
    }
}

#[test]
fn traces_are_written_as_files_that_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let files = TraceFiles::create(folder.path()).unwrap();
    let traces = Some(files.sink.clone());
    let engine = engine(EngineOptions { traces, ..EngineOptions::default() }, 1);
    wait(&engine, request(3));
    drop(engine);
    files.finish(Duration::from_secs(10));
    let path = folder.path().join("request_3.json");
    let trace = Trace::read(&path).unwrap();
    assert_eq!((trace.name.as_str(), trace.ids.len()), ("request 3", 25));
    assert_eq!(trace.request(None).unwrap().prompt, request(3).prompt);
    std::fs::write(&path, "{}").unwrap();
    assert!(Trace::read(&path).unwrap_err().contains("request_3.json"));
}

#[test]
fn a_request_that_takes_too_long_times_out_and_no_other_does() {
    let engine = engine(EngineOptions::default(), 1);
    let limit = Duration::from_micros(1);
    let late = Request { timeout: Some(limit), ..request(1) };
    let (late, other) = (engine.submit(late).unwrap(), wait(&engine, request(2)));
    assert!(matches!(other.last(), Some(Event::Finished(_))), "{other:?}");
    let mut late = late;
    let events: Vec<Event> = std::iter::from_fn(|| late.next_blocking()).collect();
    let outcome = Outcome::TimedOut(limit);
    assert!(
        matches!(&events[..], [Event::Finished(finished)] if finished.outcome == outcome),
        "{events:?}"
    );
}

#[test]
fn the_queue_is_bounded_wherever_requests_wait() {
    let (checkpoint, _folder) = random("qwen3");
    let runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
    let (handle, mut receiver) = request_channel(runner.info().clone(), 3);
    let _waiting: Vec<_> = (0..3).map(|seed| handle.submit(request(seed)).unwrap()).collect();
    let full = |handle: &EngineHandle| handle.submit(request(9)).unwrap_err();
    assert_eq!(full(&handle), SubmitError::QueueFull(3));
    // Taken by an engine, it still waits; once it is computed it does not.
    let mut taken = receiver.submissions.try_recv().unwrap();
    assert_eq!(full(&handle), SubmitError::QueueFull(3));
    taken.queue_slot = None;
    let _fourth = handle.submit(request(9)).unwrap();
    assert_eq!(full(&handle), SubmitError::QueueFull(3));
    assert_eq!(handle.metrics.snapshot().rejected, 3);
}

#[test]
fn a_reader_that_pauses_delays_no_other_and_misses_no_event() {
    let options = EngineOptions { running: 1, ..EngineOptions::default() };
    let engine = engine(options, 1);
    let long = Request { max_tokens: Some(200), ..request(1) };
    let want = wait(&engine, long.clone());
    let mut stalled = engine.submit(long).unwrap();
    for seed in 2..8 {
        // One sequence runs at a time, and each of these is admitted.
        assert!(matches!(wait(&engine, request(seed)).last(), Some(Event::Finished(_))));
        for _ in 0..20 {
            assert!(stalled.next_blocking().is_some());
        }
    }
    let ids = |events: &[Event]| -> Vec<u32> {
        let id = |event: &Event| if let Event::Token { id, .. } = event { Some(*id) } else { None };
        events.iter().filter_map(id).collect()
    };
    let rest: Vec<Event> = std::iter::from_fn(|| stalled.next_blocking()).collect();
    assert!(matches!(rest.last(), Some(Event::Finished(_))), "{:?}", rest.last());
    assert!(ids(&want).ends_with(&ids(&rest)) && ids(&rest).len() > 50);
}
