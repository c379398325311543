//! Embeddings: the hidden states after the last norm, pooled.

use crate::checkpoints::{architectures, random};
use crate::determinism::block_bytes;
use backend::{Batch, Mode};
use engine::{
    BLOCK, Embed, EngineHandle, EngineOptions, Event, Finished, Generation, KvMemory, LoadOptions,
    Outcome, Request, Runner, SubmitError, start,
};
use formats::Checkpoint;
use formats::Pooling;

fn prompt(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 41 + i / 5 + seed) % 131).collect()
}

fn load(checkpoint: &Checkpoint, mode: Mode, chunk: usize, blocks: usize) -> Runner {
    let (parallel, context) = (2, Some(blocks * BLOCK));
    // Of each window, blocks for both sequences and a chunk, and some.
    let windowed = block_bytes(checkpoint, BLOCK, mode) * (2 * parallel + chunk.div_ceil(BLOCK));
    let kv_memory = KvMemory::Bytes(block_bytes(checkpoint, BLOCK, mode) * blocks + 2 * windowed);
    let options = LoadOptions {
        mode,
        chunk: Some(chunk),
        kv_memory,
        context,
        parallel,
        ..Default::default()
    };
    let options = LoadOptions { threads: 2, ..options };
    Runner::load(checkpoint, &options).unwrap()
}

fn engine(checkpoint: &Checkpoint, mode: Mode, chunk: usize, blocks: usize) -> EngineHandle {
    let options = EngineOptions { running: 8, ..EngineOptions::default() };
    start(load(checkpoint, mode, chunk, blocks), options).0
}

fn request(prompt: Vec<u32>, pooling: Option<Pooling>, normalize: bool) -> Request {
    Request {
        prompt,
        embed: Some(Embed { pooling, normalize, ..Embed::default() }),
        ..Request::default()
    }
}

fn collect(mut generation: Generation) -> (Vec<f32>, Finished) {
    let mut vector = None;
    loop {
        match generation.next_blocking().expect("an end") {
            Event::Embedding(found) => assert_eq!(vector.replace(found), None, "one vector"),
            Event::Finished(finished) => return (vector.expect("a vector"), finished),
            Event::Admitted { .. } | Event::Prefill { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

fn ask(engine: &EngineHandle, request: Request) -> (Vec<f32>, Finished) {
    collect(engine.submit(request).unwrap())
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|value| value.to_bits()).collect()
}

/// The states of each token, computed one by one, and the logits of the last.
fn states(runner: &mut Runner, tokens: &[u32]) -> (Vec<Vec<f32>>, Vec<f32>) {
    let mut memory = runner.sequences(1).remove(0);
    let mut batch: Batch = runner.batch();
    let mut states = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        batch.clear();
        memory.push(&mut batch, &[*token], at, 1);
        batch.want_hidden(1);
        runner.forward(&batch).unwrap();
        states.push(runner.hidden().to_vec());
    }
    (states, runner.logits().to_vec())
}

#[test]
fn states_are_what_the_output_head_sees() {
    let (checkpoint, _folder) = random("qwen3");
    assert!(checkpoint.config().hyperparameters().tied_embeddings);
    let mut runner = load(&checkpoint, Mode::Exact, 64, 8);
    let (states, logits) = states(&mut runner, &prompt(9, 0));
    let table = checkpoint.tensor("token_embd.weight").unwrap();
    let mut words = vec![0.0; 131 * 72];
    (table.ty.dequantize.unwrap())(&table.bytes().read(0..table.bytes().len()), &mut words);
    for (word, logit) in words.chunks_exact(72).zip(logits) {
        let dot: f32 = word.iter().zip(&states[8]).map(|(a, b)| a * b).sum();
        assert!((dot - logit).abs() < 1e-4, "{dot} {logit}");
    }
}

#[test]
fn a_vector_is_the_mean_of_the_states_or_the_last() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        let prompt = prompt(75, 1);
        let (states, _) = states(&mut load(&checkpoint, Mode::Fast, 64, 8), &prompt);
        let engine = engine(&checkpoint, Mode::Fast, 64, 16);
        let embed =
            |pooling, normalize| ask(&engine, request(prompt.clone(), pooling, normalize)).0;
        let mean = |at: usize| states.iter().map(|s| f64::from(s[at])).sum::<f64>() / 75.0;
        let mean: Vec<f32> = (0..72).map(|at| mean(at) as f32).collect();
        assert_eq!(bits(&embed(Some(Pooling::Mean), false)), bits(&mean), "{architecture}");
        assert_eq!(bits(&embed(Some(Pooling::Last), false)), bits(&states[74]), "{architecture}");
        // Without pooling in the checkpoint, the last token is used.
        assert_eq!(bits(&embed(None, false)), bits(&states[74]), "{architecture}");
        let unit = embed(Some(Pooling::Mean), true);
        let length: f32 = unit.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5, "{architecture}: {length}");
        assert!((unit[0] / unit[1] - mean[0] / mean[1]).abs() < 1e-3, "{architecture}");
    }
}

