//! Ranks that each have some files of a checkpoint: headers of the others come from ranks that have
//! them, and bits and identity are those of one rank with all files.

use crate::checkpoints::{architectures, config_of, write};
use crate::ranks::{ALONE, bits, lead, led, logits, on_each_in};
use engine::{LoadOptions, Runner};
use formats::safetensors::{INDEX_FILE, SafetensorsWriter};
use formats::{Checkpoint, ModelFiles, OpenOptions, TensorView};
use models::{StageCuts, is_of_stage};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Writes the checkpoint in `whole` into shards, of which each tensor is in that of `shard`, and
/// returns the folders of two ranks: each has the index, the configuration, its own shard and that
/// for both, the third.
fn divide(whole: &Path, shard: impl Fn(&str) -> usize) -> [TempDir; 2] {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let files = ModelFiles::open(whole).unwrap();
    let name = |shard: usize| format!("model-{shard}.safetensors");
    let map: HashMap<&str, String> =
        files.tensors().iter().map(|it| (&*it.source_name, name(shard(&it.source_name)))).collect();
    let index = serde_json::json!({ "weight_map": map }).to_string();
    for (folder, at) in folders.iter().zip(0..).flat_map(|(it, at)| [(it, at), (it, BOTH)]) {
        let own = || files.tensors().iter().filter(|it| shard(&it.source_name) == at);
        let mut writer = SafetensorsWriter::new();
        own().for_each(|it| writer.plan(&it.source_name, it.ty, &it.shape).unwrap());
        let mut stream = writer.create(&folder.path().join(name(at))).unwrap();
        let bytes = |it: &TensorView| it.bytes().read(0..it.bytes().len()).into_owned();
        own().for_each(|it| stream.write(&bytes(it)).unwrap());
        stream.finish().unwrap();
        std::fs::write(folder.path().join(INDEX_FILE), &index).unwrap();
        std::fs::copy(whole.join("config.json"), folder.path().join("config.json")).unwrap();
    }
    folders
}

/// The shard that both ranks have.
const BOTH: usize = 2;

/// The canonical name of each source tensor of a checkpoint; of joined ones one in the same layer.
fn canonical(whole: &Path) -> HashMap<String, String> {
    let checkpoint = Checkpoint::open(whole, &OpenOptions::default()).unwrap();
    let files = ModelFiles::open(whole).unwrap();
    let of_source: HashMap<_, _> =
        checkpoint.tensors().map(|it| (it.source_name.clone(), it.name.clone())).collect();
    // Layers are the first numbers in names.
    let of = |name: &str| {
        let number = name.split('.').find_map(|part| part.parse::<usize>().ok());
        let in_layer = || number.map_or("other".into(), |number| format!("blk.{number}.other"));
        of_source.get(name).cloned().unwrap_or_else(in_layer)
    };
    files.tensors().iter().map(|it| (it.source_name.clone(), of(&it.source_name))).collect()
}

fn identity_and_logits(rank: usize, runner: Runner) -> Option<(String, Vec<u32>)> {
    let name = runner.settings().checkpoint.clone();
    lead(rank, runner, |runner| (name.clone(), bits(&logits(runner))))
}

#[test]
fn halves_of_a_checkpoint_on_two_ranks_give_the_bits_of_one() {
    for architecture in architectures() {
        let config = config_of(architecture, 4);
        if config.is_encoder() {
            continue;
        }
        let whole = tempfile::tempdir().unwrap();
        write(whole.path(), &config, |_, _| {});
        let checkpoint = Checkpoint::open(whole.path(), &OpenOptions::default()).unwrap();
        let Some(&cut) = StageCuts::of(&checkpoint).legal().last() else { continue };
        let names = canonical(whole.path());
        let has = |layers: Range<usize>, name: &str| is_of_stage(&config, &layers, &names[name]);
        let folders = divide(whole.path(), |name| match (has(0..cut, name), has(cut..4, name)) {
            (true, false) => 0,
            (false, true) => 1,
            _ => BOTH,
        });
        let options = |_| LoadOptions::default();
        let alone = led(on_each_in(|_| whole.path().into(), ALONE, identity_and_logits, options));
        // The layers are divided where the files are.
        let own = |rank: usize| -> PathBuf { folders[rank].path().into() };
        let divided = on_each_in(own, [2, 1], identity_and_logits, options);
        assert!(divided.iter().all(Result::is_ok), "{architecture}: {divided:?}");
        let divided = led(divided);
        assert!(divided == alone, "{architecture}");
    }
}

#[test]
fn a_rank_without_a_file_of_its_layers_names_it() {
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), &config_of("qwen3", 4), |_, _| {});
    let folders = divide(whole.path(), |name| name.contains("layers.3.").into());
    let own = |rank: usize| -> PathBuf { folders[rank].path().into() };
    let load = |layers: Option<&[usize]>, stages: usize| {
        let layers = layers.map(<[usize]>::to_vec);
        let options = |_| {
            let ranks = models::Ranks::default().with_stage_layers(layers.clone());
            LoadOptions { ranks, ..LoadOptions::default() }
        };
        on_each_in(own, [stages, 2 / stages], |_, _| (), options)
    };
    let [first, second] = &load(Some(&[2, 2]), 2)[..] else { panic!("two ranks") };
    let message = first.as_ref().unwrap_err();
    let of = "rank 1 (node1), of layers 2 to 3: ";
    let expected = [of, "model-0.safetensors", "layers.2.", "the file is missing"];
    assert!(expected.iter().all(|it| message.contains(it)), "{message}");
    assert!(second.as_ref().unwrap_err().contains("rank 0 has refused"));
    // Slices of one stage need all files.
    let [first, second] = &load(None, 1)[..] else { panic!("two ranks") };
    assert!(first.as_ref().unwrap_err().contains("lack files of layers [0, 1, 2, 3]"));
    assert!(second.as_ref().unwrap_err().contains("rank 0 has refused"));
}

#[test]
fn a_file_that_no_rank_has_is_named() {
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), &config_of("qwen3", 4), |_, _| {});
    let folders = divide(whole.path(), |name| name.contains("layers.3.").into());
    std::fs::remove_file(folders[1].path().join("model-1.safetensors")).unwrap();
    let own = |rank: usize| -> PathBuf { folders[rank].path().into() };
    let found = on_each_in(own, [2, 1], |_, _| (), |_| LoadOptions::default());
    let message = found[0].as_ref().unwrap_err();
    assert!(message.contains("no rank has the file model-1.safetensors"), "{message}");
}
