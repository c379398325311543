//! Log probabilities of the tokens of a prompt.

use crate::checkpoints::{architectures, config, open, random, write};
use crate::determinism::block_bytes;
use backend::Mode;
use base::Rng;
use engine::{
    BLOCK, EngineHandle, EngineOptions, Event, Finished, KvMemory, LoadOptions, Outcome, Request,
    Runner, SamplingParams, SingleSequence, SubmitError, TokenLogprobs, start,
};
use formats::Checkpoint;
use std::thread::JoinHandle;
use std::time::Duration;

const TOP: usize = 3;

/// Ids of a prompt's tokens and their log probabilities.
type Logprobs = Vec<(u32, TokenLogprobs)>;

/// How a prompt is computed.
#[derive(Clone, Copy, Debug)]
struct Way {
    mode: Mode,
    chunk: usize,
    running: usize,
    logit_rows: usize,
    /// Blocks of the cache.
    blocks: usize,
}

const WAY: Way = Way { mode: Mode::Fast, chunk: 64, running: 4, logit_rows: 16, blocks: 64 };

impl Way {
    fn start(self, checkpoint: &Checkpoint) -> EngineHandle {
        self.launch(checkpoint).0
    }

    fn launch(self, checkpoint: &Checkpoint) -> (EngineHandle, JoinHandle<()>) {
        let Self { mode, chunk, running, logit_rows, blocks } = self;
        let load = LoadOptions {
            mode,
            chunk: Some(chunk),
            logit_rows,
            threads: 2,
            ..LoadOptions::default()
        };
        let bytes = block_bytes(checkpoint, BLOCK, mode);
        let load = LoadOptions { kv_memory: KvMemory::Bytes(bytes * blocks), ..load };
        let options = EngineOptions { running, ..EngineOptions::default() };
        start(Runner::load(checkpoint, &load).unwrap(), options)
    }
}

fn prompt(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + i / 7 + seed) % 131).collect()
}

fn request(prompt: Vec<u32>, max_tokens: usize) -> Request {
    Request {
        prompt,
        max_tokens: Some(max_tokens),
        prompt_logprobs: Some(TOP),
        sampling: SamplingParams { temperature: 0.9, seed: Some(1), ..Default::default() },
        ..Request::default()
    }
}

/// Log probabilities of the prompt's tokens from the second on, what was generated, and the end.
fn collect(generation: engine::Generation) -> (Logprobs, Vec<u32>, Finished) {
    collect_from(generation, 1)
}

