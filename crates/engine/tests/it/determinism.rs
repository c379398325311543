//! The same request gives the same bits, whatever else the engine does: alone, in a batch, after
//! preemption, from a warm cache, in chunks of any size, on any number of threads, with or without
//! drafts.

use crate::checkpoints::{config, least, open, random, random_of, repeating, write};
use crate::constraints::{Steered, Toy};
use crate::devices::test_gpu;
use crate::kinds::has_states;
use backend::{DeviceChoice, Mode};
use base::Rng;
use engine::{
    EngineHandle, EngineOptions, Event, Finished, Generation, KvMemory, LoadOptions, Outcome,
    Request, Runner, SamplingParams, Speculate, WeightsMemory, start,
};
use formats::Checkpoint;
use formats::layers::RopeScaling;

const REQUESTS: usize = 64;

/// An answer with all its bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub ids: Vec<u32>,
    /// Log probability of each id and of the best alternatives.
    logprobs: Vec<Vec<(u32, u32)>>,
    pub outcome: Outcome,
}

/// Prompts of all lengths, some of which begin alike; greedy and sampled; with stops and without.
pub fn requests() -> Vec<Request> {
    let mut rng = Rng::new(99);
    let mut random = |len: usize| (0..len).map(|_| rng.below(131) as u32).collect::<Vec<_>>();
    let families: Vec<Vec<u32>> = (0..4).map(|_| random(100)).collect();
    (0..REQUESTS)
        .map(|i| {
            let shared = &families[i % 4][..(i * 13) % 90];
            let prompt = [shared, &random(1 + (i * 7) % 23)].concat();
            let temperature = if i % 3 == 0 { 0.0 } else { 1.1 };
            Request {
                prompt,
                sampling: SamplingParams {
                    temperature,
                    seed: Some(i as u64),
                    repeat_penalty: if i % 5 == 0 { 1.2 } else { 1.0 },
                    top_p: 0.97,
                    ..SamplingParams::default()
                },
                max_tokens: Some(8 + (i * 11) % 60),
                stop_ids: if i % 2 == 0 { vec![(i % 131) as u32] } else { Vec::new() },
                min_tokens: 3,
                logprobs: Some(2),
                sampled_logprobs: i % 7 == 0,
                constraint: match i % 6 {
                    1 => Some(Toy { length: 40, ..Toy::of(i) }.grammar()),
                    2 => Some(Steered::grammar(|id| id % 3 == 0)),
                    4 => Some(Toy { length: 40, steers: true, ..Toy::of(i) }.grammar()),
                    _ => None,
                },
                ..Request::default()
            }
        })
        .collect()
}

/// Whether the cache is more than one group of rows.
fn has_windows_or_states(checkpoint: &Checkpoint) -> bool {
    let config = checkpoint.config();
    let differ = config
        .hyperparameters()
        .windows
        .iter()
        .any(|window| *window != config.hyperparameters().windows[0]);
    let apart =
        config.hyperparameters().compressed.is_some() || config.hyperparameters().convs.is_some();
    differ || has_states(config) || apart
}

/// Tokens of the longest request with its answer, and some.
const MAX_TOKENS: usize = 192;

/// How the requests are submitted.
#[derive(Clone, Debug)]
struct Way {
    device: DeviceChoice,
    mode: Mode,
    threads: usize,
    chunk: usize,
    /// Requests at once.
    company: usize,
    running: usize,
    /// KV blocks of sixteen positions.
    blocks: usize,
    /// Tokens from one snapshot of states to the next.
    state_every: usize,
    speculate: Speculate,
    weights_memory: WeightsMemory,
}

impl Way {
    fn alone(mode: Mode) -> Self {
        Self {
            device: DeviceChoice::default(),
            mode,
            threads: 1,
            chunk: 64,
            company: 1,
            running: 16,
            blocks: 16 * 16,
            state_every: 0,
            speculate: Speculate::Off,
            weights_memory: WeightsMemory::All,
        }
    }

    fn start(&self, checkpoint: &Checkpoint) -> EngineHandle {
        let runner = Runner::load(checkpoint, &self.load_options(checkpoint)).unwrap();
        start(runner, self.engine_options()).0
    }

    fn engine_options(&self) -> EngineOptions {
        let speculate = self.speculate;
        EngineOptions { running: self.running, speculate, ..EngineOptions::default() }
    }

