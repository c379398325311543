//! Sequences that their callers lead.

use crate::checkpoints::{architectures, random};
use engine::{
    EngineHandle, EngineOptions, Event, Generation, LeadOptions, Led, LedError, LoadOptions,
    Outputs, Request, Runner, SamplingParams, TokenSampler, Want, start,
};
use std::thread::JoinHandle;
use std::time::Duration;

const TOKENS: usize = 70;

struct Running {
    handle: EngineHandle,
    thread: JoinHandle<()>,
}

/// An engine of four sequences, in steps of few rows. Its cache holds one of full length.
fn engine(architecture: &str) -> Running {
    let (checkpoint, _folder) = random(architecture);
    let options = LoadOptions {
        threads: 2,
        parallel: 4,
        chunk: Some(24),
        context: Some(160),
        ..LoadOptions::default()
    };
    let runner = Runner::load(&checkpoint, &options).unwrap();
    let (handle, thread) = start(runner, EngineOptions { running: 4, ..EngineOptions::default() });
    Running { handle, thread }
}

fn tokens(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|at| (at * 37 + seed * 11 + at * at % 7) % 131).collect()
}

fn bits(outputs: &Outputs) -> Vec<Vec<u32>> {
    outputs.rows().map(|row| row.iter().map(|value| value.to_bits()).collect()).collect()
}

/// The logits of every token of a prompt, as a request computes them.
fn served(engine: &EngineHandle, prompt: &[u32]) -> Vec<Vec<u32>> {
    let request = Request { prompt: prompt.to_vec(), logits: true, ..Request::default() };
    let mut generation = engine.submit(request).unwrap();
    let mut values: Vec<u32> = Vec::new();
    while let Some(event) = generation.next_blocking() {
        if let Event::Logits(rows) = event {
            values.extend(rows.iter().map(|value| value.to_bits()));
        }
    }
    let rows = values.chunks_exact(engine.info.vocab_size).map(<[u32]>::to_vec);
    rows.collect()
}

fn ids(mut generation: Generation) -> Vec<u32> {
    let mut ids = Vec::new();
    while let Some(event) = generation.next_blocking() {
        if let Event::Token { id, .. } = event {
            ids.push(id);
        }
    }
    ids
}

/// Pushes `tokens` in pieces and returns the bits of all rows.
fn push_in_pieces(led: &mut Led, tokens: &[u32], piece: usize) -> Vec<Vec<u32>> {
    let pieces = tokens.chunks(piece);
    pieces.flat_map(|piece| bits(&led.push(piece, Want::All).unwrap())).collect()
}

#[test]
fn a_led_sequence_has_the_bits_of_a_served_one() {
    for architecture in architectures() {
        let engine = engine(architecture);
        if engine.handle.info.task != Default::default() {
            continue;
        }
        let prompt = tokens(1, TOKENS);
        let want = served(&engine.handle, &prompt);
        // Others are computed meanwhile.
        let request =
            |seed| Request { prompt: tokens(seed, 9), max_tokens: Some(60), ..Request::default() };
        let _others = [2, 3].map(|seed| engine.handle.submit(request(seed)).unwrap());
        let space = [7; 16];
        let lead = || engine.handle.lead(LeadOptions { space, ..LeadOptions::default() });
        let mut first = lead();
        assert_eq!(push_in_pieces(&mut first, &prompt[..50], 11), want[..50], "{architecture}");
        let mut second = first.fork().unwrap();
        second.start(&prompt[50..], Want::All).unwrap();
        let rest = push_in_pieces(&mut first, &prompt[50..], 1);
        assert_eq!(rest, want[50..], "{architecture}");
        assert_eq!(bits(&second.wait().unwrap()), want[50..], "{architecture}");
        first.truncate(33).unwrap();
        assert_eq!(first.tokens(), &prompt[..33]);
        let last = first.push(&prompt[33..60], Want::Last).unwrap();
        assert_eq!(bits(&last), want[59..60], "{architecture}");
        assert_eq!(first.push(&prompt[60..69], Want::Nothing).unwrap().rows().len(), 0);
        assert_eq!(bits(&first.push(&prompt[69..], Want::Last).unwrap()), want[69..]);
    }
}

#[test]
fn hidden_states_do_not_depend_on_pieces() {
    let engine = engine("qwen3");
    let prompt = tokens(1, 40);
    let hidden = |piece: usize| {
        let mut led = engine.handle.lead(LeadOptions { space: [1; 16], ..Default::default() });
        let push = |piece| bits(&led.push(piece, Want::Hidden).unwrap());
        prompt.chunks(piece).flat_map(push).collect::<Vec<_>>()
    };
    let whole = hidden(40);
    assert_eq!((whole.len(), whole[0].len()), (40, engine.handle.info.hidden_size));
    assert!([1, 7].into_iter().all(|piece| hidden(piece) == whole));
}

#[test]
fn a_sampler_chooses_as_the_engine_does() {
    let engine = engine("qwen3");
    let sampling = SamplingParams {
        temperature: 0.8,
        top_p: 0.95,
        repeat_penalty: 1.2,
        seed: Some(9),
        ..SamplingParams::default()
    };
    let prompt = tokens(4, 21);
    let request = Request {
        prompt: prompt.clone(),
        sampling: sampling.clone(),
        max_tokens: Some(25),
        ..Request::default()
    };
    let want = ids(engine.handle.submit(request).unwrap());
    let mut sampler = TokenSampler::new(sampling, engine.handle.info.vocab_size).unwrap();
    let mut led = engine.handle.lead(LeadOptions::default());
    let mut next = prompt.clone();
    while led.len() + next.len() < prompt.len() + want.len() {
        let outputs = led.push(&next, Want::Last).unwrap();
        let logits = outputs.into_values();
        next = vec![sampler.choose(led.tokens(), prompt.len(), &logits, None).unwrap()];
    }
    let chosen = [&led.tokens()[prompt.len()..], &next].concat();
    assert_eq!(chosen, want);
}

