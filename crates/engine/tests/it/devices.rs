//! Every device computes what the reference device defines.

use crate::checkpoints::{architectures, open, random};
use backend::{DeviceChoice, Mode};
use base::Rng;
use engine::{LoadOptions, Runner, SingleSequence};
use formats::Checkpoint;
use std::path::Path;

/// Tokens of a prompt: more than two KV blocks.
const TOKENS: usize = 70;

/// Logits `[tokens, vocab]` of all rows of a prompt on the device `name`, computed in chunks of
/// `chunk`, in `exact` mode.
fn logits(checkpoint: &Checkpoint, name: &str, chunk: usize) -> Vec<f32> {
    let options = LoadOptions {
        device: devices::choose(name).unwrap(),
        mode: Mode::Exact,
        threads: 2,
        chunk: Some(chunk),
        logit_rows: chunk,
        context: Some(TOKENS),
        check: true,
        ..LoadOptions::default()
    };
    let mut runner = Runner::load(checkpoint, &options).unwrap();
    let mut rng = Rng::new(9);
    let tokens: Vec<u32> = (0..TOKENS).map(|_| rng.below(131) as u32).collect();
    let mut all = Vec::new();
    let each = |_, logits: &[f32]| {
        all.extend_from_slice(logits);
        Ok(())
    };
    SingleSequence::new(&mut runner).feed_all(&tokens, each).unwrap();
    all
}

/// The GPU that tests compute on, if one is named.
pub fn test_gpu() -> Option<DeviceChoice> {
    fixtures::gpu().map(|name| devices::choose(&name).expect("a device of this build"))
}

fn agrees(checkpoint: &Checkpoint, device: &str) {
    let (reference, cpu) = (logits(checkpoint, "reference", 64), logits(checkpoint, device, 64));
    assert_eq!(reference.len(), cpu.len());
    let largest = reference.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
    let pairs = reference.iter().zip(&cpu);
    let difference = pairs.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    let name = &checkpoint.config().architecture;
    assert!(difference <= 1e-4 * largest, "{name} on {device}: {difference} of {largest}");
}

#[test]
fn every_architecture_agrees_on_both_backends() {
    agree_everywhere("cpu");
}

#[test]
fn every_architecture_agrees_on_a_gpu() {
    if let Some(gpu) = fixtures::gpu() {
        agree_everywhere(&gpu);
    }
}

fn agree_everywhere(device: &str) {
    for architecture in architectures() {
        agrees(&random(architecture).0, device);
    }
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model/tiny-q8_0.gguf");
    agrees(&open(Path::new(built_in)), device);
}

#[test]
fn reference_backend_is_bit_deterministic() {
    for architecture in architectures() {
        let checkpoint = random(architecture).0;
        let bits = |chunk| -> Vec<u32> {
            let logits = logits(&checkpoint, "reference", chunk);
            logits.iter().map(|logit| logit.to_bits()).collect()
        };
        let whole = bits(64);
        assert_eq!(whole, bits(64), "{architecture}, again");
        assert_eq!(whole, bits(7), "{architecture}, in chunks of 7");
    }
}

#[test]
fn the_reference_device_refuses_what_it_does_not_define() {
    let checkpoint = random("qwen3").0;
    let device = devices::choose("reference").unwrap();
    let fast = LoadOptions { device, mode: Mode::Fast, ..LoadOptions::default() };
    let error = Runner::load(&checkpoint, &fast).unwrap_err().to_string();
    assert!(error.contains("no mode but exact"), "{error}");
    let exact = LoadOptions { mode: Mode::Exact, context: Some(64), ..fast };
    let half = LoadOptions { kv_type: Some(kernels::kv::KvType::F16), ..exact };
    let error = Runner::load(&checkpoint, &half).unwrap_err().to_string();
    assert!(error.contains("no KV cache but f32"), "{error}");
}
