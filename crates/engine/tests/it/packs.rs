//! Packed weights of a file give the bits of weights that are packed when they are used, and files
//! of other models, modes and layouts are not used.

use crate::checkpoints::{architectures, config, open, random, write};
use crate::instruction_sets::{BUILT_IN, portable};
use crate::placement::{BUILT_IN_Q8_0, rule, rules};
use backend::{Bits, Mode};
use engine::{LoadOptions, PackChoice, Runner, SingleSequence};
use formats::{Checkpoint, PackFile, PackOrigin, PackPart, PackWriter};
use kernels::Isa;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TOKENS: usize = 40;

/// A random checkpoint whose matrices are whole blocks of 32 values, with experts.
fn blocks() -> (Checkpoint, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = config("qwen3_moe").with(|said| {
        (said.hidden_size, said.intermediate_size) = (64, 96);
        said.experts.as_mut().unwrap().width = 32;
    });
    write(folder.path(), &config, |_, _| {});
    (open(folder.path()), folder)
}

/// Loads a model with its large matrices in the type `ty`, or in their own.
fn load(checkpoint: &Checkpoint, pack: PackChoice, ty: &str) -> Result<Runner, String> {
    let text = rule("kind: [attention, dense, routed_expert]", &format!("type: {ty}"));
    let options = LoadOptions {
        threads: 2,
        context: Some(64),
        pack,
        placement: Some(Arc::new(rules(&text))),
        ..LoadOptions::default()
    };
    Runner::load(checkpoint, &options).map_err(|error| error.to_string())
}

/// Bits of the logits of the last token of a prompt and of the next one.
fn logits(mut runner: Runner) -> Vec<u32> {
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| i * 37 % 131).collect();
    let mut sequence = SingleSequence::new(&mut runner);
    let mut all = sequence.feed(&tokens, 16).unwrap().to_vec();
    all.extend_from_slice(sequence.feed(&[5], 1).unwrap());
    all.iter().map(|logit| logit.to_bits()).collect()
}

/// Writes the packed weights of a model, changed by `change`, and returns how many parts they have.
fn write_pack(path: &Path, runner: &mut Runner, change: impl Fn(&mut PackOrigin)) -> usize {
    write_parts(path, runner, change, |_| {})
}

/// The same with every part changed by `change_part`.
fn write_parts(
    path: &Path,
    runner: &mut Runner,
    change: impl Fn(&mut PackOrigin),
    change_part: impl Fn(&mut PackPart),
) -> usize {
    let settings = runner.settings();
    let mut origin = PackOrigin {
        digest: "unknown".to_owned(),
        identity: settings.checkpoint.clone(),
        mode: settings.mode.name().to_owned(),
        arithmetic: settings.arithmetic.clone(),
    };
    change(&mut origin);
    let mut writer = PackWriter::create(path, origin).unwrap();
    let parts = runner.packed_parts();
    for part in &parts {
        let bytes = runner.read_packed(part);
        assert_eq!(bytes.len(), part.bytes);
        let mut written = part.part.clone();
        change_part(&mut written);
        writer.add(&written, &bytes).unwrap();
    }
    writer.finish().unwrap();
    parts.len()
}

fn pack_path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("weights.gpack")
}

/// Weights that a file holds packed give the bits of weights that are packed when they are used.
fn check_bits(checkpoint: &Checkpoint, ty: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let mut runner = load(checkpoint, PackChoice::Off, ty).unwrap();
    let parts = write_pack(&path, &mut runner, |_| {});
    let mut packed = load(checkpoint, PackChoice::File(path), ty).unwrap();
    assert_eq!(packed.packed_parts().len(), parts);
    let unprepared = load(checkpoint, PackChoice::Off, ty).unwrap();
    let expected = logits(unprepared);
    assert_eq!(logits(packed), expected, "{ty}");
    assert_eq!(logits(runner), expected, "{ty}");
    parts
}