    fn load_options(&self, checkpoint: &Checkpoint) -> LoadOptions {
        let bytes = block_bytes(checkpoint, 16, self.mode);
        LoadOptions {
            device: self.device.clone(),
            mode: self.mode,
            threads: self.threads,
            chunk: Some(self.chunk),
            block: 16,
            logit_rows: self.engine_options().logit_rows(),
            kv_memory: KvMemory::Bytes(bytes * self.blocks),
            weights_memory: self.weights_memory,
            weights_read_threads: 2,
            state_every: self.state_every,
            parallel: self.running,
            context: has_windows_or_states(checkpoint).then_some(MAX_TOKENS),
            ..LoadOptions::default()
        }
    }

    /// The answers in order of the requests, and what the engine counted.
    fn answers(&self, engine: &EngineHandle, requests: &[Request]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for group in requests.chunks(self.company) {
            let submit = |request: &Request| engine.submit(request.clone()).unwrap();
            let generations: Vec<_> = group.iter().map(submit).collect();
            answers.extend(generations.into_iter().map(|generation| collect(generation).0));
        }
        answers
    }
}

/// Bytes of a block of `block` positions of all cached rows.
pub fn block_bytes(checkpoint: &Checkpoint, block: usize, mode: Mode) -> usize {
    let layers = models::layer_caches(checkpoint.config(), mode == Mode::Fast);
    layers.iter().map(|layer| layer.bytes(block, mode.default_kv_type())).sum()
}

