//! Placement rules change the tensors that they match and nothing else.

use crate::checkpoints::{architectures, open, random};
use backend::Mode;
use base::Rng;
use engine::{Error, LoadOptions, Runner, SingleSequence};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelFiles};
use kernels::quant::{F32, QuantType};
use models::placement::Placement;
use models::placement::TensorInfo;
use std::path::Path;
use std::sync::Arc;

pub const BUILT_IN_Q8_0: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model/tiny-q8_0.gguf");
const TOKENS: usize = 40;

/// One rule in flow style.
pub fn rule(matches: &str, place: &str) -> String {
    format!("- match: {{{matches}}}\n  place: {{{place}}}\n")
}

pub fn rules(text: &str) -> Placement {
    Placement::parse(text, Path::new("rules.yaml")).unwrap()
}

fn try_load(checkpoint: &Checkpoint, mode: Mode, text: &str) -> Result<Runner, Error> {
    let placement = Some(Arc::new(rules(text)));
    let options =
        LoadOptions { mode, threads: 3, context: Some(128), placement, ..LoadOptions::default() };
    Runner::load(checkpoint, &options)
}

fn load(checkpoint: &Checkpoint, mode: Mode, text: &str) -> Runner {
    try_load(checkpoint, mode, text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn logits(runner: &mut Runner, chunk: usize) -> Vec<f32> {
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|at| at * 37 % 131).collect();
    SingleSequence::new(runner).feed(&tokens, chunk).unwrap().to_vec()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn an_exact_part_of_a_fast_model_lies_between() {
    let checkpoint = open(Path::new(BUILT_IN_Q8_0));
    let of = |mode, text: &str| logits(&mut load(&checkpoint, mode, text), TOKENS);
    let (exact, fast) = (of(Mode::Exact, ""), of(Mode::Fast, ""));
    let between = of(Mode::Fast, &rule("kind: [attention, dense]", "mode: exact"));
    let (near, far) = (distance(&exact, &between), distance(&exact, &fast));
    assert!(0.0 < near && near < far, "{near} {far}");
    // Products with stored weights are exact in every mode.
    let mapped = of(Mode::Fast, &rule("kind: [attention, dense]", "memory: mapped"));
    assert_eq!(mapped, between);
}

/// Placements of all kinds that are valid for every architecture.
fn mixed() -> [String; 4] {
    [
        rule("layers: 0", "mode: exact, threads: 1") + &rule("kind: embed", "memory: disk"),
        rule("kind: [attention, dense, routed_expert]", "type: f16, threads: 2"),
        rule("name: (attn_output|ffn_down)", "memory: mapped, decode: {threads: 1}"),
        rule("name: 'attn_|ffn_', layers: 1", "type: f32") + &rule("name: .", "mode: exact"),
    ]
}

#[test]
fn chunks_do_not_change_bits_under_any_placement() {
    for architecture in ["llama", "qwen3", "qwen2_moe", "gpt_oss", "deepseek_v2"] {
        let (checkpoint, _folder) = random(architecture);
        for text in mixed() {
            let mut runner = load(&checkpoint, Mode::Fast, &text);
            let whole = logits(&mut runner, TOKENS);
            assert!(whole.iter().all(|logit| logit.is_finite()));
            for chunk in [1, 7, 16, 33] {
                assert_eq!(logits(&mut runner, chunk), whole, "{architecture} {chunk} {text}");
            }
        }
    }
}

#[test]
fn chunks_do_not_change_bits_where_weights_are_fp8() {
    let (checkpoint, _folder) = random_fp8("qwen3");
    for text in [&rule("layers: 0", "mode: exact"), &rule("kind: dense", "memory: mapped")] {
        let mut runner = load(&checkpoint, Mode::Fast, text);
        let whole = logits(&mut runner, TOKENS);
        assert!(whole.iter().all(|logit| logit.is_finite()));
        for chunk in [1, 7, 33] {
            assert_eq!(logits(&mut runner, chunk), whole, "{chunk} {text}");
        }
    }
}

#[test]
fn limits_of_threads_change_no_bits_and_no_identity() {
    for architecture in ["qwen3", "deepseek_v2"] {
        let (checkpoint, _folder) = random(architecture);
        let mut all = load(&checkpoint, Mode::Fast, "");
        for place in ["threads: 1", "threads: 2, decode: {threads: 1}", "prefill: {threads: 9}"] {
            let mut few = load(&checkpoint, Mode::Fast, &rule("name: .", place));
            assert_eq!(logits(&mut few, TOKENS), logits(&mut all, TOKENS), "{place}");
            assert_eq!(few.settings(), all.settings(), "{place}");
        }
    }
}

#[test]
fn placements_that_compute_otherwise_have_names_of_their_own() {
    let checkpoint = open(Path::new(BUILT_IN_Q8_0));
    let of = |place: &str| {
        let text = rule("kind: attention", place);
        load(&checkpoint, Mode::Fast, &text).settings().placement.clone()
    };
    let mut all: Vec<_> =
        ["threads: 1", "mode: exact", "type: q4_0", "memory: mapped"].map(of).into();
    assert_eq!(all[0], "");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4);
}

/// A matrix that is not known to be read would have no arithmetic, and no packed layout.
#[test]
fn every_tensor_of_a_checkpoint_is_known_to_be_read() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        for tensor in TensorInfo::all(&checkpoint) {
            assert!(tensor.is_read, "{architecture}: {}", tensor.name);
        }
    }
}

