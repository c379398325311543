//! The cached prefix of a prompt is found to the token, and the answer has the bits of a run
//! without the cache.

use crate::checkpoints::{architectures, config, random};
use crate::determinism::{Answer, collect};
use crate::kinds::has_states;
use backend::Mode;
use engine::{
    EngineHandle, EngineOptions, KvMemory, LoadOptions, Request, Runner, SamplingParams, start,
};
use formats::Checkpoint;
use kernels::kv::KvType;

/// Tokens of a prompt: two blocks and a tail of odd length.
const PROMPT: usize = 79;

fn engine(checkpoint: &Checkpoint, mode: Mode, kv_type: KvType) -> EngineHandle {
    let load = LoadOptions {
        mode,
        kv_type: Some(kv_type),
        threads: 2,
        parallel: 8,
        kv_memory: KvMemory::Bytes(4 << 20),
        ..LoadOptions::default()
    };
    start(Runner::load(checkpoint, &load).unwrap(), EngineOptions::default()).0
}

fn prompt() -> Vec<u32> {
    (0..PROMPT as u32).map(|i| i * 37 % 131).collect()
}

/// Number of prompt tokens found in the cache, and the answer.
fn ask(engine: &EngineHandle, prompt: &[u32]) -> (usize, Answer) {
    ask_in([0; 16], engine, prompt)
}

/// The same for a request of this space.
pub fn ask_in(space: [u8; 16], engine: &EngineHandle, prompt: &[u32]) -> (usize, Answer) {
    let request = Request { space, ..request(prompt) };
    let (answer, finished) = collect(engine.submit(request).unwrap());
    (finished.usage.cached_tokens, answer)
}

/// A request for six tokens and their log probabilities.
pub fn request(prompt: &[u32]) -> Request {
    Request {
        prompt: prompt.to_vec(),
        sampling: SamplingParams { temperature: 0.8, seed: Some(3), ..Default::default() },
        max_tokens: Some(6),
        logprobs: Some(3),
        ..Request::default()
    }
}

#[test]
fn a_space_finds_nothing_of_another_and_computes_the_same() {
    let (checkpoint, _folder) = random("qwen3");
    let engine = engine(&checkpoint, Mode::Fast, KvType::Bf16);
    let prompt: Vec<u32> = (0..70).map(|at| at % 50).collect();
    let ask = |space| {
        let request = Request {
            prompt: prompt.clone(),
            max_tokens: Some(6),
            logprobs: Some(3),
            space,
            ..Request::default()
        };
        let (answer, finished) = collect(engine.submit(request).unwrap());
        (finished.usage.cached_tokens, answer)
    };
    let spaces = [[0; 16], [1; 16], [2; 16]];
    let first = spaces.map(ask);
    let again = spaces.map(ask);
    for (cold, warm) in first.iter().zip(&again) {
        assert_eq!((cold.0, warm.0), (0, prompt.len() - 1));
        assert!(cold.1 == first[0].1 && warm.1 == first[0].1);
    }
}

/// Runs prompts one after the other, each with the number of its tokens in the cache, and checks
/// that every answer is that of an engine with an empty cache.
fn check(checkpoint: &Checkpoint, mode: Mode, kv_type: KvType, prompts: &[(Vec<u32>, usize)]) {
    let warm = engine(checkpoint, mode, kv_type);
    for (at, (prompt, cached)) in prompts.iter().enumerate() {
        let name = &checkpoint.config().architecture;
        let (found, answer) = ask(&warm, prompt);
        assert_eq!(found, *cached, "{name} {kv_type:?}: prompt {at}");
        let (_, cold) = ask(&engine(checkpoint, mode, kv_type), prompt);
        assert_eq!(answer, cold, "{name} {kv_type:?}: prompt {at}");
    }
}

/// Runs `check` for every architecture and for every cache type.
fn everywhere(prompts: &[(Vec<u32>, usize)]) {
    for architecture in architectures().filter(|name| !has_states(&config(name))) {
        check(&random(architecture).0, Mode::Fast, KvType::Bf16, prompts);
    }
    for architecture in ["qwen3", "deepseek_v3"] {
        let (checkpoint, _folder) = random(architecture);
        check(&checkpoint, Mode::Exact, KvType::F32, prompts);
        check(&checkpoint, Mode::Exact, KvType::F16, prompts);
        check(&checkpoint, Mode::Fast, KvType::Q8_0, prompts);
    }
}

#[test]
fn a_prompt_sent_again_computes_one_token() {
    let short = prompt()[..20].to_vec();
    everywhere(&[
        (prompt(), 0),
        (prompt(), PROMPT - 1),
        (short.clone(), 19),
        (short, 19),
        (prompt(), PROMPT - 1),
    ]);
}

/// States are found where snapshots were taken: before the last token of a prompt, where a prompt
/// leaves others, and at the end of a sequence.
#[test]
fn a_prompt_is_found_where_a_state_was_kept() {
    let short = prompt()[..20].to_vec();
    let other: Vec<u32> = prompt()[..50].iter().copied().chain([7, 7, 7, 9, 9]).collect();
    for architecture in architectures().filter(|name| has_states(&config(name))) {
        let (checkpoint, _folder) = random(architecture);
        for (mode, kv_type) in [(Mode::Fast, KvType::Bf16), (Mode::Exact, KvType::F32)] {
            let prompts = [
                (prompt(), 0),
                (prompt(), PROMPT - 1),
                (short.clone(), 0),
                (short.clone(), 19),
                (other.clone(), 19),
                (other.clone(), 54),
                (prompt(), PROMPT - 1),
            ];
            check(&checkpoint, mode, kv_type, &prompts);
        }
    }
}

#[test]
fn a_shortened_prompt_computes_one_token() {
    let prompts = [PROMPT, 78, 65, 64, 63, 40, 33, 32, 31, 17, 2, 1].map(|len| {
        let cached = if len == PROMPT { 0 } else { len - 1 };
        (prompt()[..len].to_vec(), cached)
    });
    everywhere(&prompts);
}

#[test]
fn a_branched_prompt_reuses_up_to_the_branch() {
    let branch = |at: usize| {
        let mut tokens = prompt();
        tokens[at] = (tokens[at] + 1) % 131;
        tokens
    };
    let mut prompts = vec![(prompt(), 0)];
    prompts.extend([70, 65, 45, 44, 31, 5].map(|at| (branch(at), at)));
    // Every branch is cached now.
    prompts.extend([5, 45, 70].map(|at| (branch(at), PROMPT - 1)));
    everywhere(&prompts);
}

#[test]
fn an_answer_is_found_by_the_next_turn() {
    let (checkpoint, _folder) = random("llama");
    let engine = engine(&checkpoint, Mode::Fast, KvType::Bf16);
    let (_, answer) = ask(&engine, &prompt());
    let next = [&prompt()[..], &answer.ids, &[1, 2, 3]].concat();
    // The last token of the answer was sampled and not computed.
    assert_eq!(ask(&engine, &next).0, PROMPT + answer.ids.len() - 1);
}