#[test]
fn a_vector_has_the_same_bits_in_any_batch() {
    for architecture in ["llama", "mistral", "deepseek_v3"] {
        let (checkpoint, _folder) = random(architecture);
        let requests: Vec<Request> = (0..12u32)
            .map(|i| {
                let pooling = if i % 2 == 0 { Pooling::Mean } else { Pooling::Last };
                request(prompt(8 + 13 * i as usize, i % 3), Some(pooling), i % 4 < 2)
            })
            .collect();
        let alone =
            |request: &Request| ask(&engine(&checkpoint, Mode::Fast, 64, 16), request.clone()).0;
        let want: Vec<_> = requests.iter().map(alone).collect();
        for (chunk, blocks) in [(5, 64), (512, 64), (64, 8)] {
            let engine = engine(&checkpoint, Mode::Fast, chunk, blocks);
            // The second time, the cache is warm; others generate meanwhile.
            for time in 0..2 {
                let other =
                    Request { prompt: prompt(20, 0), max_tokens: Some(40), ..Request::default() };
                let other = engine.submit(other).unwrap();
                let submit = |request: &Request| engine.submit(request.clone()).unwrap();
                let generations: Vec<_> = requests.iter().map(submit).collect();
                for (i, (generation, want)) in generations.into_iter().zip(&want).enumerate() {
                    let (vector, finished) = collect(generation);
                    assert_eq!(bits(&vector), bits(want), "{architecture} {chunk} {blocks} {time}");
                    let usage = finished.usage;
                    assert_eq!((finished.outcome, usage.completion_tokens), (Outcome::Complete, 0));
                    assert!(i % 2 == 1 || usage.cached_tokens == 0, "states are not in the cache");
                }
                drop(other);
            }
        }
    }
}

#[test]
fn the_last_state_is_found_behind_what_the_cache_has() {
    let (checkpoint, _folder) = random("qwen3");
    let engine = engine(&checkpoint, Mode::Fast, 64, 16);
    let last = || ask(&engine, request(prompt(90, 0), Some(Pooling::Last), false));
    let (cold, warm) = (last(), last());
    assert_eq!((cold.1.usage.cached_tokens, warm.1.usage.cached_tokens), (0, 89));
    assert_eq!(bits(&cold.0), bits(&warm.0));
    let stats = engine.metrics.snapshot();
    assert_eq!((stats.prompt_tokens, stats.cache_hits), (180, 89), "both prompts are counted");
    assert_eq!(stats.by_outcome().find(|(_, count)| *count > 0), Some(("stop", 2)));
}

#[test]
fn a_prompt_that_becomes_a_vector_may_fill_the_context_and_has_no_log_probabilities() {
    let (checkpoint, _folder) = random("llama");
    let engine = engine(&checkpoint, Mode::Fast, 64, 8);
    assert_eq!(ask(&engine, request(prompt(256, 0), Some(Pooling::Mean), true)).0.len(), 72);
    let both = Request { prompt_logprobs: Some(1), ..request(prompt(3, 0), None, true) };
    assert!(matches!(engine.submit(both).unwrap_err(), SubmitError::Invalid { .. }));
}
