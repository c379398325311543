//! Weights that are read when they are needed: the bits of a resident model, in any memory.

use crate::checkpoints::{architectures, config, open, random, write};
use crate::placement::{rule, rules};
use engine::{Error, LoadOptions, Mode, PackChoice, Runner, SingleSequence, WeightsMemory};
use formats::{Checkpoint, PackOrigin, PackWriter};
use std::path::Path;
use std::sync::Arc;

const TOKENS: u32 = 70;

pub fn options(mode: Mode, weights_memory: WeightsMemory) -> LoadOptions {
    LoadOptions {
        mode,
        weights_memory,
        threads: 2,
        weights_read_threads: 2,
        context: Some(128),
        ..LoadOptions::default()
    }
}

/// Bits of the logits behind a prompt, computed in two ways, and of tokens after it.
pub fn bits(mut runner: Runner) -> Vec<u32> {
    let prompt: Vec<u32> = (0..TOKENS).map(|i| i * 37 % 131).collect();
    let mut all = SingleSequence::new(&mut runner).feed(&prompt, 128).unwrap().to_vec();
    let mut sequence = SingleSequence::new(&mut runner);
    all.extend_from_slice(sequence.feed(&prompt, 9).unwrap());
    for token in [5, 77, 5, 130, 12] {
        all.extend_from_slice(sequence.feed(&[token], 1).unwrap());
    }
    all.iter().map(|logit| logit.to_bits()).collect()
}

/// The least memory for the weights of a model that is streamed.
pub fn least(checkpoint: &Checkpoint, streamed: &LoadOptions) -> usize {
    let limited =
        |bytes| LoadOptions { weights_memory: WeightsMemory::Bytes(bytes), ..streamed.clone() };
    let Err(error) = Runner::load(checkpoint, &limited(0)) else { panic!("no memory is needed") };
    let Error::WeightsMemory { resident: mut least, .. } = error else { panic!("{error}") };
    while let Err(error) = Runner::load(checkpoint, &limited(least)) {
        let Error::Backend(backend::Error::WeightsMemory { needed, found }) = error else {
            panic!("{error}")
        };
        assert!(needed > found);
        least += needed - found;
    }
    least
}

/// Compares a model that is streamed in several amounts of memory, up to `most`, with all weights
/// in memory.
fn check(
    checkpoint: &Checkpoint,
    [resident, streamed]: [&LoadOptions; 2],
    most: usize,
    name: &str,
) {
    let resident = Runner::load(checkpoint, resident).unwrap();
    assert_eq!(resident.stream_stats(), None);
    let (settings, expected) = (resident.settings().clone(), bits(resident));
    let least = least(checkpoint, streamed);
    let mut slots = 0;
    for memory in [least, most.min(least + least / 4), most] {
        let weights_memory = WeightsMemory::Bytes(memory);
        let options = LoadOptions { weights_memory, ..streamed.clone() };
        let runner = Runner::load(checkpoint, &options).unwrap();
        let (held, stats) = (runner.memory().weights, runner.stream_stats().unwrap());
        assert!(held <= memory && stats.slots >= slots, "{name}: {held} of {memory}, {stats:?}");
        slots = stats.slots;
        assert_eq!(*runner.settings(), settings, "{name}: the settings of the resident model");
        assert!(bits(runner) == expected, "{name} in {memory} bytes");
    }
}

#[test]
fn streamed_equals_resident() {
    let mut checked = 0;
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        if checkpoint.config().experts.is_none() {
            continue;
        }
        for mode in [Mode::Exact, Mode::Fast] {
            let resident = options(mode, WeightsMemory::All);
            let on_disk = rules(&rule("kind: routed_expert", "memory: disk"));
            let placement = Some(Arc::new(on_disk));
            let streamed = LoadOptions { placement, ..resident.clone() };
            // Its files hold gates and ups of experts in turns.
            if architecture == "gpt_oss" {
                let Err(error) = Runner::load(&checkpoint, &streamed) else { panic!("computed") };
                assert!(error.to_string().contains("gannet pack"), "{error}");
                continue;
            }
            check(&checkpoint, [&resident, &streamed], 1 << 30, architecture);
        }
        checked += 1;
    }
    assert!(checked > 2);
}

