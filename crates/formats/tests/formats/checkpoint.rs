//! What a checkpoint promises its reader, on small checkpoints written here.

use std::path::Path;

use crate::common::read_all;
use formats::families::{self, name_table};
use formats::gguf::{Array, GgufFile, GgufWriter, Value};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, ModelFiles, OpenOptions};
use kernels::quant::{BF16, F32, by_name};
use serde_json::{Value as Json, json};

fn config(class: &str) -> Json {
    json!({
        "architectures": [class], "hidden_size": 8, "intermediate_size": 16, "vocab_size": 10,
        "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "head_dim": 4
    })
}

/// Writes a checkpoint of zeros; `edit` changes its list of (source name, shape).
fn write(folder: &Path, config: &Json, edit: impl Fn(&mut Vec<(String, Vec<usize>)>)) {
    let path = folder.join("config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let model = ModelConfig::from_hf_json(&config.to_string(), &path).unwrap();
    let names = name_table(&model.architecture).unwrap();
    let source = |(name, shape): (String, _)| (names.source(&name).unwrap(), shape);
    let mut tensors: Vec<_> =
        model.tensors(formats::layers::TensorForm::Hf).into_iter().map(source).collect();
    edit(&mut tensors);
    write_safetensors(&folder.join("model.safetensors"), &tensors);
}

fn write_safetensors(path: &Path, tensors: &[(String, Vec<usize>)]) {
    let mut writer = SafetensorsWriter::new();
    for (name, shape) in tensors {
        // Tables of numbers of experts hold integers.
        let ty = if name.ends_with("tid2eid") { by_name("i64").unwrap() } else { &BF16 };
        writer.plan(name, ty, shape).unwrap();
    }
    let mut stream = writer.create(path).unwrap();
    while let Some((_, missing)) = stream.next() {
        stream.write(&vec![0; missing]).unwrap();
    }
    stream.finish().unwrap();
}

fn open(path: &Path) -> formats::Result<Checkpoint> {
    Checkpoint::open(path, &OpenOptions::default())
}

fn check_load(
    config: &Json,
    edit: impl Fn(&mut Vec<(String, Vec<usize>)>),
    expected: Result<(), &[&str]>,
) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), config, edit);
    match (open(folder.path()).and_then(|c| read_all(&c)), expected) {
        (Ok(()), Ok(())) => {}
        (Err(error), Err(fragments)) => {
            let message = error.to_string();
            assert!(fragments.iter().all(|f| message.contains(f)), "{message} lacks {fragments:?}");
        }
        (found, expected) => panic!("expected {expected:?}, found {found:?}"),
    }
}

/// A small model of a family, as its config.json.
fn tiny(family: &str) -> Json {
    ModelConfig::tiny(family, 2).unwrap().to_hf_json().unwrap()
}

#[test]
fn every_family_loads_all_of_its_tensors_and_no_others() {
    for family in families::names() {
        check_load(&tiny(family), |_| {}, Ok(()));
        let extra = |t: &mut Vec<_>| t.push(("model.extra.weight".to_owned(), vec![3]));
        check_load(&tiny(family), extra, Err(&["model.extra.weight", "no part of"]));
    }
}

#[test]
fn layers_for_further_tokens_are_left_out_only_where_a_family_has_them() {
    let check = |family: &str, name: &str, expected| {
        check_load(&tiny(family), |t| t.push((name.to_owned(), vec![3])), expected);
    };
    for family in ["deepseek_v3", "glm4_moe"] {
        for name in ["model.layers.2.enorm.weight", "layers.7.mlp.gate.weight", "mtp.norm.weight"] {
            check(family, name, Ok(()));
        }
        let error = &["layers.1.enorm", "no part of"];
        check(family, "model.layers.1.enorm.weight", Err(error));
    }
    for family in ["qwen3_moe", "mixtral"] {
        check(family, "model.layers.2.enorm.weight", Err(&["layers.2.enorm", "no part of"]));
    }
}