#[test]
fn a_caller_who_never_returns_holds_nobody() {
    let engine = engine("qwen3");
    let lead = |seed| {
        let mut led = engine.handle.lead(LeadOptions::default());
        led.push(&tokens(seed, 100), Want::Last).unwrap();
        led
    };
    // Together they hold more than the cache has, and so does each with a request.
    let mut led: Vec<_> = (0..6).map(lead).collect();
    for seed in 10..13 {
        let request =
            Request { prompt: tokens(seed, 110), max_tokens: Some(20), ..Request::default() };
        assert_eq!(ids(engine.handle.submit(request).unwrap()).len(), 20);
    }
    // They have lost their blocks, and go on.
    let outputs = led[0].push(&[5], Want::Last).unwrap();
    let whole = [tokens(0, 100), vec![5]].concat();
    assert_eq!(bits(&outputs), served(&engine.handle, &whole)[100..]);
}

#[test]
fn a_caller_who_comes_back_late_gets_an_error_and_may_go_on() {
    let engine = engine("qwen3");
    let idle = Duration::from_millis(20);
    let mut led = engine.handle.lead(LeadOptions { idle, ..LeadOptions::default() });
    let prompt = tokens(1, 30);
    led.push(&prompt[..20], Want::Nothing).unwrap();
    std::thread::sleep(2 * idle);
    assert_eq!(led.push(&prompt[20..], Want::Last), Err(LedError::Idle(idle)));
    assert_eq!(led.tokens(), &prompt[..20]);
    let outputs = led.push(&prompt[20..], Want::Last).unwrap();
    assert_eq!(bits(&outputs), served(&engine.handle, &prompt)[29..]);
}

#[test]
fn sequences_that_are_pushed_to_together_share_every_step() {
    let (engine, other) = (engine("qwen3").handle, engine("qwen3").handle);
    let mut several = [(); 3].map(|()| engine.lead(LeadOptions::default()));
    let before = engine.metrics.snapshot().steps;
    for id in 1..20 {
        let ids = [id];
        let pushes = several.iter_mut().map(|led| (led, &ids[..], Want::Last));
        Led::start_together(pushes).unwrap();
        let rows = several.each_mut().map(|led| bits(&led.wait().unwrap()));
        assert!(rows.iter().all(|row| *row == rows[0]));
    }
    let steps = engine.metrics.snapshot().steps - before;
    assert!(steps <= 19, "{steps} steps");
    let ids: Vec<u32> = (1..21).collect();
    let row = bits(&several[0].push(&[20], Want::Last).unwrap());
    assert_eq!(served(&engine, &ids)[19..], row);

    let mut foreign = other.lead(LeadOptions::default());
    let own = &mut several[1];
    let mut error = |second: &[u32]| {
        let pushes = [(&mut *own, &[1][..], Want::Last), (&mut foreign, second, Want::Last)];
        Led::start_together(pushes).unwrap_err().to_string()
    };
    assert_eq!(error(&[2]), "the sequences are of different engines");
    assert_eq!(error(&[]), "a push needs at least one token");
    assert_eq!((own.len(), foreign.len()), (19, 0), "nothing was pushed");
}

#[test]
fn what_cannot_be_pushed_is_an_error_and_changes_nothing() {
    let engine = engine("qwen3");
    let mut led =
        engine.handle.lead(LeadOptions { max_tokens: Some(10), ..LeadOptions::default() });
    let message = |result: Result<Outputs, LedError>| result.unwrap_err().to_string();
    assert_eq!(message(led.wait()), "nothing was pushed");
    assert_eq!(message(led.push(&[], Want::Last)), "a push needs at least one token");
    let unknown = "token id 131 is pushed, but the model has 131 tokens";
    assert_eq!(message(led.push(&[131], Want::Last)), unknown);
    let long = message(led.push(&[1; 11], Want::Last));
    assert_eq!(long, "a sequence of 11 tokens exceeds its limit of 10");
    led.start(&[1; 9], Want::Last).unwrap();
    assert_eq!(message(led.push(&[1], Want::Last)), "the push before is not complete");
    assert!(led.truncate(3).is_err() && led.fork().is_err());
    led.wait().unwrap();
    let short = led.truncate(10).unwrap_err().to_string();
    assert_eq!(short, "a sequence of 9 tokens has no first 10");
    assert_eq!(led.push(&[1], Want::Last).unwrap().rows().len(), 1);
    led.truncate(0).unwrap();
    assert!(led.is_empty() && led.push(&[1, 2], Want::All).unwrap().rows().len() == 2);
}

#[test]
fn encoders_have_no_led_sequences() {
    let engine = engine("bert");
    let mut led = engine.handle.lead(LeadOptions::default());
    let problem = "a model that reads whole texts has no sequences that grow".to_owned();
    assert_eq!(led.push(&[1, 2], Want::Hidden), Err(LedError::Failed(problem)));
}

#[test]
fn an_engine_ends_with_its_last_led_sequence() {
    let Running { handle, thread } = engine("qwen3");
    let mut led = handle.lead(LeadOptions::default());
    drop(handle);
    led.push(&[1, 2, 3], Want::Last).unwrap();
    assert!(!thread.is_finished());
    // A push whose outputs nobody waits for ends too.
    led.start(&tokens(1, 50), Want::All).unwrap();
    drop(led);
    thread.join().unwrap();
}