#[test]
fn as_many_bytes_are_held_as_the_table_says() {
    let check = |checkpoint: &Checkpoint, mode, text: &str| {
        let runner = load(checkpoint, mode, text);
        let tensors = TensorInfo::all(checkpoint);
        let cpu = backend::Cpu::new(1, mode).unwrap();
        let placed = rules(text).resolve(&tensors, &cpu).unwrap();
        let expected: usize = placed.iter().map(|placed| placed.bytes).sum();
        let name = &checkpoint.config().architecture;
        assert_eq!(runner.memory().weights, expected, "{name} {mode:?} {text}");
    };
    let built_in = open(Path::new(BUILT_IN_Q8_0));
    let converted = rule("kind: embed", "type: f16") + &rule("kind: dense", "type: q4_0");
    for mode in [Mode::Exact, Mode::Fast] {
        check(&built_in, mode, "");
        check(&built_in, mode, &converted);
        for architecture in ["qwen3", "qwen2_moe", "gpt_oss"] {
            let (checkpoint, _folder) = random(architecture);
            check(&checkpoint, mode, "");
            mixed().iter().for_each(|text| check(&checkpoint, mode, text));
        }
        for architecture in ["llama", "qwen3"] {
            let (checkpoint, _folder) = random_fp8(architecture);
            check(&checkpoint, mode, "");
            check(&checkpoint, mode, &rule("kind: dense", "memory: mapped"));
            check(&checkpoint, mode, &rule("name: attn_output", "type: q8_0"));
            check(&checkpoint, mode, &rule("layers: 1, kind: attention", "mode: exact"));
        }
    }
}

#[test]
fn weights_are_locked_or_it_is_said_how_they_could_be() {
    let checkpoint = open(Path::new(BUILT_IN_Q8_0));
    match try_load(&checkpoint, Mode::Fast, &rule("kind: [dense, embed]", "memory: locked")) {
        Ok(mut locked) => {
            let mapped = rule("kind: [dense, embed]", "memory: mapped");
            let mut mapped = load(&checkpoint, Mode::Fast, &mapped);
            assert_eq!(logits(&mut locked, TOKENS), logits(&mut mapped, TOKENS));
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("cannot lock") && error.contains("ulimit -l"), "{error}");
        }
    }
}

/// A random checkpoint with the matrices of layers as FP8 codes and one scale per row.
fn random_fp8(architecture: &str) -> (Checkpoint, tempfile::TempDir) {
    let (_, plain) = random(architecture);
    let (files, codes) = (ModelFiles::open(plain.path()).unwrap(), fp8_codes());
    let (mut rng, mut tensors) = (Rng::new(7), Vec::new());
    let mut writer = SafetensorsWriter::new();
    for view in files.tensors() {
        let name = view.source_name.as_str();
        if view.shape.len() == 2 && name.contains(".layers.") {
            writer.plan(name, codes, &view.shape).unwrap();
            // Below the codes of NaN.
            let code = |_| (rng.below(2) * 128 + rng.below(127)) as u8;
            tensors.push((0..view.elements()).map(code).collect());
            writer.plan(&format!("{name}_scale"), &F32, &[view.shape[0], 1]).unwrap();
            tensors.push(0.001f32.to_le_bytes().repeat(view.shape[0]));
        } else {
            writer.plan(name, view.ty, &view.shape).unwrap();
            tensors.push(view.bytes().read(0..view.bytes().len()).into_owned());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(plain.path().join("config.json"), folder.path().join("config.json")).unwrap();
    let mut stream = writer.create(&folder.path().join("model.safetensors")).unwrap();
    tensors.iter().for_each(|tensor: &Vec<u8>| stream.write(tensor).unwrap());
    stream.finish().unwrap();
    (open(folder.path()), folder)
}

/// The storage type of FP8 codes, taken from a checkpoint.
fn fp8_codes() -> &'static QuantType {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../formats/tests/data/native/fp8_blocks");
    let files = ModelFiles::open(Path::new(folder)).unwrap();
    let codes = files.tensors().iter().find(|view| view.ty.name == "f8_e4m3");
    codes.expect("FP8 weights").ty
}