/// As [`collect`], of the tokens from the one with this index on.
fn collect_from(mut generation: engine::Generation, from: usize) -> (Logprobs, Vec<u32>, Finished) {
    let (mut all, mut ids) = (Vec::new(), Vec::new());
    loop {
        match generation.next_blocking().expect("an end") {
            Event::PromptLogprobs { first, tokens } => {
                assert_eq!(first, all.len() + from, "each comes once, in order");
                assert!(ids.is_empty() && !tokens.is_empty());
                all.extend(tokens);
            }
            Event::Token { id, .. } => ids.push(id),
            Event::Finished(finished) => return (all, ids, finished),
            Event::Admitted { .. } | Event::Prefill { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

fn ask(engine: &EngineHandle, request: Request) -> (Logprobs, Vec<u32>, Finished) {
    collect(engine.submit(request).unwrap())
}

/// Log probabilities that logits give the token that follows.
fn log_probability(logits: &[f32], id: u32) -> f64 {
    let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
    f64::from(logits[id as usize]) - total.ln()
}

#[test]
fn log_probabilities_of_a_prompt_are_those_of_its_logits() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        let prompt = prompt(70, 0);
        let options = LoadOptions { mode: Mode::Exact, context: Some(128), ..Default::default() };
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        let mut want = Vec::new();
        SingleSequence::new(&mut runner)
            .feed_all(&prompt, |at, logits| {
                let next = prompt.get(at + 1);
                let best = (0..131u32).max_by(|a, b| {
                    logits[*a as usize].total_cmp(&logits[*b as usize]).then(b.cmp(a))
                });
                want.extend(next.map(|id| (log_probability(logits, *id), best.unwrap())));
                Ok(())
            })
            .unwrap();
        let engine = Way { mode: Mode::Exact, ..WAY }.start(&checkpoint);
        let (found, ids, finished) = ask(&engine, request(prompt.clone(), 0));
        assert_eq!((found.len(), want.len(), ids.len()), (69, 69, 0), "{architecture}");
        assert!(found.iter().map(|(id, _)| id).eq(&prompt[1..]), "{architecture}");
        for ((_, found), (logprob, best)) in found.iter().zip(want) {
            assert!((f64::from(found.logprob) - logprob).abs() < 1e-5, "{architecture}");
            assert_eq!((found.top.len(), found.top[0].0), (TOP, best), "{architecture}");
        }
        assert_eq!(finished.outcome, Outcome::Length);
        assert_eq!((finished.usage.completion_tokens, finished.usage.cached_tokens), (0, 0));
    }
}

#[test]
fn log_probabilities_of_a_prompt_keep_their_bits() {
    let mut rng = Rng::new(3);
    for architecture in ["qwen3", "mistral", "deepseek_v2"] {
        let (checkpoint, _folder) = random(architecture);
        let requests: Vec<_> = (0..12u32)
            .map(|i| request(prompt(20 + 11 * i as usize, i % 3), i as usize % 5 * 9))
            .collect();
        let alone = |request: &Request| ask(&WAY.start(&checkpoint), request.clone());
        let want: Vec<_> = requests.iter().map(alone).collect();
        for way in [
            Way { chunk: 5, ..WAY },
            // No row of logits but that of each sequence.
            Way { logit_rows: 4, ..WAY },
            Way { chunk: 512, logit_rows: 300, ..WAY },
            // Blocks for hardly two sequences.
            Way { blocks: 8, running: 8, ..WAY },
        ] {
            let engine = way.start(&checkpoint);
            // The second time, the cache is warm.
            for time in 0..2 {
                // Submitted while steps run, so that requests meet in many ways.
                let submit = |request: &Request| {
                    std::thread::sleep(Duration::from_micros(rng.below(3000)));
                    engine.submit(request.clone()).unwrap()
                };
                let generations: Vec<_> = requests.iter().map(submit).collect();
                for (generation, want) in generations.into_iter().zip(&want) {
                    let (logprobs, ids, finished) = collect(generation);
                    assert!(
                        (&logprobs, &ids) == (&want.0, &want.1),
                        "{architecture} {way:?} {time}"
                    );
                    assert_eq!(finished.usage.cached_tokens, 0);
                }
            }
        }
    }
}

#[test]
fn likelihoods_from_a_position_equal_whole_ones() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        for way in [WAY, Way { chunk: 5, logit_rows: 4, ..WAY }] {
            let engine = way.start(&checkpoint);
            let (whole, ids, _) = ask(&engine, request(prompt(70, 0), 3));
            for from in [0, 1, 2, 31, 32, 33, 69] {
                let later = Request { prompt_logprobs_from: from, ..request(prompt(70, 0), 3) };
                let from = from.max(1);
                let (found, made, finished) = collect_from(engine.submit(later).unwrap(), from);
                assert!(found == whole[from - 1..], "{architecture} {way:?} {from}");
                assert_eq!(made, ids, "{architecture} {way:?} {from}");
                assert!(finished.usage.cached_tokens < from, "{architecture} {way:?} {from}");
            }
        }
    }
}

#[test]
fn a_context_is_computed_once() {
    let (checkpoint, _folder) = random("qwen3");
    let engine = WAY.start(&checkpoint);
    let context = prompt(96, 0);
    let choice = |choice: u32| Request {
        prompt_logprobs_from: context.len(),
        ..request([&context[..], &[choice, 7, 9]].concat(), 0)
    };
    // All at once, as evaluations ask.
    let generations: Vec<_> = (0..4).map(|it| engine.submit(choice(it)).unwrap()).collect();
    let computed = generations.into_iter().map(|generation| {
        let (found, _, finished) = collect_from(generation, context.len());
        assert_eq!(found.len(), 3);
        finished.usage.prompt_tokens - finished.usage.cached_tokens
    });
    // The row of the context's last token gives the likelihood of the first one of the choice.
    let (contexts, choices) = (context.len(), 4 * 3);
    assert!(computed.sum::<usize>() <= contexts + choices + 3 * BLOCK);
}

#[test]
fn positions_without_log_probabilities_are_refused() {
    let (checkpoint, _folder) = random("qwen3");
    let engine = WAY.start(&checkpoint);
    let from = |from| Request { prompt_logprobs_from: from, ..request(prompt(5, 0), 0) };
    assert!(engine.check(&from(4)).is_ok());
    let refused = engine.check(&from(5)).unwrap_err().to_string();
    assert_eq!(refused, "prompt_logprobs_from must be below the 5 tokens of the prompt, not 5");
    let unasked = Request { prompt_logprobs: None, ..from(1) };
    let refused = engine.check(&unasked).unwrap_err().to_string();
    assert_eq!(refused, "prompt_logprobs_from needs log probabilities of the prompt");
}

