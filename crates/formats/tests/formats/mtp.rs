//! Layers of multi-token prediction: found in checkpoints that have them, by the same names.

use formats::gguf::GgufWriter;
use formats::layers::{Chooser, OpSpec, Presence, TensorForm, TensorSpec};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, MtpInput, MtpSpec, OpenOptions, families, names};
use kernels::quant::{self, F32};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

const MODELS: &str = "next/models";

fn open(name: &str) -> Option<Checkpoint> {
    let path = fixtures::find(name)?;
    Some(Checkpoint::open(&path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}")))
}

/// Whether the tensor with this canonical name is of a layer after the layers of the model.
fn is_more(config: &ModelConfig, name: &str) -> bool {
    let layer = names::split_canonical(name).map(|(layer, _)| layer.parse::<usize>());
    layer.is_some_and(|layer| layer.unwrap() >= config.layers.len())
}

/// Shapes of the tensors after the layers of the model.
fn more(checkpoint: &Checkpoint) -> BTreeMap<String, Vec<usize>> {
    let tensors = checkpoint.tensors().filter(|view| is_more(checkpoint.config(), &view.name));
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

/// A small model of every family with such layers, of which it has two.
fn predicting() -> impl Iterator<Item = ModelConfig> {
    families::names().filter_map(|name| ModelConfig::tiny(name, 3)?.with_mtp(2))
}

fn specs(config: &ModelConfig) -> &[MtpSpec] {
    config.drafter.as_ref().map_or(&[], |drafter| drafter.specs())
}

#[test]
fn written_gguf_files_of_every_family_have_the_same_layers() {
    let mut found = Vec::new();
    for config in predicting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let mut writer = GgufWriter::new();
        config.to_gguf(&mut writer).unwrap();
        for (name, shape) in config.tensors(TensorForm::Gguf) {
            let ty = if names::holds_ids(&name) { quant::by_name("i32").unwrap() } else { &F32 };
            writer.plan(&config.gguf_tensor_name(&name), ty, &shape).unwrap();
        }
        let mut stream = writer.create(&path).unwrap();
        while let Some((_, missing)) = stream.next() {
            stream.write(&vec![0; missing]).unwrap();
        }
        stream.finish().unwrap();
        let name = &config.architecture;
        let without = Checkpoint::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!((without.mtp_layers(), more(&without).len()), (2, 0), "{name}");
        let checkpoint = without.with_mtp().unwrap();
        assert_eq!(specs(checkpoint.config()), specs(&config), "{name}");
        let read = checkpoint.config().tensors(TensorForm::ReadGguf).into_iter();
        let wanted: BTreeMap<_, _> = read.filter(|(name, _)| is_more(&config, name)).collect();
        assert_eq!(more(&checkpoint), wanted, "{name}");
        found.push(config.architecture);
    }
    assert!(found.len() >= 9, "{found:?}");
}

#[test]
fn layers_have_an_index_of_their_own_whichever_layer_of_the_model_has_one() {
    let mut indexed = 0;
    for own in predicting().filter(|config| config.hyperparameters().index.is_some()) {
        let shared = own.with(|said| {
            let index = said.index.as_mut().unwrap();
            index.layers = vec![true, false, false];
        });
        let latent = |layer: &formats::layers::Layer| match layer.ops().next() {
            Some(OpSpec::Latent(spec)) => spec.chosen.clone().unwrap().by,
            other => panic!("{other:?}"),
        };
        assert_eq!(latent(&shared.layers[2]), Chooser::Layer(0));
        for spec in specs(&shared) {
            assert!(matches!(latent(&spec.layer), Chooser::Index(_)), "{}", own.architecture);
        }
        assert_eq!(specs(&shared), specs(&own));
        indexed += 1;
    }
    assert!(indexed >= 2);
}

/// A checkpoint of Nemotron 3 with a tensor of such layers, of which config.json says this.
fn nemotron(folder: &Path, layers: usize, field: &str, kinds: Json) -> Checkpoint {
    let config = ModelConfig::tiny("nemotron_h", layers).unwrap();
    let mut json = config.to_hf_json().unwrap();
    json[field] = kinds;
    std::fs::write(folder.join("config.json"), json.to_string()).unwrap();
    let names = families::name_table("nemotron_h").unwrap();
    let tensors = config.tensors(TensorForm::Hf).into_iter();
    let mut tensors: Vec<_> =
        tensors.map(|(name, shape)| (names.source(&name).unwrap(), shape)).collect();
    tensors.push(("mtp.layers.0.norm.weight".to_owned(), vec![config.hidden]));
    tensors.push(("mtp.layers.0.eh_proj.weight".to_owned(), vec![config.hidden; 2]));
    let mut writer = SafetensorsWriter::new();
    for (name, shape) in &tensors {
        writer.plan(name, &F32, shape).unwrap();
    }
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    for (_, shape) in tensors {
        stream.write(&vec![0; 4 * shape.iter().product::<usize>()]).unwrap();
    }
    stream.finish().unwrap();
    Checkpoint::open(folder, &OpenOptions::default()).unwrap()
}

#[test]
fn layers_of_other_kinds_are_refused_by_their_field_and_the_model_opens() {
    const PATTERN: &str = "mtp_hybrid_override_pattern";
    const TYPES: &str = "mtp_layers_block_type";
    // The model of three layers has experts, that of two has none.
    for (layers, field, kinds, expected, found) in [
        (3, PATTERN, json!("*M"), "experts (*E)", "*M"),
        (3, PATTERN, json!("*-"), "experts (*E)", "*-"),
        (3, PATTERN, json!("*E*E"), "experts (*E)", "*E*E"),
        (2, PATTERN, json!("*E"), "an MLP (*-)", "*E"),
        (3, TYPES, json!(["attention", "mamba"]), "experts (*E)", "[\"attention\",\"mamba\"]"),
        (3, TYPES, json!(["attention", 7]), "experts (*E)", "[\"attention\",7]"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = nemotron(folder.path(), layers, field, kinds);
        assert_eq!(checkpoint.mtp_layers(), 0);
        let error = checkpoint.with_mtp().unwrap_err().to_string();
        let problem = format!("{field}: expected attention and then {expected}, found {found}");
        assert!(error.contains("config.json: ") && error.ends_with(&problem), "{error}");
    }
    for (layers, field, kinds) in [
        (3, PATTERN, json!("*E")),
        (2, PATTERN, json!("*-")),
        (3, TYPES, json!(["attention", "moe"])),
        (3, TYPES, json!(["full_attention", "moe"])),
        (3, TYPES, Json::Null),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = nemotron(folder.path(), layers, field, kinds);
        assert_eq!(checkpoint.mtp_layers(), 1);
        // The other tensors are missing.
        let error = checkpoint.with_mtp().unwrap_err().to_string();
        assert!(error.contains(&format!("blk.{layers}.")), "{error}");
    }
}

#[test]
fn checkpoints_without_such_layers_say_so() {
    let Some(checkpoint) = open(&format!("{MODELS}/glm4_moe")) else { return };
    assert_eq!((checkpoint.mtp_layers(), checkpoint.mtp_bytes()), (0, 0));
    let error = checkpoint.with_mtp().unwrap_err().to_string();
    assert!(error.contains("glm4_moe") && error.contains("multi-token prediction"), "{error}");
}