/// A whole answer, of a request for log probabilities.
pub fn collect(mut generation: Generation) -> (Answer, Finished) {
    let (mut ids, mut bits) = (Vec::new(), Vec::new());
    loop {
        match generation.next_blocking().expect("an end") {
            Event::Token { id, logprobs } => {
                let logprobs = logprobs.unwrap();
                let top = logprobs.top.iter().map(|(id, value)| (*id, value.to_bits()));
                bits.push(std::iter::once((id, logprobs.logprob.to_bits())).chain(top).collect());
                ids.push(id);
            }
            Event::Finished(finished) => {
                return (
                    Answer { ids, logprobs: bits, outcome: finished.outcome.clone() },
                    finished,
                );
            }
            Event::Admitted { .. } | Event::Prefill { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The answers of the requests one by one, each on a new engine.
fn reference(checkpoint: &Checkpoint, mode: Mode, requests: &[Request]) -> Vec<Answer> {
    let way = Way::alone(mode);
    requests
        .iter()
        .flat_map(|request| way.answers(&way.start(checkpoint), std::slice::from_ref(request)))
        .collect()
}

/// Every other way must give the same.
fn check_ways(architecture: &str, mode: Mode, ways: &[Way]) {
    let (checkpoint, _folder) = random(architecture);
    let requests = requests();
    let want = reference(&checkpoint, mode, &requests);
    check_against(&checkpoint, (&requests, &want), ways);
}

/// Every way must give these answers.
fn check_against(checkpoint: &Checkpoint, wanted: (&[Request], &[Answer]), ways: &[Way]) {
    let ((requests, want), architecture) = (wanted, &checkpoint.config().architecture);
    // Preemptions of the ways with few blocks, where there are any.
    let mut preempted = None;
    for way in ways {
        let engine = way.start(checkpoint);
        // The second time, the cache is warm.
        for time in 0..2 {
            let got = way.answers(&engine, requests);
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                assert_eq!(got, want, "{architecture}, request {i}, time {time}: {way:?}");
            }
        }
        let stats = engine.metrics.snapshot();
        // With states, a prefix needs a snapshot beside its blocks.
        let few = way.blocks < 32 && has_windows_or_states(checkpoint);
        assert!(few || stats.cache_hits > 0, "nothing was found in the cache: {way:?}");
        // Blocks behind a window are freed before other sequences run out of blocks.
        let all_kept = checkpoint.config().hyperparameters().windows.contains(&None);
        if all_kept && way.blocks < 32 && way.company > 16 {
            *preempted.get_or_insert(0) += stats.preemptions;
        }
        // Other drafters verify as many as pay, which may be none.
        if matches!(way.speculate, Speculate::Ngram(_)) {
            assert!(stats.drafted() > 0, "nothing was drafted: {way:?}");
        }
    }
    assert_ne!(preempted, Some(0), "{architecture}: no way preempted a sequence: {ways:?}");
}

/// Every way must give the same on a GPU, if this machine has one for tests. Opening one takes
/// long, so one engine computes the requests one by one, the first time with an empty cache. More
/// than sixteen together are needed for [`check_against`] to require preemptions.
fn check_ways_on_a_gpu(architecture: &str, mode: Mode) {
    let Some(device) = test_gpu() else { return };
    let (checkpoint, _folder) = random(architecture);
    const TOGETHER: usize = 17;
    let requests = &requests()[..TOGETHER];
    let alone = Way { device: device.clone(), ..Way::alone(mode) };
    let want = alone.answers(&alone.start(&checkpoint), requests);
    let ways = [
        Way { company: TOGETHER, blocks: 14, running: TOGETHER, ..alone.clone() },
        Way { company: 5, chunk: 7, speculate: Speculate::Ngram(3), ..alone },
    ];
    check_against(&checkpoint, (requests, &want), &ways);
}

fn ways(mode: Mode) -> Vec<Way> {
    let alone = Way::alone(mode);
    let mut ways = vec![
        Way { company: 8, ..alone.clone() },
        Way { company: 32, blocks: 14, running: 32, threads: 2, ..alone.clone() },
        Way { company: 16, speculate: Speculate::Ngram(4), ..alone.clone() },
        Way { company: 32, blocks: 14, speculate: Speculate::Suffix(5), ..alone.clone() },
        Way { company: 4, speculate: Speculate::default(), ..alone.clone() },
    ];
    for chunk in [1, 7, 64, 512] {
        ways.push(Way { chunk, threads: 1 + chunk % 2, company: 5, ..alone.clone() });
    }
    ways
}

#[test]
fn the_same_request_gives_the_same_bits_in_fast_mode() {
    check_ways("qwen3", Mode::Fast, &ways(Mode::Fast));
}

#[test]
fn the_same_request_gives_the_same_bits_in_exact_mode() {
    check_ways("llama", Mode::Exact, &ways(Mode::Exact));
}

#[test]
fn the_same_request_gives_the_same_bits_on_a_gpu() {
    check_ways_on_a_gpu("qwen3", Mode::Fast);
    check_ways_on_a_gpu("llama", Mode::Exact);
}

#[test]
fn a_sliding_window_lets_blocks_go_and_changes_no_bits() {
    check_ways("mistral", Mode::Fast, &ways(Mode::Fast));
}

/// With states, guesses wait to be folded, and sequences continue from snapshots.
#[test]
fn n_gram_drafts_change_no_text_with_states() {
    check_ways("qwen3_5", Mode::Fast, &ways(Mode::Fast));
    check_ways("qwen3_next", Mode::Exact, &ways(Mode::Exact)[2..6]);
}

/// Snapshots within chunks and between them, while other sequences run and are preempted.
#[test]
fn snapshots_do_not_change_bits() {
    let every = |state_every| Way { state_every, company: 8, ..Way::alone(Mode::Fast) };
    let drafts = Way { speculate: Speculate::Ngram(3), ..every(30) };
    let few = Way { company: 32, running: 32, blocks: 14, ..every(16) };
    check_ways("qwen3_5", Mode::Fast, &[every(24), every(50), every(64), drafts, few]);
}

/// Rows of several windows are shared, copied, evicted and computed again.
#[test]
fn rows_with_windows_change_no_bits() {
    check_ways("deepseek_v4", Mode::Fast, &ways(Mode::Fast)[..6]);
    check_ways("gpt_oss", Mode::Exact, &ways(Mode::Exact)[..4]);
}

/// Some requests may grow beyond the original context, and have other rotary frequencies: their
/// blocks are not those of requests that begin alike and stay shorter.
#[test]
fn long_sequences_change_no_bits_of_short_ones() {
    let folder = tempfile::tempdir().unwrap();
    let changed = config("phi3").with(|said| {
        if let RopeScaling::LongRope { original_context, .. } = &mut said.rope.scaling {
            *original_context = 64;
        }
    });
    write(folder.path(), &changed, |_, _| {});
    let checkpoint = open(folder.path());
    let (requests, mode) = (&requests()[..48], Mode::Fast);
    let want = reference(&checkpoint, mode, requests);
    check_against(&checkpoint, (requests, &want), &ways(mode)[..5]);
    let engine = Way::alone(Mode::Fast).start(&checkpoint);
    let ask = |max_tokens| Request {
        max_tokens: Some(max_tokens),
        logprobs: Some(0),
        ..Request { prompt: (0..40).collect(), ..Request::default() }
    };
    let cached =
        |max_tokens| collect(engine.submit(ask(max_tokens)).unwrap()).1.usage.cached_tokens;
    assert_eq!([2, 24, 25, 60, 3].map(cached), [0, 39, 0, 39, 39]);
}

/// Layers attend to the keys and values of earlier ones, some of which have a window.
#[test]
fn shared_keys_and_values_change_no_bits() {
    for (layers, mode) in [(3, Mode::Fast), (5, Mode::Exact)] {
        let (checkpoint, _folder) = random_of("gemma4", layers);
        assert_eq!(checkpoint.config().hyperparameters().shared_kv_layers, 1);
        let requests = &requests()[..32];
        let want = reference(&checkpoint, mode, requests);
        check_against(&checkpoint, (requests, &want), &ways(mode)[..5]);
    }
}

/// The layer in the middle attends to the positions that the first chooses.
#[test]
fn shared_choices_of_positions_change_no_bits() {
    let (checkpoint, _folder) = random_of("glm_moe_dsa", 3);
    let index =
        checkpoint.config().hyperparameters().index.as_ref().expect("the family has an index");
    assert_eq!(index.layers, [true, false, true]);
    let (requests, mode) = (&requests()[..32], Mode::Exact);
    let want = reference(&checkpoint, mode, requests);
    check_against(&checkpoint, (requests, &want), &ways(mode)[..5]);
}

/// Of the last layers, one attends to the latent rows of the first and to positions that the layer
/// before it chooses, one to the rows of the first and to positions of its own choice.
#[test]
fn shared_latent_rows_change_no_bits() {
    for (layers, mode) in [(3, Mode::Fast), (5, Mode::Exact)] {
        let (checkpoint, _folder) = random_of("mistral_large4", layers);
        let sources = checkpoint.config().hyperparameters().kv_sources.as_ref();
        assert_eq!(sources.expect("shared rows")[..3], [0, 0, 0]);
        let requests = &requests()[..32];
        let want = reference(&checkpoint, mode, requests);
        check_against(&checkpoint, (requests, &want), &ways(mode)[..5]);
    }
}

/// Experts and layers are read from disk, in the least memory and in a third more.
#[test]
fn streamed_weights_change_no_bits() {
    for (architecture, mode) in [("qwen3_moe", Mode::Fast), ("deepseek_v3", Mode::Exact)] {
        let (checkpoint, _folder) = random_of(architecture, 4);
        let (count, first_way) = if mode == Mode::Fast { (REQUESTS, 0) } else { (32, 1) };
        let requests = &requests()[..count];
        let want = reference(&checkpoint, mode, requests);
        let alone = Way::alone(mode);
        let ways = [
            Way { company: 8, threads: 2, ..alone.clone() },
            Way { company: 32, running: 32, blocks: 14, chunk: 7, ..alone.clone() },
            Way { company: 16, speculate: Speculate::Ngram(4), ..alone.clone() },
        ];
        for (at, way) in ways.into_iter().enumerate().skip(first_way) {
            let least = least(&checkpoint, &way.load_options(&checkpoint));
            let memory = WeightsMemory::Bytes(least + least * (at % 2) / 3);
            let way = Way { weights_memory: memory, ..way };
            let loaded = Runner::load(&checkpoint, &way.load_options(&checkpoint)).unwrap();
            assert!(loaded.stream_stats().is_some());
            drop(loaded);
            check_against(&checkpoint, (requests, &want), &[way]);
        }
    }
}

#[test]
fn an_identical_prompt_computes_its_last_token_only() {
    let (checkpoint, _folder) = random("qwen3");
    let engine = Way::alone(Mode::Fast).start(&checkpoint);
    let request = Request { max_tokens: Some(2), logprobs: Some(0), ..requests()[1].clone() };
    let prompt: Vec<u32> = (0..64).collect();
    let cached = |prompt: &[u32]| {
        let request = Request { prompt: prompt.to_vec(), ..request.clone() };
        collect(engine.submit(request).unwrap()).1.usage.cached_tokens
    };
    assert_eq!([cached(&prompt), cached(&prompt), cached(&prompt[..40])], [0, 63, 39]);
    let mut edited = prompt.clone();
    edited[50] = 99;
    assert_eq!([cached(&edited), cached(&prompt)], [50, 63]);
}

#[test]
fn speculation_is_right_where_text_repeats_itself() {
    let (checkpoint, _folder) = repeating();
    let speculate = Speculate::Ngram(4);
    let engine = Way { speculate, ..Way::alone(Mode::Exact) }.start(&checkpoint);
    let prompt: Vec<u32> = (0..10).cycle().take(40).collect();
    let bias = (0..10).map(|id| (id, 50.0)).collect();
    let sampling = SamplingParams { logit_bias: bias, ..SamplingParams::default() };
    let request = Request { prompt, sampling, max_tokens: Some(40), ..Request::default() };
    let request = Request { logprobs: Some(0), ..request };
    let usage = collect(engine.submit(request.clone()).unwrap()).1.usage;
    assert!(usage.accepted_tokens > 0 && usage.accepted_tokens < usage.drafted_tokens + 1);
    let off = Request { speculate: Some(Speculate::Off), ..request };
    assert_eq!(collect(engine.submit(off).unwrap()).1.usage.drafted_tokens, 0);
}