#[test]
fn packed_weights_of_a_file_give_the_bits_of_packing_in_every_architecture() {
    for architecture in architectures() {
        // Those of BF16: the layout depends on whether the CPU has products of them.
        check_bits(&random(architecture).0, "keep");
    }
}

#[test]
fn packed_weights_of_a_file_give_the_bits_of_packing_in_every_kind_of_type() {
    let built_in = open(Path::new(BUILT_IN_Q8_0));
    for ty in ["keep", "bf16", "q4_k", "q6_k"] {
        let parts = check_bits(&built_in, ty);
        assert!(parts > 0 || ty == "bf16", "{ty}");
    }
    assert!(check_bits(&blocks().0, "q8_0") > 36, "those of six experts in two layers");
}

#[test]
fn weights_of_a_file_are_used_and_not_those_of_the_model() {
    let (checkpoint, _kept) = blocks();
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let mut runner = load(&checkpoint, PackChoice::Off, "q8_0").unwrap();
    write_pack(&path, &mut runner, |_| {});
    let pack = PackFile::open(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    pack.parts().iter().for_each(|part| bytes[part.range.clone()].fill(0));
    std::fs::write(&path, bytes).unwrap();
    let changed = load(&checkpoint, PackChoice::File(path.clone()), "q8_0").unwrap();
    assert_ne!(logits(changed), logits(runner));
}

#[test]
fn matrices_in_another_type_than_the_files_are_those_of_the_model() {
    let built_in = open(Path::new(BUILT_IN_Q8_0));
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let mut runner = load(&built_in, PackChoice::Off, "keep").unwrap();
    write_pack(&path, &mut runner, |_| {});
    let is_of_layer = |part: &&PackPart| part.name.starts_with("blk.");
    let pack = PackFile::open(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    pack.parts().iter().filter(is_of_layer).for_each(|part| bytes[part.range.clone()].fill(0));
    std::fs::write(&path, bytes).unwrap();
    let off = load(&built_in, PackChoice::Off, "q4_0").unwrap();
    let other = load(&built_in, PackChoice::File(path), "q4_0").unwrap();
    assert_eq!(logits(other), logits(off));
}

#[test]
fn files_that_do_not_fit_are_errors_where_named_and_otherwise_not_used() {
    let (checkpoint, kept) = blocks();
    let mut runner = load(&checkpoint, PackChoice::Off, "q8_0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let check = |expected: &str| {
        let error = load(&checkpoint, PackChoice::File(path.clone()), "q8_0").unwrap_err();
        assert_eq!(error, format!("{}: {expected}", path.display()));
        // Beside the model it is not used.
        let beside = kept.path().join("other.gpack");
        std::fs::copy(&path, &beside).unwrap();
        assert!(load(&checkpoint, PackChoice::Auto(None), "q8_0").is_ok());
        std::fs::remove_file(beside).unwrap();
    };
    let identity = runner.settings().checkpoint.clone();
    write_pack(&path, &mut runner, |origin| origin.identity = "another".into());
    check(&format!("expected packed weights of a model with identity {identity}, found another"));
    write_pack(&path, &mut runner, |origin| origin.mode = "exact".into());
    check("expected packed weights for mode fast, found exact");
    write_pack(&path, &mut runner, |_| {});
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(&path, &bytes).unwrap();
    let error = load(&checkpoint, PackChoice::File(path.clone()), "q8_0").unwrap_err();
    assert!(error.contains("expected a table at the end"), "{error}");
}

#[test]
fn a_layout_that_this_machine_does_not_read_is_named() {
    let (checkpoint, _kept) = blocks();
    let mut runner = load(&checkpoint, PackChoice::Off, "q8_0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let sme = |origin: &mut PackOrigin| origin.arithmetic = "sme".into();
    write_parts(&path, &mut runner, sme, |part| part.layout = "int8-sme".into());
    let isa = runner.isa();
    let first = runner.packed_parts().remove(0);
    let part = &first.part;
    let error = load(&checkpoint, PackChoice::File(path.clone()), "q8_0").unwrap_err();
    let (ty, layout, bytes, path) = (part.ty, &part.layout, first.bytes, path.display());
    assert_eq!(
        error,
        format!(
            "{path}: part {part}: expected weights of type {ty} in layout {layout}, as {isa} reads \
             them, found layout int8-sme of {bytes} bytes, packed for sme"
        )
    );
}

#[test]
fn a_file_for_portable_bits_is_read_by_every_instruction_set() {
    let checkpoint = open(Path::new(BUILT_IN));
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let load = |isa, bits, pack| {
        Runner::load(&checkpoint, &LoadOptions { bits, pack, ..portable(isa, Mode::Fast) })
    };
    let mut runner = load(Isa::SCALAR, Bits::Portable, PackChoice::Off).unwrap();
    assert!(write_pack(&path, &mut runner, |_| {}) > 0);
    let expected = logits(runner);
    for isa in Isa::available() {
        let file = || PackChoice::File(path.clone());
        assert_eq!(logits(load(isa, Bits::Portable, file()).unwrap()), expected, "{isa:?}");
        assert_eq!(load(isa, Bits::Fastest, file()).is_ok(), !isa.has_bf16_dot(), "{isa:?}");
    }
}

#[test]
fn a_known_digest_must_be_that_of_the_packed_weights() {
    let (checkpoint, kept) = blocks();
    let digests = kept.path().join("digests.json");
    let files = checkpoint.weight_files();
    let digest = formats::digest_files(&files, Some(&digests), |_| true).unwrap().unwrap();
    let mut runner = load(&checkpoint, PackChoice::Off, "q8_0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = pack_path(&folder);
    let with_digests = |pack| {
        let digests = Some(digests.clone());
        let options = LoadOptions { context: Some(64), pack, digests, ..LoadOptions::default() };
        Runner::load(&checkpoint, &options).map(drop).map_err(|error| error.to_string())
    };
    write_pack(&path, &mut runner, |origin| origin.digest = digest.clone());
    assert_eq!(with_digests(PackChoice::File(path.clone())), Ok(()));
    write_pack(&path, &mut runner, |_| {});
    let problem = format!("expected packed weights of files with digest {digest}, found unknown");
    let error = with_digests(PackChoice::File(path.clone())).unwrap_err();
    assert_eq!(error, format!("{}: {problem}", path.display()));
}

#[test]
fn the_first_file_that_fits_is_found() {
    let (checkpoint, folder) = blocks();
    let mut runner = load(&checkpoint, PackChoice::Off, "q8_0").unwrap();
    let identity = runner.settings().checkpoint.clone();
    let expected = logits(load(&checkpoint, PackChoice::Off, "q8_0").unwrap());
    let found = |folder: Option<&Path>| {
        let runner = load(&checkpoint, PackChoice::Auto(folder.map(Path::to_owned)), "q8_0");
        logits(runner.unwrap())
    };
    // A pack of zeros shows by its logits that it is used.
    let zeros = |path: &Path| {
        let pack = PackFile::open(path).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        pack.parts().iter().for_each(|part| bytes[part.range.clone()].fill(0));
        std::fs::write(path, bytes).unwrap();
    };
    let cache = tempfile::tempdir().unwrap();
    assert_eq!(found(Some(cache.path())), expected);
    let foreign = cache.path().join("foreign.gpack");
    write_pack(&foreign, &mut runner, |_| {});
    zeros(&foreign);
    assert_eq!(found(Some(cache.path())), expected, "its name is not that of the model");
    std::fs::rename(foreign, cache.path().join(format!("{identity}.x.gpack"))).unwrap();
    assert_ne!(found(Some(cache.path())), expected);
    assert_eq!(found(None), expected);
    let beside = folder.path().join("a.gpack");
    write_pack(&beside, &mut runner, |origin| origin.identity = "another".into());
    zeros(&beside);
    assert_eq!(found(None), expected, "it is of another model");
    let beside = folder.path().join("b.gpack");
    write_pack(&beside, &mut runner, |_| {});
    zeros(&beside);
    assert_ne!(found(None), expected);
}
