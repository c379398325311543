//! Sequences with adapters: what they compute, and that they never mix.

use crate::checkpoints::{architectures, open, random, write};
use crate::determinism::{Answer, collect};
use backend::{AdapterSet, Mode, ScaledAdapter};
use base::Rng;
use engine::{
    AdapterSource, EngineHandle, EngineOptions, KvMemory, LoadOptions, LoadedAdapter, Request,
    Runner, SamplingParams, SingleSequence, Speculate, start,
};
use formats::config::OfLayers;
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig};
use kernels::quant::F32;
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;

const RANK: usize = 3;

/// Factors by the canonical name of the projection, `[rank, inputs]` and `[outputs, rank]`.
pub type Factors = HashMap<String, [Vec<f32>; 2]>;

/// Whether an adapter may change a projection.
fn is_open(config: &ModelConfig, name: &str) -> bool {
    let layer = formats::names::split_canonical(name);
    let delta = layer.and_then(|(layer, part)| Some((layer.parse().ok()?, part)));
    !delta.is_some_and(|(layer, part)| {
        OfLayers::has(&config.hyperparameters().delta, layer) && !part.starts_with("ffn_")
    })
}

/// Writes a random adapter of all projections of the model whose names `takes` into `folder`.
pub fn write_adapter(
    folder: &Path,
    checkpoint: &Checkpoint,
    seed: u64,
    takes: impl Fn(&str) -> bool,
) -> Factors {
    let (config, mut rng) = (checkpoint.config(), Rng::new(seed));
    let options = LoadOptions { threads: 1, ..LoadOptions::default() };
    let runner = Runner::load(checkpoint, &options).unwrap();
    let names = formats::families::name_table(&config.architecture).expect("a known family");
    let (mut writer, mut all, mut factors) = (SafetensorsWriter::new(), Vec::new(), Factors::new());
    for (name, [outputs, inputs]) in runner.adapter_base().shapes() {
        if !is_open(config, name) || !takes(name) {
            continue;
        }
        let weight = format!("{name}.weight");
        let source = names.source(&weight).unwrap_or(weight);
        let module = format!("base_model.model.{}", source.strip_suffix(".weight").unwrap());
        let mut values = |factor: &str, shape: [usize; 2]| {
            writer.plan(&format!("{module}.lora_{factor}.weight"), &F32, &shape).unwrap();
            let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| 0.2 * rng.normal()).collect();
            all.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            values
        };
        let pair = [values("A", [RANK, *inputs]), values("B", [*outputs, RANK])];
        factors.insert(name.clone(), pair);
    }
    let settings = json!({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK});
    std::fs::write(folder.join("adapter_config.json"), settings.to_string()).unwrap();
    let mut stream = writer.create(&folder.join("adapter_model.safetensors")).unwrap();
    stream.write(&all).unwrap();
    stream.finish().unwrap();
    factors
}

fn source(folder: &Path, scale: f32) -> AdapterSource {
    AdapterSource::new(folder, scale)
}

/// The logits of the last of some tokens.
fn logits(checkpoint: &Checkpoint, adapters: Vec<AdapterSource>) -> Vec<f32> {
    let options = LoadOptions { mode: Mode::Exact, threads: 1, adapters, ..LoadOptions::default() };
    let mut runner = Runner::load(checkpoint, &options).unwrap();
    let mut session = SingleSequence::new(&mut runner);
    session.feed(&[5, 3, 77, 9, 31], 2).unwrap().to_vec()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
}

