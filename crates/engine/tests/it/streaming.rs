//! Weights that are read when they are needed: the bits of a resident model, in any memory.

use crate::checkpoints::{architectures, config, config_of, least, open, random, write};
use crate::kinds::converts_experts;
use crate::placement::{rule, rules};
use backend::Mode;
use engine::{Error, KvMemory, LoadOptions, PackChoice, Runner, SingleSequence, WeightsMemory};
use formats::layers::TensorKind;
use formats::{Checkpoint, PackFile, PackOrigin, PackPart, PackWriter};
use models::placement::{Placed, TensorMemory};
use std::ops::Range;
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
    let mut before = 0;
    for memory in [least, most.min(least + least / 4), most] {
        let weights_memory = WeightsMemory::Bytes(memory);
        let options = LoadOptions { weights_memory, ..streamed.clone() };
        let runner = Runner::load(checkpoint, &options).unwrap();
        let (held, stats) = (runner.memory().weights, runner.stream_stats().unwrap());
        let plan = runner.weights_plan();
        let buffers = plan.stream.as_ref().unwrap().buffers;
        assert_eq!((plan.bytes(), plan.limit), (held + buffers, Some(memory)), "{name}");
        assert!(held + buffers <= memory && plan.bytes() >= before, "{name}: {plan:?}, {stats:?}");
        before = plan.bytes();
        assert_eq!(*runner.settings(), settings, "{name}: the settings of the resident model");
        assert!(bits(runner) == expected, "{name} in {memory} bytes");
    }
}

