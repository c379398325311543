//! The bits of the built-in model, in each mode on each instruction set: they change only together
//! with `kernels::ARITHMETIC`, because numbers on disk are found by it.

use backend::Mode;
use backend::{Backend, Cpu, Device, DeviceChoice, DeviceOptions};
use engine::{LoadOptions, Runner, SingleSequence};
use formats::{Checkpoint, OpenOptions};
use kernels::Isa;
use sha2::{Digest, Sha256};

/// Version of the arithmetic of which the digests are.
const VERSION: u32 = 2;
/// Digest of what the machine contributes to portable code. On others, where sines and cosines
/// differ, all bits may, and nothing is compared.
const MACHINE: &str = "758b2571b9fb929a";

/// The digest of all logits, where it is known.
fn golden(mode: Mode, isa: Isa) -> Option<&'static str> {
    if machine() != MACHINE {
        return None;
    }
    Some(match (mode, isa.name()) {
        (Mode::Exact, _) => "6511f5c51cf5d366",
        (Mode::Fast, "amx") => "920e517216835b39",
        (Mode::Fast, "avx512bf16") => "592b10e1c39aea23",
        (Mode::Fast, _) => "1e1194d8d3bfab1c",
    })
}

/// The built-in model, in its types.
const MODELS: [&str; 2] = ["tiny-q8_0.gguf", "model.safetensors"];

/// CPUs with a chosen instruction set.
static WITH_ISA: Device = Device {
    name: "cpu",
    is_gpu: false,
    list: Vec::new,
    open: |options: &DeviceOptions<'_>| -> Result<Box<dyn Backend>, backend::Error> {
        let isa = Isa::available().into_iter().find(|isa| Some(isa.name()) == options.which);
        Ok(Box::new(Cpu::with_isa(1, options.mode, isa.expect("it is available"))?))
    },
};

fn digest(isa: Isa, mode: Mode) -> String {
    let mut hash = Sha256::new();
    for model in MODELS {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny/").to_owned() + model;
        let path = path.strip_suffix("/model.safetensors").unwrap_or(&path);
        let which = Some(isa.name().to_owned());
        let device = DeviceChoice { device: &WITH_ISA, which };
        let options = LoadOptions { device, mode, threads: 1, ..LoadOptions::default() };
        let checkpoint = Checkpoint::open(path.as_ref(), &OpenOptions::default()).unwrap();
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        let mut sequence = SingleSequence::new(&mut runner);
        // A prompt longer than a block, in two chunks, and tokens one by one.
        let prompt: Vec<u32> = (0..75).map(|at| at * 37 % 500).collect();
        for tokens in [&prompt[..50], &prompt[50..], &[7], &[8]] {
            let logits = sequence.feed(tokens, 64).unwrap();
            logits.iter().for_each(|logit| hash.update(logit.to_le_bytes()));
        }
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digest of what the machine contributes to portable code.
fn machine() -> String {
    let hash = kernels::fingerprint(Isa::SCALAR)
        .iter()
        .fold(Sha256::new(), |hash, value| hash.chain_update(value.to_le_bytes()));
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn bits_change_only_with_the_version_of_the_arithmetic() {
    let all = Isa::available().into_iter();
    let all = all.flat_map(|isa| [Mode::Exact, Mode::Fast].map(|mode| (mode, isa)));
    let found: Vec<_> = all.map(|(mode, isa)| (mode, isa, digest(isa, mode))).collect();
    let mut known = found
        .iter()
        .map(|(mode, isa, digest)| golden(*mode, *isa).is_none_or(|golden| golden == digest));
    assert!(
        kernels::ARITHMETIC == VERSION && known.all(|same| same),
        "the model computes other bits than before, or the version of the arithmetic was raised: \
         raise kernels::ARITHMETIC once for all changes, and set VERSION and the digests to \
         {found:#?}"
    );
}