#[test]
fn an_adapter_has_the_effect_of_weights_with_its_product_added() {
    const SCALE: f32 = 0.75;
    let mut checked = 0;
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        let config = checkpoint.config();
        let folder = tempfile::tempdir().unwrap();
        // Discrete choices may fall otherwise with the slightest difference.
        let takes = |name: &str| {
            !["ffn_gate_inp", "indexer", "compress"].iter().any(|it| name.contains(it))
        };
        let factors = write_adapter(folder.path(), &checkpoint, 5, takes);
        let merged = tempfile::tempdir().unwrap();
        let mut used = 0;
        let counted = std::cell::RefCell::new(&mut used);
        write(merged.path(), config, |name, values| {
            let Some([a, b]) = factors.get(name.strip_suffix(".weight").unwrap_or(name)) else {
                return;
            };
            **counted.borrow_mut() += 1;
            let inputs = a.len() / RANK;
            for (row, b) in values.chunks_mut(inputs).zip(b.chunks(RANK)) {
                for (b, a) in b.iter().zip(a.chunks(inputs)) {
                    row.iter_mut().zip(a).for_each(|(w, a)| *w += SCALE * b * a);
                }
            }
        });
        if used < factors.len() {
            // Projections are parts of other matrices in files of this family.
            continue;
        }
        let adapted = logits(&checkpoint, vec![source(folder.path(), SCALE)]);
        let base = logits(&checkpoint, Vec::new());
        let merged = logits(&open(merged.path()), Vec::new());
        let (near, far) = (distance(&adapted, &merged), distance(&base, &merged));
        checked += 1;
        // The merged weights are rounded to BF16.
        assert!(near < 0.1 * far, "{architecture}: {near} of {far}");
    }
    assert!(checked > 15, "{checked} families");
}

/// Adapters of the model of a checkpoint, and the requests for each combination.
struct Adapters {
    loaded: Vec<LoadedAdapter>,
    _folders: Vec<tempfile::TempDir>,
}

impl Adapters {
    fn of(checkpoint: &Checkpoint, count: u64) -> Self {
        let runner = Runner::load(checkpoint, &LoadOptions::default()).unwrap();
        let folders: Vec<_> = (0..count)
            .map(|seed| {
                let folder = tempfile::tempdir().unwrap();
                // Of different projections.
                let takes = |name: &str| seed % 2 == 0 || name.contains("attn") || name == "output";
                write_adapter(folder.path(), checkpoint, seed, takes);
                folder
            })
            .collect();
        let open = |folder: &tempfile::TempDir| runner.adapter_base().open(folder.path()).unwrap();
        Self { loaded: folders.iter().map(open).collect(), _folders: folders }
    }

    /// Adapters by their numbers, each with its factor.
    fn set(&self, chosen: &[(usize, f32)]) -> Option<AdapterSet> {
        let scaled = |(at, scale): &(usize, f32)| ScaledAdapter {
            adapter: self.loaded[*at].adapter.clone(),
            scale: *scale,
        };
        Some(AdapterSet::new(chosen.iter().map(scaled)))
    }

    /// Requests that begin alike, with all combinations.
    fn requests(&self) -> Vec<Request> {
        let mut rng = Rng::new(3);
        let shared: Vec<u32> = (0..60).map(|_| rng.below(131) as u32).collect();
        let sets: [&[(usize, f32)]; 6] =
            [&[], &[(0, 1.0)], &[(1, 1.0)], &[(0, 0.5)], &[(0, 1.0), (1, -0.5)], &[(2, 1.0)]];
        let request = |at: usize| Request {
            prompt: shared[..20 + at * 7 % 40].to_vec(),
            adapters: self.set(sets[at % sets.len()]),
            sampling: SamplingParams {
                temperature: 0.9,
                seed: Some(at as u64),
                ..Default::default()
            },
            max_tokens: Some(5 + at * 5 % 17),
            logprobs: Some(2),
            ..Request::default()
        };
        (0..24).map(request).collect()
    }
}

fn engine(checkpoint: &Checkpoint, mode: Mode, blocks: usize, drafts: Speculate) -> EngineHandle {
    let bytes = crate::determinism::block_bytes(checkpoint, 16, mode);
    let options = EngineOptions { speculate: drafts, ..EngineOptions::default() };
    let load = LoadOptions {
        mode,
        threads: 2,
        block: 16,
        chunk: Some(13),
        logit_rows: options.logit_rows(),
        parallel: options.running,
        context: Some(96),
        kv_memory: KvMemory::Bytes(bytes * blocks),
        ..LoadOptions::default()
    };
    start(Runner::load(checkpoint, &load).unwrap(), options).0
}