#[test]
fn streamed_equals_resident() {
    let mut checked = 0;
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        if checkpoint.config().hyperparameters().experts.is_none() {
            continue;
        }
        for mode in [Mode::Exact, Mode::Fast] {
            let resident = options(mode, WeightsMemory::All);
            let on_disk = rules(&rule("kind: routed_expert", "memory: disk"));
            let placement = Some(Arc::new(on_disk));
            let streamed = LoadOptions { placement, ..resident.clone() };
            // Its files hold no experts as they are used.
            if converts_experts(architecture) {
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
fn layers_are_streamed_in_every_architecture() {
    let mut checked = 0;
    for architecture in architectures() {
        // Its files hold no experts as they are used, which would be left on disk too.
        if converts_experts(architecture) {
            continue;
        }
        let (checkpoint, _folder) = random(architecture);
        for mode in [Mode::Exact, Mode::Fast] {
            let resident = options(mode, WeightsMemory::All);
            let text = rule("kind: [attention, dense, shared_expert, head]", "memory: disk");
            let placement = Some(Arc::new(rules(&text)));
            let streamed = LoadOptions { placement, ..resident.clone() };
            match Runner::load(&checkpoint, &streamed) {
                // Files of some families hold no matrices as they are used.
                Err(error) => assert!(error.to_string().contains("computed from others")),
                Ok(_) => {
                    check(&checkpoint, [&resident, &streamed], 1 << 30, architecture);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 8, "{checked}");
}

#[test]
fn a_dense_model_streams() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of("qwen3", 9).with(|said| said.intermediate_size = 2000);
    write(folder.path(), &config, |_, _| {});
    let checkpoint = open(folder.path());
    for mode in [Mode::Exact, Mode::Fast] {
        let resident = options(mode, WeightsMemory::All);
        let all = Runner::load(&checkpoint, &resident).unwrap().memory().weights;
        check(&checkpoint, [&resident, &resident], all * 2 / 3, "qwen3");
        let in_pieces = LoadOptions { chunk: Some(5), ..resident.clone() };
        check(&checkpoint, [&resident, &in_pieces], all * 3 / 4, "qwen3");
    }
}

#[test]
fn converted_experts_are_streamed_from_a_pack() {
    for ty in ["q8_0", "q4_0"] {
        let (checkpoint, folder, resident) = converted(ty);
        let limited =
            LoadOptions { weights_memory: WeightsMemory::Bytes(100_000), ..resident.clone() };
        let Err(error) = Runner::load(&checkpoint, &limited) else { panic!("there is no pack") };
        assert!(error.to_string().contains("gannet pack"), "{error}");
        let path = folder.path().join("weights.gpack");
        let mut runner = Runner::load(&checkpoint, &resident).unwrap();
        write_pack(&path, &mut runner);
        // Less than what all weights take beside an embedding on disk.
        let most = runner.memory().weights - embedding(&runner).bytes - 1;
        let pack = PackChoice::File(path);
        let streamed = LoadOptions { pack, ..resident.clone() };
        check(&checkpoint, [&resident, &streamed], most, ty);
    }
}

/// A mixture whose matrices are converted to a type when they are loaded.
fn converted(ty: &str) -> (Checkpoint, tempfile::TempDir, LoadOptions) {
    let folder = tempfile::tempdir().unwrap();
    let config = config("qwen3_moe").with(|said| {
        (said.hidden_size, said.intermediate_size) = (64, 96);
        said.experts.as_mut().unwrap().width = 32;
    });
    write(folder.path(), &config, |_, _| {});
    let checkpoint = open(folder.path());
    let text = rule("kind: [attention, dense, routed_expert]", &format!("type: {ty}"));
    let placement = Some(Arc::new(rules(&text)));
    let options = LoadOptions { placement, ..options(Mode::Fast, WeightsMemory::All) };
    (checkpoint, folder, options)
}

#[test]
fn a_pack_that_is_cut_or_changed_is_refused_or_fails_the_rows_that_need_it() {
    let (checkpoint, folder, resident) = converted("q8_0");
    let path = folder.path().join("weights.gpack");
    let mut runner = Runner::load(&checkpoint, &resident).unwrap();
    write_pack(&path, &mut runner);
    let expected = bits(runner);
    let bytes = std::fs::read(&path).unwrap();
    let parts = PackFile::open(&path).unwrap().parts().to_vec();
    let experts = parts.iter().filter(|part| part.name.contains("_exps"));
    let experts: Vec<_> = experts.collect();
    // The matrices of an expert follow one another.
    let names = |all: &[&PackPart]| all.iter().map(|part| part.to_string()).collect::<Vec<_>>();
    let of = |part: &str| format!("blk.0.ffn_{part}_exps.weight 0");
    assert_eq!(names(&experts[..3]), ["gate", "up", "down"].map(of));
    let near = experts.chunks(3).all(|expert| {
        let gaps = expert.windows(2).map(|two| two[1].range.start - two[0].range.end);
        gaps.max().unwrap() < 4096 && expert[0].range.start.is_multiple_of(4096)
    });
    assert!(near && experts.len() > 30, "{:?}", names(&experts));
    let pack = PackChoice::File(path.clone());
    let weights_memory = WeightsMemory::Bytes(120_000);
    let streamed = LoadOptions { pack, weights_memory, ..resident };
    let end = experts[2].range.end;
    let flips = experts[..3].iter().flat_map(|part| {
        let Range { start, end } = part.range.clone();
        [start, start + 1, (start + end) / 2, end - 1]
    });
    for at in flips.chain([end]) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        std::fs::write(&path, &changed).unwrap();
        let mut runner = Runner::load(&checkpoint, &streamed).unwrap();
        if at == end {
            // Between parts.
            assert!(bits(runner) == expected);
            continue;
        }
        let prompt: Vec<u32> = (0..TOKENS).map(|i| i * 37 % 131).collect();
        let failed = SingleSequence::new(&mut runner).feed(&prompt, 128).unwrap_err();
        let Error::Backend(backend::Error::Weights { rows, source }) = failed else {
            panic!("{failed}")
        };
        assert!(!rows.is_empty() && source.to_string().contains("checksum"), "{rows:?} {source}");
    }
    for cut in [0, 4096, end - 1, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let Err(error) = Runner::load(&checkpoint, &streamed) else { panic!("cut at {cut}") };
        assert!(error.to_string().contains("weights.gpack"), "{error}");
    }
}

/// The placement of the embedding of a loaded model.
fn embedding(runner: &Runner) -> &Placed {
    let placed = &runner.weights_plan().placed;
    placed.iter().find(|placed| placed.kind == TensorKind::Embed).unwrap()
}

#[test]
fn rows_of_an_embedding_on_disk_give_the_same_bits() {
    let mut shared = 0;
    for (mode, tied) in [(Mode::Exact, false), (Mode::Fast, false), (Mode::Exact, true)] {
        let folder = tempfile::tempdir().unwrap();
        let config = config("llama").with(|said| said.tied_embeddings = tied);
        write(folder.path(), &config, |_, _| {});
        let checkpoint = open(folder.path());
        let load = |memory, text: &str| {
            let placement = Some(Arc::new(rules(text)));
            Runner::load(&checkpoint, &LoadOptions { placement, ..options(mode, memory) })
        };
        let all = load(WeightsMemory::All, "").unwrap();
        let less = WeightsMemory::Bytes(all.memory().weights - 1);
        assert_eq!(embedding(&all).memory, TensorMemory::Mapped);
        let ruled = load(less, &rule("kind: embed", "memory: mapped"));
        assert!(matches!(ruled, Err(Error::WeightsMemory { .. })), "the rule wins");
        let less = load(less, "");
        if tied {
            // The head multiplies with the same bytes.
            assert!(matches!(less, Err(Error::WeightsMemory { .. })));
            shared += 1;
            continue;
        }
        let less = less.unwrap();
        assert_eq!(embedding(&less).memory, TensorMemory::Disk);
        assert!(less.memory().weights < all.memory().weights);
        assert!(bits(less) == bits(all), "{mode:?}");
    }
    assert_eq!(shared, 1);
}

#[test]
fn the_cache_is_sized_before_weights_and_errors_name_all_sizes() {
    let (checkpoint, _folder) = random("qwen3_moe");
    let available = 3 << 30;
    let options = LoadOptions {
        simulate_memory: Some(available),
        kv_memory: KvMemory::Bytes(available - (1 << 16)),
        context: None,
        ..options(Mode::Fast, WeightsMemory::Auto)
    };
    // There is enough for all weights, and for the cache, but not for both.
    let Err(error) = Runner::load(&checkpoint, &options) else { panic!("it does not fit") };
    let Error::WeightsMemory { least, all, limit: 0, beside } = &error else { panic!("{error}") };
    assert!(least < all, "the least is a part");
    assert!(beside.contains(&available.to_string()) && beside.contains("KV cache"), "{error}");
    let more = LoadOptions { kv_memory: KvMemory::Bytes(1 << 30), ..options };
    let runner = Runner::load(&checkpoint, &more).unwrap();
    assert_eq!(runner.stream_stats(), None);
}

fn write_pack(path: &Path, runner: &mut Runner) {
    let settings = runner.settings();
    let origin = PackOrigin {
        digest: "unknown".to_owned(),
        identity: settings.checkpoint.clone(),
        mode: settings.mode.name().to_owned(),
        arithmetic: settings.arithmetic.clone(),
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
    let Error::WeightsMemory { least, all, limit: 1000, .. } = error else { panic!("{error}") };
    assert!(least > 1000 && all > 1000, "{least} of {all}");
    // What fits is not streamed.
    let (checkpoint, _folder) = random("qwen3_moe");
    for memory in [WeightsMemory::Auto, WeightsMemory::Bytes(1 << 30)] {
        let runner = Runner::load(&checkpoint, &options(Mode::Fast, memory)).unwrap();
        assert_eq!(runner.stream_stats(), None);
    }
}
