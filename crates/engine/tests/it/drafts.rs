//! Drafts from texts: they change no bits, and no part of the caches sees those of another.

use crate::checkpoints::{drafting, open, predicting, random, repeating};
use crate::determinism::collect;
use engine::metrics::DraftStats;
use engine::{
    Drafter, EngineHandle, EngineOptions, LoadOptions, Request, Runner, SamplingParams,
    SingleSequence, Speculate, start,
};
use formats::Checkpoint;

pub fn engine(checkpoint: &Checkpoint, speculate: Speculate, draft_memory: usize) -> EngineHandle {
    started(checkpoint, EngineOptions { speculate, draft_memory, ..EngineOptions::default() }, None)
}

/// An engine that drafts wherever it may, whatever its steps take, with a memory of texts and
/// prompts in chunks of so many tokens.
pub fn always(
    checkpoint: &Checkpoint,
    how: &str,
    draft_memory: usize,
    chunk: usize,
) -> EngineHandle {
    let (speculate, drafts_always) = (how.parse().unwrap(), true);
    let options =
        EngineOptions { speculate, drafts_always, draft_memory, ..EngineOptions::default() };
    started(checkpoint, options, Some(chunk))
}

fn started(checkpoint: &Checkpoint, options: EngineOptions, chunk: Option<usize>) -> EngineHandle {
    // Each sequence has spare blocks of its own.
    let (logit_rows, parallel) = (options.logit_rows(), options.running);
    let load = LoadOptions { logit_rows, parallel, chunk, ..LoadOptions::default() };
    start(Runner::load(checkpoint, &load).unwrap(), options).0
}

/// A request whose answer is of few tokens, so that runs of them come again.
pub fn request(seed: u64) -> Request {
    let sampling = SamplingParams {
        logit_bias: (0..4).map(|id| (id, 60.0)).collect(),
        temperature: if seed.is_multiple_of(2) { 0.0 } else { 0.8 },
        seed: Some(seed),
        ..SamplingParams::default()
    };
    Request {
        prompt: (0..30).map(|at| at * 7 % 5).collect(),
        sampling,
        max_tokens: Some(60),
        logprobs: Some(2),
        ..Request::default()
    }
}

pub fn of(engine: &EngineHandle, drafter: Drafter) -> DraftStats {
    engine.metrics.snapshot().drafts[drafter as usize]
}

#[test]
fn the_text_is_the_same_whoever_drafts() {
    for architecture in ["llama", "mistral", "qwen3_5"] {
        let (checkpoint, _folder) = random(architecture);
        let plain = engine(&checkpoint, Speculate::Off, 0);
        let answer =
            |engine: &EngineHandle, request: Request| collect(engine.submit(request).unwrap()).0;
        let want: Vec<_> = (0..4).map(|seed| answer(&plain, request(seed))).collect();
        let hows =
            [("auto", 0), ("auto:1", 0), ("suffix", 0), ("suffix:3", 1 << 20), ("ngram:5", 0)];
        for (how, memory) in hows {
            let engine = always(&checkpoint, how, memory, 512);
            for (seed, want) in (0..).zip(&want) {
                let wrong = Request { prediction: vec![1, 2, 3, 9, 0, 1], ..request(seed) };
                let right = Request { prediction: want.ids.clone(), ..request(seed) };
                let bound = Request { max_drafted: Some(2), ..request(seed) };
                for request in [request(seed), wrong, right, bound] {
                    assert_eq!(&answer(&engine, request), want, "{architecture}, {how}, {seed}");
                }
            }
            let drafter = match (how, memory) {
                ("ngram:5", _) => Drafter::Ngram,
                (_, 0) => Drafter::Prediction,
                _ => Drafter::Memory,
            };
            assert!(of(&engine, drafter).accepted > 0, "{architecture}, {how}");
        }
    }
}

