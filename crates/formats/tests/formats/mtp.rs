//! Layers of multi-token prediction: found in checkpoints that have them, by the same names.

use formats::layers::{OpSpec, Presence, TensorSpec};
use formats::{Checkpoint, MtpInput, OpenOptions};
use std::collections::BTreeMap;

const MODELS: &str = "next/models";

fn open(name: &str) -> Option<Checkpoint> {
    let path = fixtures::find(name)?;
    Some(Checkpoint::open(&path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}")))
}

/// Shapes of the tensors after the layers of the model.
fn more(checkpoint: &Checkpoint) -> BTreeMap<String, Vec<usize>> {
    let layers = checkpoint.config().layers.len();
    let is_more = |name: &str| {
        let layer = formats::names::split_canonical(name).map(|(layer, _)| layer.parse::<usize>());
        layer.is_some_and(|layer| layer.unwrap() >= layers)
    };
    let tensors = checkpoint.tensors().filter(|view| is_more(&view.name));
    tensors.map(|view| (view.name.clone(), view.shape.clone())).collect()
}

/// Whether a tensor may be missing, or be stored in another form.
fn is_one_of_two_forms(tensor: &TensorSpec) -> bool {
    tensor.presence != Presence::Required || tensor.name.starts_with("attn_")
}

#[test]
fn each_form_has_the_tensors_of_its_layers() {
    for (name, layers, input) in [
        ("deepseek_v3_mtp", 1, MtpInput::Joined),
        ("glm4_moe_mtp", 2, MtpInput::Joined),
        ("qwen3_next_mtp", 1, MtpInput::Joined),
        ("qwen3_5_mtp", 1, MtpInput::Joined),
        ("deepseek_v4_mtp", 1, MtpInput::Added),
    ] {
        let Some(without) = open(&format!("{MODELS}/{name}")) else { return };
        assert_eq!((without.mtp_layers(), more(&without).len()), (layers, 0), "{name}");
        assert!(without.config().drafter.is_none() && without.mtp_bytes() > 0);
        let checkpoint = without.with_mtp().unwrap();
        let (config, found) = (checkpoint.config(), more(&checkpoint));
        let mtp = config.drafter.as_ref().and_then(|drafter| drafter.mtp()).unwrap();
        assert_eq!((mtp.layers.len(), checkpoint.mtp_layers()), (layers, layers));
        let (mut wanted, mut known) = (BTreeMap::new(), BTreeMap::new());
        for (number, spec) in (config.layers.len()..).zip(&mtp.layers) {
            assert_eq!(spec.input, input);
            let recurs = |op: &OpSpec| matches!(op, OpSpec::Delta(_));
            assert!(!spec.layer.ops().any(recurs), "{name}");
            for tensor in spec.loaded(config.hidden) {
                let list = if is_one_of_two_forms(&tensor) { &mut known } else { &mut wanted };
                list.insert(format!("blk.{number}.{}", tensor.name), tensor.shape);
            }
        }
        let missing: Vec<_> =
            wanted.iter().filter(|(name, _)| !found.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        wanted.extend(known);
        for (tensor, shape) in &found {
            assert_eq!(Some(shape), wanted.get(tensor), "{name}: {tensor}");
        }
    }
}

#[test]
fn a_gguf_file_has_them_by_the_same_names() {
    let Some(file) = open("next/gguf/qwen3_5_mtp-q8_0.gguf") else { return };
    let Some(folder) = open(&format!("{MODELS}/qwen3_5_mtp")) else { return };
    let [file, folder] = [file, folder].map(|it| it.with_mtp().unwrap());
    assert_eq!(more(&file), more(&folder));
    assert_eq!(file.config().drafter, folder.config().drafter);
    let name = "blk.4.nextn.hnorm.weight";
    let [a, b] = [&file, &folder].map(|it| it.tensor(name).unwrap().to_f32().unwrap());
    assert_eq!(a, b);
}

#[test]
fn checkpoints_without_such_layers_say_so() {
    let Some(checkpoint) = open(&format!("{MODELS}/glm4_moe")) else { return };
    assert_eq!((checkpoint.mtp_layers(), checkpoint.mtp_bytes()), (0, 0));
    let error = checkpoint.with_mtp().unwrap_err().to_string();
    assert!(error.contains("glm4_moe") && error.contains("multi-token prediction"), "{error}");
}