#[test]
fn a_prompt_whose_logits_were_wanted_is_in_the_cache_once() {
    let (checkpoint, _folder) = random("qwen3");
    let (engine, thread) = WAY.launch(&checkpoint);
    let plain = Request { prompt_logprobs: None, ..request(prompt(100, 0), 1) };
    ask(&engine, plain.clone());
    ask(&engine, request(prompt(100, 0), 1));
    assert_eq!(ask(&engine, plain).2.usage.cached_tokens, 99);
    let metrics = engine.metrics.clone();
    drop(engine);
    thread.join().unwrap();
    assert_eq!(metrics.snapshot().blocks[0].cached, 4, "three blocks and a tail");
}

#[test]
fn a_prompt_without_an_answer_may_fill_the_context() {
    let (checkpoint, _folder) = random("llama");
    let engine = Way { blocks: 8, ..WAY }.start(&checkpoint);
    assert_eq!(ask(&engine, request(prompt(256, 0), 0)).0.len(), 255);
    assert_eq!(ask(&engine, request(prompt(1, 0), 0)).0, []);
    let refused = engine.submit(request(prompt(256, 0), 1)).unwrap_err();
    assert!(matches!(refused, SubmitError::ContextLength { .. }));
    let nothing = Request { prompt_logprobs: None, ..request(prompt(5, 0), 0) };
    assert!(ask(&engine, nothing).1.is_empty());
}

#[test]
fn logits_of_a_prompt_that_are_not_finite_end_the_request() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("llama"), |name, values| {
        if name == "token_embd.weight" {
            values[7 * 72] = f32::NAN;
        }
    });
    let engine = WAY.start(&open(folder.path()));
    let mut generation = engine.submit(request(vec![1, 7, 2, 3], 0)).unwrap();
    let events: Vec<_> = std::iter::from_fn(|| generation.next_blocking()).collect();
    assert!(
        matches!(events.last(), Some(Event::Finished(Finished { outcome: Outcome::Failed(text), .. })) if text.contains("NaN")),
        "{events:?}"
    );
}

/// The rows of logits of a prompt, one after the other, and the end.
fn logits(engine: &EngineHandle, prompt: Vec<u32>) -> (Vec<f32>, Finished) {
    let request = Request { prompt, logits: true, ..Request::default() };
    let (mut generation, mut rows) = (engine.submit(request).unwrap(), Vec::new());
    loop {
        match generation.next_blocking().expect("an end") {
            Event::Logits(more) => rows.extend(more),
            Event::Finished(finished) => return (rows, finished),
            Event::Admitted { .. } | Event::Prefill { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn logits_of_a_prompt_are_those_of_each_position_in_every_chunking() {
    for architecture in ["qwen3", "deepseek_v2", "qwen3_next"] {
        let (checkpoint, _folder) = random(architecture);
        let prompt = prompt(70, 2);
        let options = LoadOptions { mode: Mode::Fast, context: Some(128), ..Default::default() };
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        let mut want = Vec::new();
        let each = |_, logits: &[f32]| {
            want.extend_from_slice(logits);
            Ok(())
        };
        SingleSequence::new(&mut runner).feed_all(&prompt, each).unwrap();
        for way in [WAY, Way { chunk: 5, ..WAY }, Way { logit_rows: 4, running: 2, ..WAY }] {
            let engine = way.start(&checkpoint);
            // The second time, the cache has the prompt.
            for _ in 0..2 {
                let (found, finished) = logits(&engine, prompt.clone());
                assert!(found == want, "{architecture} {way:?}: {}", found.len());
                assert_eq!(finished.outcome, Outcome::Complete);
                assert_eq!(finished.usage.completion_tokens, 0);
            }
        }
    }
}

#[test]
fn logits_are_requested_without_other_outputs() {
    let (checkpoint, _folder) = random("qwen3");
    let engine = WAY.start(&checkpoint);
    let plain = || Request { prompt: vec![1, 2], logits: true, ..Request::default() };
    let check = |request: Request, expected: &str| {
        assert_eq!(engine.check(&request).unwrap_err().to_string(), expected);
    };
    check(
        Request { prompt_logprobs: Some(0), ..plain() },
        "logits and prompt log probabilities cannot be requested together",
    );
    check(
        Request { embed: Some(engine::Embed::default()), ..plain() },
        "an embedding and logits cannot be requested together",
    );
}