#[test]
fn rows_of_drafters_depend_on_tokens_alone() {
    for (config, count) in predicting() {
        let (checkpoint, _folder) = drafting(&config, count, false);
        let mut runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
        let tokens: Vec<u32> = (0..75).map(|at| at * 13 % 97).collect();
        let want = drafted_bits(&mut runner, &tokens, (0, 64));
        assert!(want.iter().any(|bits| f32::from_bits(*bits).abs() > 0.1));
        for (cut, chunk) in [(0, 1), (0, 7), (33, 64), (64, 5), (74, 1)] {
            let found = drafted_bits(&mut runner, &tokens, (cut, chunk));
            assert_eq!(found, want, "{}, {count}: {cut}, {chunk}", config.architecture);
        }
    }
}

/// The bits of the logits of three drafted tokens, or of one for each of several layers, after
/// `tokens`, which are computed in chunks from the position `cut` on, after other tokens there
/// whose rows are dropped.
pub fn drafted_bits(runner: &mut Runner, tokens: &[u32], (cut, chunk): (usize, usize)) -> Vec<u32> {
    let inputs = match runner.draft_layers() {
        1 => &[5, 6, 7][..],
        layers => &[5, 6, 7][..layers],
    };
    let mut sequence = SingleSequence::new(runner);
    sequence.feed(&[&tokens[..cut], &[3; 20]].concat(), 64).unwrap();
    sequence.truncate(cut).unwrap();
    sequence.feed(&tokens[cut..], chunk).unwrap();
    let mut all = Vec::new();
    let each = |_, logits: &[f32], _: Option<&[u32]>| {
        all.extend(logits.iter().map(|logit| logit.to_bits()));
        Ok(())
    };
    sequence.draft(inputs, each).unwrap();
    all
}

/// Whether drafts of layers are right or not, and however many there are, the text is the same: in
/// one sequence, in several at once, after a prefix that was found, and without the layers.
#[test]
fn layers_of_the_model_draft_and_the_text_is_the_same() {
    let each = predicting()
        .into_iter()
        .flat_map(|(config, count)| [true, false].map(|right| (config.clone(), count, right)));
    for (config, count, right) in each {
        let (checkpoint, folder) = drafting(&config, count, right);
        let what = format!("{}, {count}, {right}", config.architecture);
        let plain = engine(&open(folder.path()), Speculate::Off, 0);
        let all = |engine: &EngineHandle| {
            let ask = |seed: u32| {
                let mut request = request(u64::from(seed));
                if right {
                    // What is likely is drafted, without a bias.
                    request.sampling.logit_bias.clear();
                    request.sampling.temperature = 0.0;
                    request.prompt.push(seed);
                }
                engine.submit(request).unwrap()
            };
            let streams: Vec<_> = (0..6).map(ask).collect();
            streams.into_iter().map(|stream| collect(stream).0.ids).collect::<Vec<_>>()
        };
        let want = all(&plain);
        for how in ["mtp", "mtp:1", "mtp:3", "auto", "off"] {
            let engine = match how {
                "auto" | "off" => engine(&checkpoint, how.parse().unwrap(), 0),
                _ => always(&checkpoint, how, 0, 512),
            };
            for _ in 0..2 {
                assert_eq!(all(&engine), want, "{what}, {how}");
            }
            let stats = of(&engine, Drafter::Mtp);
            match how {
                "off" => assert_eq!(stats.drafted, 0),
                "auto" => {}
                _ if right => {
                    assert!(2 * stats.accepted > stats.drafted, "{what}, {how}: {stats:?}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn tenants_do_not_share_suffixes() {
    let (checkpoint, _folder) = repeating();
    let engine = always(&checkpoint, "auto", 1 << 20, 512);
    let ask = |space: u8| {
        let request = Request { space: [space; 16], cold: true, ..request(1) };
        collect(engine.submit(request).unwrap()).0
    };
    let first = ask(1);
    assert_eq!(of(&engine, Drafter::Memory).drafted, 0);
    assert_eq!(ask(2), first);
    assert_eq!(of(&engine, Drafter::Memory).drafted, 0, "another part of the caches");
    assert_eq!(ask(1), first);
    assert!(of(&engine, Drafter::Memory).accepted > 0);
}
