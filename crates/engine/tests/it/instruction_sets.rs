//! Every instruction set of this CPU gives the same bits, unless products of BF16 are allowed.

use crate::checkpoints::{architectures, least, open, random};
use crate::placement::{BUILT_IN_Q8_0, rule, rules};
use backend::{Backend, Bits, CPU, Cpu, Device, DeviceChoice, DeviceOptions, Mode, REFERENCE};
use base::Rng;
use engine::{LoadOptions, Runner, SingleSequence, WeightsMemory};
use formats::Checkpoint;
use kernels::kv::KvType;
use kernels::quant::TYPES;
use kernels::{Arithmetic, Isa};
use std::path::Path;
use std::sync::Arc;

pub const BUILT_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");

/// CPUs with the instruction set that `which` names.
static WITH_ISA: Device = Device {
    name: "cpu",
    is_gpu: false,
    list: Vec::new,
    open: |options: &DeviceOptions<'_>| -> Result<Box<dyn Backend>, backend::Error> {
        let isa = Isa::available().into_iter().find(|isa| Some(isa.name()) == options.which);
        let isa = options.bits.limit(isa.expect("it is available"));
        Ok(Box::new(Cpu::with_isa(options.threads, options.mode, isa)?))
    },
};

/// The device that computes with `isa`.
pub fn cpu_with(isa: Isa) -> DeviceChoice {
    DeviceChoice { device: &WITH_ISA, which: Some(isa.name().to_owned()) }
}

/// Options of a model on one thread with portable bits.
pub fn portable(isa: Isa, mode: Mode) -> LoadOptions {
    LoadOptions {
        device: cpu_with(isa),
        mode,
        bits: Bits::Portable,
        threads: 1,
        context: Some(128),
        chunk: Some(16),
        logit_rows: 8,
        ..LoadOptions::default()
    }
}

/// Logits of a prompt in chunks, of tokens one by one, and of several rows of one batch; all of
/// them read what those before have stored.
pub fn logits(checkpoint: &Checkpoint, options: &LoadOptions) -> Vec<u32> {
    let mut runner = Runner::load(checkpoint, options).unwrap();
    let vocab = checkpoint.config().vocab.min(131) as u64;
    let mut rng = Rng::new(31);
    let tokens: Vec<u32> = (0..56).map(|_| rng.below(vocab) as u32).collect();
    let mut sequence = SingleSequence::new(&mut runner);
    let mut all = sequence.feed(&tokens[..45], 16).unwrap().to_vec();
    for token in &tokens[45..50] {
        all.extend_from_slice(sequence.feed(&[*token], 1).unwrap());
    }
    let rest = sequence.feed_all(&tokens[50..], |_, logits| {
        all.extend_from_slice(logits);
        Ok(())
    });
    rest.unwrap();
    all.iter().map(|logit| logit.to_bits()).collect()
}

/// Checks that all instruction sets give the bits of scalar code.
fn check(name: &str, checkpoint: &Checkpoint, of: impl Fn(Isa) -> LoadOptions) {
    let want = logits(checkpoint, &of(Isa::SCALAR));
    for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::SCALAR) {
        assert!(logits(checkpoint, &of(isa)) == want, "{name} with {isa:?}");
    }
}

#[test]
fn every_instruction_set_of_this_cpu_gives_the_same_bits() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        for mode in [Mode::Exact, Mode::Fast] {
            check(&format!("{architecture} {mode:?}"), &checkpoint, |isa| portable(isa, mode));
        }
    }
}

#[test]
fn every_storage_type_gives_the_same_bits_on_every_instruction_set() {
    let checkpoint = open(Path::new(BUILT_IN));
    for ty in TYPES.iter().filter(|ty| ty.quantize.is_some()) {
        // One matrix: the search for codes of some types takes long.
        let rules = Arc::new(rules(&rule("name: 'blk.1.attn_q.w'", &format!("type: {ty}"))));
        for mode in [Mode::Exact, Mode::Fast] {
            let placement = Some(Arc::clone(&rules));
            check(&format!("{ty} {mode:?}"), &checkpoint, |isa| LoadOptions {
                placement: placement.clone(),
                ..portable(isa, mode)
            });
        }
    }
}