#[test]
fn old_rotary_buffers_are_not_missed_by_anyone() {
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq".to_owned();
    check_load(&config("LlamaForCausalLM"), |t| t.push((name.clone(), vec![2])), Ok(()));
}

#[test]
fn names_without_the_prefix_of_the_base_model_are_the_same_tensors() {
    let bare = |t: &mut Vec<(String, Vec<usize>)>| {
        t.iter_mut().for_each(|(name, _)| *name = name.trim_start_matches("model.").to_owned());
    };
    check_load(&config("Qwen2ForCausalLM"), bare, Ok(()));
    let both = |t: &mut Vec<_>| t.push(("norm.weight".to_owned(), vec![8]));
    let expected = &["tensor norm.weight", "the same as tensor model.norm.weight"];
    check_load(&config("LlamaForCausalLM"), both, Err(expected));
}

#[test]
fn a_copy_of_a_tied_embedding_is_left_alone() {
    let mut config = config("Qwen3ForCausalLM");
    config["tie_word_embeddings"] = json!(true);
    check_load(&config, |t| t.push(("lm_head.weight".to_owned(), vec![10, 8])), Ok(()));
}

#[test]
fn an_output_head_is_missed_only_where_the_config_wants_one() {
    let drop = |t: &mut Vec<(String, Vec<usize>)>| t.retain(|(name, _)| name != "lm_head.weight");
    let mut config = config("LlamaForCausalLM");
    check_load(&config, drop, Ok(()));
    config["tie_word_embeddings"] = json!(false);
    check_load(&config, drop, Err(&["lm_head.weight", "[10, 8]", "no such tensor"]));
}

#[test]
fn declared_and_required_biases_must_be_there() {
    let name = "model.layers.1.self_attn.k_proj.bias";
    let drop = |t: &mut Vec<(String, Vec<usize>)>| t.retain(|(known, _)| known != name);
    check_load(&config("Qwen2ForCausalLM"), drop, Err(&[name, "shape [8]"]));
    let name = "model.layers.1.mlp.gate.e_score_correction_bias";
    let drop = |t: &mut Vec<(String, Vec<usize>)>| t.retain(|(known, _)| known != name);
    check_load(&tiny("deepseek_v3"), drop, Err(&[name, "shape [6]"]));
    let mut llama = config("LlamaForCausalLM");
    llama["attention_bias"] = json!(true);
    check_load(&llama, |_| {}, Err(&["model.layers.0.self_attn.q_proj.bias", "shape [8]"]));
}

#[test]
fn unread_tensors_are_listed_until_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("Qwen3ForCausalLM"), |_| {});
    let checkpoint = open(folder.path()).unwrap();
    let all = checkpoint.tensors().len();
    assert_eq!(checkpoint.unread().count(), all);
    let view = checkpoint.require("output_norm.weight", &[8]).unwrap();
    assert_eq!(
        (view.name.as_str(), view.source_name.as_str()),
        ("output_norm.weight", "model.norm.weight")
    );
    assert_eq!(view.to_f32().unwrap(), [0.0; 8]);
    assert_eq!(checkpoint.unread().count(), all - 1);
    assert!(checkpoint.tensor("no.such").is_none());
    let bytes = view.bytes().clone();
    drop(checkpoint);
    assert_eq!(*bytes.read(0..bytes.len()), [0; 16]);
}

