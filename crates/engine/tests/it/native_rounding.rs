//! DeepSeek V4 with cached rows rounded as it was trained for agrees with a program in numpy that
//! follows the published definitions.

use crate::checkpoints::{open, random};
use backend::Mode;
use engine::{CacheRounding, Error, LoadOptions, Runner, SingleSequence};
use formats::Checkpoint;
use kernels::kv::KvType;
use serde::Deserialize;
use std::path::Path;

/// Written by `tests/references/deepseek_v4_native.py`.
const RECORD: &str = "../../tests/references/deepseek_v4_native.json";

#[derive(Deserialize)]
struct Record {
    checkpoints: Vec<RecordedCheckpoint>,
}

#[derive(Deserialize)]
struct RecordedCheckpoint {
    name: String,
    prompts: Vec<RecordedPrompt>,
}

#[derive(Deserialize)]
struct RecordedPrompt {
    input_ids: Vec<u32>,
    last_logits: Vec<f32>,
    greedy_ids: Vec<u32>,
    greedy_gaps: Vec<f32>,
    tolerance: f32,
}

fn load(
    checkpoint: &Checkpoint,
    kv_type: KvType,
    rounding: CacheRounding,
) -> Result<Runner, Error> {
    let options = LoadOptions {
        mode: Mode::Exact,
        threads: 2,
        kv_type: Some(kv_type),
        rounding: Some(rounding),
        context: Some(512),
        ..LoadOptions::default()
    };
    Runner::load(checkpoint, &options)
}

fn check(checkpoint: &Checkpoint, name: &str, prompt: &RecordedPrompt) {
    let mut runner = load(checkpoint, KvType::Bf16, CacheRounding::Native).unwrap();
    let mut session = SingleSequence::new(&mut runner);
    let mut logits = session.feed(&prompt.input_ids, 64).unwrap().to_vec();
    let apart = logits.iter().zip(&prompt.last_logits).map(|(a, b)| (a - b).abs());
    let apart = apart.fold(0.0, f32::max);
    assert!(apart <= prompt.tolerance, "{name}: {apart} is more than {}", prompt.tolerance);
    for (id, gap) in prompt.greedy_ids.iter().zip(&prompt.greedy_gaps) {
        if *gap <= 2.0 * prompt.tolerance {
            break;
        }
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        assert_eq!(best, Some(*id as usize), "{name}");
        logits = session.feed(&[*id], 1).unwrap().to_vec();
    }
}

#[test]
fn native_rounding_agrees_with_its_definition() {
    let Some(models) = fixtures::find("models") else { return };
    let text = std::fs::read_to_string(Path::new(RECORD)).unwrap();
    let record: Record = serde_json::from_str(&text).unwrap();
    assert!(!record.checkpoints.is_empty());
    for RecordedCheckpoint { name, prompts } in record.checkpoints {
        let checkpoint = open(&models.join(&name));
        prompts.iter().for_each(|prompt| check(&checkpoint, &name, prompt));
    }
}

#[test]
fn packed_rows_equal_rounded_rows() {
    let (checkpoint, _folder) = random("deepseek_v4");
    let prompt: Vec<u32> = (0..300).map(|at| at * 37 % 131).collect();
    let [bf16, fp8, off] = [
        (KvType::Bf16, CacheRounding::Native),
        (KvType::Fp8, CacheRounding::Native),
        (KvType::Bf16, CacheRounding::Off),
    ]
    .map(|(ty, rounding)| {
        let mut runner = load(&checkpoint, ty, rounding).unwrap();
        SingleSequence::new(&mut runner).feed(&prompt, 33).unwrap().to_vec()
    });
    assert_eq!(bf16, fp8);
    assert_ne!(bf16, off);
}

#[test]
fn types_that_rows_cannot_have_are_refused_with_those_that_they_can() {
    let refused = |family, ty, rounding| {
        let (checkpoint, _folder) = random(family);
        load(&checkpoint, ty, rounding).unwrap_err().to_string()
    };
    let native = CacheRounding::Native;
    let message = refused("deepseek_v4", KvType::Q8_0, native);
    assert_eq!(message, "the KV cache of this model must be f32, bf16, f16, fp8, not q8_0");
    let message = refused("deepseek_v4", KvType::Fp8, CacheRounding::Off);
    assert_eq!(message, "the KV cache of this model must be f32, bf16, f16, not fp8");
    let message = refused("qwen3", KvType::Fp8, native);
    assert_eq!(message, "the KV cache of this model must be f32, bf16, f16, q8_0, not fp8");
}