#[test]
fn every_type_of_the_cache_gives_the_same_bits_on_every_instruction_set() {
    let checkpoint = open(Path::new(BUILT_IN));
    for ty in [KvType::F32, KvType::Bf16, KvType::F16, KvType::Q8_0] {
        check(&format!("{ty:?}"), &checkpoint, |isa| LoadOptions {
            kv_type: Some(ty),
            ..portable(isa, Mode::Fast)
        });
    }
}

/// Weights in bytes need no products of BF16, and so attention uses none either.
#[test]
fn quantised_models_are_portable_as_they_are() {
    let checkpoint = open(Path::new(BUILT_IN_Q8_0));
    check("Q8_0", &checkpoint, |isa| LoadOptions {
        bits: Bits::Fastest,
        ..portable(isa, Mode::Fast)
    });
    for isa in Isa::available() {
        let options = LoadOptions { bits: Bits::Fastest, ..portable(isa, Mode::Fast) };
        let runner = Runner::load(&checkpoint, &options).unwrap();
        assert_eq!(runner.settings().arithmetic, "bytes+f32", "{isa:?}");
    }
}

/// The device is opened again for weights that do not fit.
#[test]
fn quantised_models_are_portable_where_weights_are_read_from_disk() {
    let checkpoint = open(Path::new(BUILT_IN_Q8_0));
    let options = |isa| LoadOptions { bits: Bits::Fastest, ..portable(isa, Mode::Fast) };
    let in_memory = logits(&checkpoint, &options(Isa::SCALAR));
    for isa in Isa::available() {
        let memory = WeightsMemory::Bytes(least(&checkpoint, &options(isa)));
        let streamed = LoadOptions { weights_memory: memory, ..options(isa) };
        assert!(Runner::load(&checkpoint, &streamed).unwrap().stream_stats().is_some());
        assert!(logits(&checkpoint, &streamed) == in_memory, "{isa:?}");
    }
}

#[test]
fn arithmetic_that_other_cpus_lack_is_named() {
    let checkpoint = open(Path::new(BUILT_IN));
    let name = |isa, mode, bits| {
        let options = LoadOptions { bits, ..portable(isa, mode) };
        Runner::load(&checkpoint, &options).unwrap().settings().arithmetic.clone()
    };
    for isa in Isa::available() {
        let fastest = name(isa, Mode::Fast, Bits::Fastest);
        assert_eq!(Arithmetic::is_portable_name(&fastest), !isa.has_bf16_dot(), "{isa:?}");
        assert_eq!(name(isa, Mode::Fast, Bits::Portable), "f32");
        assert_eq!(name(isa, Mode::Exact, Bits::Fastest), "f32");
    }
}

#[test]
fn options_that_the_device_does_not_follow_are_warned_of() {
    let checkpoint = open(Path::new(BUILT_IN));
    let warned = |device: &'static Device, bits, memory| {
        let options = LoadOptions {
            device: DeviceChoice { device, which: None },
            mode: Mode::Exact,
            bits,
            device_memory: memory,
            threads: 1,
            context: Some(64),
            ..LoadOptions::default()
        };
        let runner = Runner::load(&checkpoint, &options).unwrap();
        let has = |option: &str| runner.warnings().iter().any(|line| line.starts_with(option));
        [has("--bits portable has no effect"), has("--device-memory has no effect")]
    };
    assert_eq!(warned(&CPU, Bits::Portable, None), [false, false]);
    assert_eq!(warned(&REFERENCE, Bits::Fastest, None), [false, false]);
    assert_eq!(warned(&REFERENCE, Bits::Portable, None), [true, false]);
    assert_eq!(warned(&CPU, Bits::Portable, Some(1 << 30)), [false, true]);
}