#[test]
fn a_model_is_found_by_folder_or_file() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("my-model");
    std::fs::create_dir(&home).unwrap();
    write(&home, &config("Qwen3ForCausalLM"), |_| {});
    assert_eq!(open(&home).unwrap().config().name, "my-model");
    let file = open(&home.join("model.safetensors")).unwrap();
    assert_eq!(file.folder(), Some(home.as_path()));
    let options = OpenOptions { name: Some("given".into()), ..OpenOptions::default() };
    assert_eq!(Checkpoint::open(&home, &options).unwrap().config().name, "given");
    std::fs::rename(home.join("model.safetensors"), home.join("other.safetensors")).unwrap();
    assert!(open(&home).is_ok());
    std::fs::copy(home.join("other.safetensors"), home.join("b.safetensors")).unwrap();
    let message = open(&home).unwrap_err().to_string();
    assert!(message.contains("index.json or one .safetensors file, found 2"), "{message}");
    let message = open(&home.join("config.json")).unwrap_err().to_string();
    assert!(message.contains("expected a folder"), "{message}");
    assert!(open(&home.join("absent")).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn a_folder_with_one_gguf_model_is_that_model() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = GgufWriter::new();
    writer.plan("a", &F32, &[1]).unwrap();
    let mut stream = writer.create(&folder.path().join("x.gguf")).unwrap();
    stream.write(&[0; 4]).unwrap();
    stream.finish().unwrap();
    let files = ModelFiles::open(folder.path()).unwrap();
    assert_eq!(files.gguf().unwrap().path(), folder.path().join("x.gguf"));
    assert_eq!(files.tensors().len(), 1);
}

#[test]
fn an_index_must_agree_with_its_shards() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = ("m-1.safetensors", "m-2.safetensors");
    write_safetensors(&folder.path().join(one), &[("a".into(), vec![1]), ("b".into(), vec![1])]);
    write_safetensors(&folder.path().join(two), &[("c".into(), vec![1])]);
    let check = |map: Json, expected: Result<usize, &str>| {
        let index = json!({"weight_map": map}).to_string();
        std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
        match (ModelFiles::open(folder.path()), expected) {
            (Ok(files), Ok(count)) => assert_eq!(files.tensors().len(), count),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("expected {expected:?}, found {found:?}"),
        }
    };
    check(json!({"a": one, "b": one, "c": two}), Ok(3));
    check(json!({"a": "./m-1.safetensors", "b": one, "c": "././m-2.safetensors"}), Ok(3));
    std::fs::create_dir(folder.path().join("w")).unwrap();
    std::fs::rename(folder.path().join(two), folder.path().join("w").join(two)).unwrap();
    check(json!({"a": one, "b": one, "c": "w/m-2.safetensors"}), Ok(3));
    check(json!({"a": one, "b": one, "c": "w/../w/m-2.safetensors"}), Err("weight_map: expected"));
    std::fs::rename(folder.path().join("w").join(two), folder.path().join(two)).unwrap();
    check(json!({"a": one, "b": two, "c": two}), Err("tensor b: expected in m-2.safetensors"));
    check(json!({"a": one, "d": two}), Err("tensor d: expected in m-2.safetensors, found in no"));
    check(json!({}), Err("weight_map: expected 1 to"));
    check(json!({"a": 3}), Err("weight_map"));
    std::fs::copy(folder.path().join(one), folder.path().join(two)).unwrap();
    check(json!({"a": one, "b": two}), Err("tensor a: it appears in"));
}

#[test]
fn a_vocabulary_without_rows_for_its_tokens_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let text = config("Qwen3ForCausalLM").to_string();
    let model = ModelConfig::from_hf_json(&text, &folder.path().join("config.json")).unwrap();
    let check = |count: usize, loads: bool| {
        let mut writer = GgufWriter::new();
        model.to_gguf(&mut writer).unwrap();
        let tokens = Array::Strings((0..count).map(|n| n.to_string()).collect());
        writer.set("tokenizer.ggml.tokens", Value::Array(tokens));
        writer.create(&path).unwrap().finish().unwrap();
        let read = ModelConfig::from_gguf(&GgufFile::open(&path).unwrap());
        let message = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(read.is_ok(), loads, "{message}");
        assert_eq!(message.contains("tokenizer.ggml.tokens") && message.contains("10"), !loads);
    };
    check(10, true);
    check(9, true);
    check(11, false);
}

#[cfg(unix)]
#[test]
fn a_link_in_a_circle_is_not_taken_for_an_absent_file() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("LlamaForCausalLM"), |_| {});
    open(folder.path()).unwrap();
    let name = "generation_config.json";
    std::os::unix::fs::symlink(name, folder.path().join(name)).unwrap();
    assert!(open(folder.path()).unwrap_err().to_string().contains(name));
}