fn answers(engine: &EngineHandle, requests: &[Request], at_once: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    for group in requests.chunks(at_once) {
        let submit = |request: &Request| engine.submit(request.clone()).unwrap();
        let generations: Vec<_> = group.iter().map(submit).collect();
        answers.extend(generations.into_iter().map(|generation| collect(generation).0));
    }
    answers
}

#[test]
fn a_request_with_adapters_has_the_same_bits_alone_and_among_others() {
    for (architecture, mode) in [
        ("llama", Mode::Fast),
        ("llama", Mode::Exact),
        ("qwen3_moe", Mode::Fast),
        ("gemma3", Mode::Fast),
    ] {
        let (checkpoint, _folder) = random(architecture);
        let adapters = Adapters::of(&checkpoint, 3);
        let requests = adapters.requests();
        let alone: Vec<Answer> = requests
            .iter()
            .flat_map(|request| {
                let engine = engine(&checkpoint, mode, 64, Speculate::Off);
                answers(&engine, std::slice::from_ref(request), 1)
            })
            .collect();
        assert!(alone[6] != alone[7], "adapters change answers");
        // Few blocks make the engine preempt.
        for (blocks, drafts) in
            [(256, Speculate::Off), (14, Speculate::Off), (64, Speculate::Ngram(3))]
        {
            let engine = engine(&checkpoint, mode, blocks, drafts);
            for time in ["cold", "warm"] {
                let together = answers(&engine, &requests, 24);
                for (at, (one, other)) in alone.iter().zip(&together).enumerate() {
                    assert!(
                        one == other,
                        "{architecture} {blocks} {drafts:?} {time}: request {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn sequences_find_prefixes_of_their_own_adapters_and_scales_only() {
    let (checkpoint, _folder) = random("qwen3");
    let adapters = Adapters::of(&checkpoint, 2);
    let engine = engine(&checkpoint, Mode::Fast, 256, Speculate::Off);
    let prompt: Vec<u32> = (0..50).collect();
    let sets: [&[(usize, f32)]; 5] =
        [&[], &[(0, 1.0)], &[(1, 1.0)], &[(0, 0.5)], &[(0, 1.0), (1, 1.0)]];
    for expected in [0, prompt.len() - 1] {
        for set in sets {
            let request = Request {
                prompt: prompt.clone(),
                adapters: adapters.set(set),
                max_tokens: Some(2),
                logprobs: Some(0),
                ..Request::default()
            };
            let (_, finished) = collect(engine.submit(request).unwrap());
            assert_eq!(finished.usage.cached_tokens, expected, "{set:?}");
        }
    }
}

#[test]
fn adapters_of_the_model_apply_to_requests_that_name_none() {
    let (checkpoint, _folder) = random("llama");
    let folder = tempfile::tempdir().unwrap();
    write_adapter(folder.path(), &checkpoint, 9, |_| true);
    let start = |adapters| {
        let load = LoadOptions { threads: 1, adapters, ..LoadOptions::default() };
        start(Runner::load(&checkpoint, &load).unwrap(), EngineOptions::default()).0
    };
    let request = |adapters| Request {
        prompt: vec![1, 2, 3],
        max_tokens: Some(4),
        logprobs: Some(1),
        adapters,
        ..Request::default()
    };
    let ask = |engine: &EngineHandle, set| answers(engine, &[request(set)], 1).remove(0);
    let (plain, adapted) = (start(Vec::new()), start(vec![source(folder.path(), 1.0)]));
    let base = ask(&plain, None);
    assert!(ask(&adapted, None) != base);
    assert!(ask(&adapted, Some(AdapterSet::default())) == base);
    let too_many = vec![source(folder.path(), 1.0); engine::MAX_ADAPTERS + 1];
    for (adapters, expected) in
        [(too_many, "at most 16"), (vec![source(folder.path(), f32::NAN)], "scale")]
    {
        let load = LoadOptions { threads: 1, adapters, ..LoadOptions::default() };
        let error = Runner::load(&checkpoint, &load).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