#[test]
fn layers_of_a_dense_model_are_streamed() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        // Their files hold gates and ups of experts in turns.
        if architecture == "gpt_oss" {
            continue;
        }
        for mode in [Mode::Exact, Mode::Fast] {
            let resident = options(mode, WeightsMemory::All);
            let all = Runner::load(&checkpoint, &resident).unwrap().memory().weights;
            check(&checkpoint, [&resident, &resident], all - 1, architecture);
        }
    }
}

#[test]
fn every_kind_may_be_left_on_disk_by_a_rule() {
    for architecture in ["qwen3", "deepseek_v3"] {
        let (checkpoint, _folder) = random(architecture);
        let resident = options(Mode::Fast, WeightsMemory::All);
        let on_disk = rules(&rule("kind: [attention, dense, shared_expert, head]", "memory: disk"));
        let streamed = LoadOptions { placement: Some(Arc::new(on_disk)), ..resident.clone() };
        check(&checkpoint, [&resident, &streamed], 1 << 30, architecture);
    }
}

#[test]
fn converted_experts_are_streamed_from_a_pack() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("qwen3_moe");
    (config.hidden_size, config.intermediate_size) = (64, 96);
    config.experts.as_mut().unwrap().width = 32;
    write(folder.path(), &config, |_, _| {});
    let checkpoint = open(folder.path());
    for ty in ["q8_0", "q4_0"] {
        let text = rule("kind: [attention, dense, routed_expert]", &format!("type: {ty}"));
        let resident = LoadOptions {
            placement: Some(Arc::new(rules(&text))),
            ..options(Mode::Fast, WeightsMemory::All)
        };
        let limited =
            LoadOptions { weights_memory: WeightsMemory::Bytes(100_000), ..resident.clone() };
        let Err(error) = Runner::load(&checkpoint, &limited) else { panic!("there is no pack") };
        assert!(error.to_string().contains("gannet pack"), "{error}");
        let path = folder.path().join("weights.gpack");
        let mut runner = Runner::load(&checkpoint, &resident).unwrap();
        write_pack(&path, &mut runner);
        let all = runner.memory().weights;
        let pack = PackChoice::File(path);
        let streamed = LoadOptions { pack, ..resident.clone() };
        check(&checkpoint, [&resident, &streamed], all - 1, ty);
    }
}

fn write_pack(path: &Path, runner: &mut Runner) {
    let settings = runner.settings();
    let origin = PackOrigin {
        digest: "unknown".to_owned(),
        identity: settings.checkpoint.clone(),
        mode: settings.mode.name().to_owned(),
        isa: settings.identity.clone(),
    };
    let mut writer = PackWriter::create(path, origin).unwrap();
    for part in runner.packed_parts() {
        let bytes = runner.read_packed(&part);
        writer.add(&part.part, &bytes).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn memory_that_is_too_small_is_an_error_with_numbers() {
    let (checkpoint, _folder) = random("qwen3");
    let limited = options(Mode::Fast, WeightsMemory::Bytes(1000));
    let Err(error) = Runner::load(&checkpoint, &limited) else { panic!("it does not fit") };
    let Error::WeightsMemory { resident, all, limit: 1000 } = error else { panic!("{error}") };
    assert_eq!(resident, all);
    // What fits is not streamed.
    let (checkpoint, _folder) = random("qwen3_moe");
    for memory in [WeightsMemory::Auto, WeightsMemory::Bytes(1 << 30)] {
        let runner = Runner::load(&checkpoint, &options(Mode::Fast, memory)).unwrap();
        assert_eq!(runner.stream_stats(), None);
    }
}
