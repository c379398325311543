//! The bits of small models: they change only together with `kernels::ARITHMETIC`, because numbers
//! on disk are found by it, and every machine computes the same.

use crate::checkpoints::{architectures, open, random};
use crate::instruction_sets::{logits, portable};
use backend::Mode;
use engine::LoadOptions;
use formats::Checkpoint;
use kernels::Isa;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Version of the arithmetic of which the digests are.
const VERSION: u32 = 3;
/// Digests of logits, one line for each model and mode.
const GOLDENS: &str = include_str!("../data/logits.txt");
/// The built-in model in its types: names, and paths below its folder.
const BUILT_IN: [(&str, &str); 2] = [("tiny/tiny-q8_0.gguf", "tiny-q8_0.gguf"), ("tiny", "")];

fn digest(checkpoint: &Checkpoint, options: &LoadOptions) -> String {
    let bits = logits(checkpoint, options).into_iter();
    let hash = bits.fold(Sha256::new(), |hash, bits| hash.chain_update(bits.to_le_bytes()));
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines of all models, with the instruction set that is chosen for this machine.
fn found() -> String {
    let isa = Isa::detect().unwrap();
    let line = |name: &str, checkpoint: &Checkpoint| {
        let digest = |mode| digest(checkpoint, &portable(isa, mode));
        format!("{name} {} {}\n", digest(Mode::Exact), digest(Mode::Fast))
    };
    let built_in = BUILT_IN.map(|(name, file)| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model/").to_owned() + file;
        line(name, &open(Path::new(&path)))
    });
    let families = architectures().map(|name| line(name, &random(name).0));
    built_in.into_iter().chain(families).collect()
}

/// The digests are of no machine in particular: a CPU of any kind checks the same ones.
#[test]
fn goldens_of_logits_hold_on_every_machine() {
    let found = found();
    let same = found.lines().eq(GOLDENS.lines().filter(|line| !line.starts_with('#')));
    assert!(
        kernels::ARITHMETIC == VERSION && same,
        "models compute other bits than before, or the version of the arithmetic was raised: raise \
         kernels::ARITHMETIC once for all changes, and set VERSION and tests/data/logits.txt to\n\
         {found}"
    );
}
