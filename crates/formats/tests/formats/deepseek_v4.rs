//! Fixtures of DeepSeek V4: their configuration, the names of their tensors in every style, and
//! what is refused.

use std::path::{Path, PathBuf};

use crate::common::read_all;
use formats::config::CompressedConfig;
use formats::layers::{HyperConfig, RopeConfig, RopeLayout, RopeScaling, RouterScores, TensorForm};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, OpenOptions, TensorView, names};
use kernels::quant::{QuantType, by_name};
use serde_json::{Value as Json, json};

fn open(path: &Path) -> formats::Result<Checkpoint> {
    Checkpoint::open(path, &OpenOptions::default())
}

fn model(name: &str) -> Option<Checkpoint> {
    let path = fixtures::find(name)?;
    Some(open(&path).unwrap_or_else(|e| panic!("{e}")))
}

fn config() -> Option<ModelConfig> {
    model("models/deepseek_v4").map(|checkpoint| checkpoint.config().clone())
}

fn rope(theta: f32, scaling: RopeScaling) -> RopeConfig {
    RopeConfig { theta, dim: 16, layout: RopeLayout::Interleaved, scaling, magnitude: 1.0 }
}

fn yarn() -> RopeScaling {
    let (beta_fast, beta_slow) = (32.0, 1.0);
    RopeScaling::Yarn { factor: 16.0, original_context: 128, beta_fast, beta_slow, truncate: true }
}

/// What the fixtures have in common.
fn check_common(config: &ModelConfig) {
    assert_eq!(config.architecture, "deepseek_v4");
    assert_eq!(
        (config.hidden, config.hyperparameters().kv_heads, config.hyperparameters().head_dim),
        (64, 1, 32)
    );
    assert_eq!((config.vocab, config.context), (640, 2048));
    assert_eq!(
        (config.hyperparameters().attention_scale, config.hyperparameters().tied_embeddings),
        (1.0 / 32f32.sqrt(), false)
    );
    assert_eq!(config.hyperparameters().rope, rope(10_000.0, RopeScaling::None));
    assert_eq!(
        config.hyperparameters().hyper,
        Some(HyperConfig { streams: 4, iterations: 20, eps: 1e-6, magnitude: None })
    );
    let experts = config.hyperparameters().experts.as_ref().unwrap();
    assert_eq!([experts.count, experts.chosen, experts.width], [8, 3, 32]);
    assert_eq!((experts.shared_width, experts.shared_gate), (32, false));
    assert_eq!((experts.scores, experts.normalise), (RouterScores::SqrtSoftplus, true));
    assert_eq!((experts.scale, experts.groups), (1.5, None));
    let limits = vec![Some(2.0); config.layers.len()];
    assert_eq!((&experts.limits, &experts.shared_limits), (&limits, &limits));
    assert_eq!(experts.layers, vec![true; config.layers.len()]);
}

fn check_sizes(config: &ModelConfig, ratios: &[usize], out_rank: usize, index_dim: usize) {
    let expected = CompressedConfig {
        q_rank: 32,
        rope_dim: 16,
        groups: 2,
        out_rank,
        ratios: ratios.to_vec(),
        indexed: ratios.iter().map(|&ratio| ratio == 4).collect(),
        index_heads: 16,
        index_dim,
        index_top: 8,
        rope: rope(160_000.0, yarn()),
    };
    assert_eq!(config.hyperparameters().compressed.as_deref(), Some(&expected));
}

fn by_token(config: &ModelConfig) -> &[bool] {
    &config.hyperparameters().experts.as_ref().unwrap().by_token
}

fn sorted(mut tensors: Vec<(String, Vec<usize>)>) -> Vec<(String, Vec<usize>)> {
    tensors.sort();
    tensors
}

/// Every tensor has its canonical name and shape, and there are no others.
fn check_tensors(checkpoint: &Checkpoint, form: TensorForm) {
    let found = checkpoint.tensors().map(|t| (t.name.clone(), t.shape.clone())).collect();
    assert_eq!(sorted(found), sorted(checkpoint.config().tensors(form)));
    read_all(checkpoint).unwrap();
}

#[test]
fn the_release_is_read_with_all_of_its_tensors() {
    let Some(checkpoint) = model("models/deepseek_v4") else { return };
    let config = checkpoint.config();
    check_common(config);
    // The last of the ratios is that of the layer of multi-token prediction.
    check_sizes(config, &[0, 128, 4, 128, 4], 24, 24);
    assert_eq!((config.layers.len(), config.hyperparameters().heads), (5, 4));
    assert_eq!(config.hyperparameters().windows, [Some(16); 5]);
    assert_eq!(by_token(config), [true, true, false, false, false]);
    assert_eq!((config.special.bos, config.special.eos.as_slice()), (Some(635), &[636][..]));
    check_tensors(&checkpoint, TensorForm::Read);
}

#[test]
fn what_transformers_saves_is_read_with_all_of_its_tensors() {
    let Some(checkpoint) = model("models/deepseek_v4_scaled") else { return };
    let config = checkpoint.config();
    check_common(config);
    check_sizes(config, &[16, 4, 0, 4], 24, 32);
    assert_eq!(config.hyperparameters().windows, [Some(12); 4]);
    assert_eq!(by_token(config), [true, false, false, false]);
    check_tensors(&checkpoint, TensorForm::Read);
    let kv_norm = checkpoint.require("blk.0.attn_kv_a_norm.weight", &[32]).unwrap();
    assert_eq!(kv_norm.source_name, "model.layers.0.attn.norm.weight");
}

#[test]
fn eight_and_four_bit_floats_have_their_names_and_the_values_of_the_gguf_file() {
    let Some(checkpoint) = model("models/deepseek_v4_fp8_fp4") else { return };
    let config = checkpoint.config();
    check_common(config);
    check_sizes(config, &[0, 0, 4, 128], 72, 32);
    assert_eq!((config.hyperparameters().heads, config.layers.len()), (8, 4));
    check_tensors(&checkpoint, TensorForm::Read);
    let experts = checkpoint.require("blk.3.ffn_up_exps.weight", &[8, 32, 64]).unwrap();
    assert_eq!(experts.ty.name, "mxfp4");
    let low = checkpoint.require("blk.1.attn_output_b.weight", &[64, 144]).unwrap();
    assert!(low.ty.name.starts_with("fp8"), "{}", low.ty);

    let Some(twin) = model("next/gguf/deepseek_v4_fp8_fp4-mxfp4.gguf") else { return };
    let mut described = twin.config().clone();
    described.name.clone_from(&config.name);
    assert_eq!(&described, config);
    check_tensors(&twin, TensorForm::Gguf);
    for name in ["blk.2.ffn_down_exps.weight", "blk.3.hc_ffn_fn.weight", "output_hc_scale.weight"] {
        let values = |of: &Checkpoint| of.tensor(name).unwrap().to_f32().unwrap();
        assert_eq!(values(&twin), values(&checkpoint), "{name}");
    }
    let table = "blk.0.ffn_gate_tid2eid.weight";
    let ids = checkpoint.ids(table, &[640, 3], 8).unwrap();
    assert_eq!(twin.ids(table, &[640, 3], 8).unwrap(), ids);
    assert!(ids.len() == 640 * 3 && ids.contains(&7) && ids.contains(&0));
}

#[test]
fn layers_of_multi_token_prediction_are_left_alone() {
    let Some(checkpoint) = model("next/models/deepseek_v4_mtp") else { return };
    let Some(mut expected) = config() else { return };
    expected.name.clone_from(&checkpoint.config().name);
    assert_eq!(checkpoint.config(), &expected);
    check_tensors(&checkpoint, TensorForm::Read);
    for (name, layers) in [("deepseek_v3_mtp", 3), ("glm4_moe_mtp", 3), ("glm4_moe", 3)] {
        let Some(checkpoint) = model(&format!("next/models/{name}")) else { return };
        assert_eq!(checkpoint.config().layers.len(), layers, "{name}");
        let first = format!("model.layers.{layers}.");
        let more = |t: &TensorView| t.source_name.starts_with(&first) || t.name.contains("mtp");
        assert!(!checkpoint.tensors().any(more), "{name}");
        check_all_read(&checkpoint);
    }
    for kind in ["f16", "q8_0"] {
        let Some(twin) = model(&format!("next/gguf/glm4_moe-{kind}.gguf")) else { return };
        let Some(original) = model("next/models/glm4_moe") else { return };
        assert_eq!(twin.config().layers, original.config().layers);
        assert_eq!(
            twin.config().hyperparameters().experts,
            original.config().hyperparameters().experts
        );
        check_all_read(&twin);
    }
}

/// Every tensor of the configuration is there, biases excepted, and there are no others.
fn check_all_read(checkpoint: &Checkpoint) {
    let form = if checkpoint.gguf().is_some() { TensorForm::Gguf } else { TensorForm::Read };
    for (name, shape) in checkpoint.config().tensors(form) {
        if !name.ends_with(".bias") || checkpoint.tensor(&name).is_some() {
            checkpoint.require(&name, &shape).unwrap();
        }
    }
    checkpoint.check_all_read().unwrap();
}

/// A tensor to be written.
struct Tensor {
    name: String,
    ty: &'static QuantType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Tensor {
    fn of(view: &TensorView, name: String) -> Self {
        let bytes = view.bytes();
        let data = bytes.read(0..bytes.len()).into_owned();
        Self { name, ty: view.ty, shape: view.shape.clone(), data }
    }
}

/// Writes a checkpoint with the configuration of a fixture, changed by `edit`.
fn write(folder: &Path, fixture: &Path, edit: impl Fn(&mut Json), tensors: &[Tensor]) -> PathBuf {
    let text = std::fs::read_to_string(fixture.join("config.json")).unwrap();
    let mut config: Json = serde_json::from_str(&text).unwrap();
    edit(&mut config);
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut writer = SafetensorsWriter::new();
    for Tensor { name, ty, shape, .. } in tensors {
        writer.plan(name, ty, shape).unwrap();
    }
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    tensors.iter().for_each(|tensor| stream.write(&tensor.data).unwrap());
    stream.finish().unwrap();
    folder.to_owned()
}

/// Names of modules in transformers, and canonical ones.
const PARTS: [(&str, &str); 25] = [
    ("attn_hc.fn", "hc_attn_fn.weight"),
    ("attn_hc.base", "hc_attn_base.weight"),
    ("attn_hc.scale", "hc_attn_scale.weight"),
    ("ffn_hc.fn", "hc_ffn_fn.weight"),
    ("ffn_hc.base", "hc_ffn_base.weight"),
    ("ffn_hc.scale", "hc_ffn_scale.weight"),
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
    ("mlp.gate.tid2eid", "ffn_gate_tid2eid.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
    ("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
    ("self_attn.q_a_proj.weight", "attn_q_a.weight"),
    ("self_attn.q_a_norm.weight", "attn_q_a_norm.weight"),
    ("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    ("self_attn.kv_proj.weight", "attn_kv.weight"),
    ("self_attn.kv_norm.weight", "attn_kv_a_norm.weight"),
    ("self_attn.sinks", "attn_sinks.weight"),
    ("self_attn.o_a_proj.weight", "attn_output_a.weight"),
    ("self_attn.o_b_proj.weight", "attn_output_b.weight"),
    ("self_attn.compressor.indexer.q_b_proj.weight", "indexer.attn_q_b.weight"),
    ("self_attn.compressor.indexer.scorer.weights_proj.weight", "indexer.proj.weight"),
];

/// The name of the module of a compressor's tensor.
fn of_compressor(rest: &str) -> Option<String> {
    let (of, part) = match rest.strip_prefix("attn_compressor_") {
        Some(part) => ("compressor", part),
        None => ("compressor.indexer", rest.strip_prefix("indexer_compressor_")?),
    };
    let part = match part {
        "kv.weight" => "kv_proj.weight",
        "gate.weight" => "gate_proj.weight",
        "ape.weight" => "position_bias",
        _ => "kv_norm.weight",
    };
    Some(format!("self_attn.{of}.{part}"))
}

/// The tensors of a fixture under the names of the modules of transformers, experts in stacks with
/// gate and up in one.
fn as_modules(checkpoint: &Checkpoint) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    for view in checkpoint.tensors() {
        let name = match names::split_canonical(&view.name) {
            None => match view.name.as_str() {
                "token_embd.weight" => "model.embed_tokens.weight".to_owned(),
                "output_norm.weight" => "model.norm.weight".to_owned(),
                "output.weight" => "lm_head.weight".to_owned(),
                head => head.replace("output_hc_", "model.hc_head.hc_").replace(".weight", ""),
            },
            Some((layer, "ffn_gate_exps.weight")) => {
                let up = checkpoint.tensor(&format!("blk.{layer}.ffn_up_exps.weight")).unwrap();
                let halves = |expert| [view.part(expert), up.part(expert)];
                let halves = (0..view.shape[0]).flat_map(halves);
                let data = halves.flat_map(|half| Tensor::of(&half, String::new()).data).collect();
                let shape = vec![view.shape[0], 2 * view.shape[1], view.shape[2]];
                let name = format!("model.layers.{layer}.mlp.experts.gate_up_proj");
                tensors.push(Tensor { name, ty: view.ty, shape, data });
                continue;
            }
            Some((_, "ffn_up_exps.weight")) => continue,
            Some((layer, rest)) => {
                let part = PARTS.iter().find(|(_, canonical)| *canonical == rest);
                let part = part.map(|(module, _)| (*module).to_owned());
                let part = part.or_else(|| of_compressor(rest)).unwrap();
                format!("model.layers.{layer}.{part}")
            }
        };
        tensors.push(Tensor::of(view, name));
    }
    tensors
}

#[test]
fn names_of_modules_and_fused_experts_are_the_same_tensors() {
    let Some(original) = model("models/deepseek_v4") else { return };
    let folder = tempfile::tempdir().unwrap();
    let modules = as_modules(&original);
    let path = write(folder.path(), original.path(), |_| {}, &modules);
    let checkpoint = open(&path).unwrap();
    check_tensors(&checkpoint, TensorForm::Read);
    for view in original.tensors() {
        let same = checkpoint.tensor(&view.name).unwrap();
        let data = |view: &TensorView| Tensor::of(view, String::new()).data;
        assert!(data(same) == data(view), "{}", view.name);
    }
    // As the base model is saved, without its prefix.
    let bare = |tensor: Tensor| {
        let name = tensor.name.trim_start_matches("model.").to_owned();
        Tensor { name, ..tensor }
    };
    let folder = tempfile::tempdir().unwrap();
    let modules: Vec<_> = modules.into_iter().map(bare).collect();
    let path = write(folder.path(), original.path(), |_| {}, &modules);
    check_tensors(&open(&path).unwrap(), TensorForm::Read);
}

/// The released fixture with one tensor changed.
fn altered(edit: impl Fn(&mut Tensor)) -> Option<(Checkpoint, tempfile::TempDir)> {
    let fixture = fixtures::find("models/deepseek_v4")?;
    let files = formats::ModelFiles::open(&fixture).unwrap();
    let tensor = |view: &TensorView| Tensor::of(view, view.source_name.clone());
    let mut tensors: Vec<_> = files.tensors().iter().map(tensor).collect();
    tensors.iter_mut().for_each(edit);
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &fixture, |_| {}, &tensors);
    Some((open(&path).unwrap(), folder))
}

#[test]
fn tables_of_experts_are_checked() {
    const TABLE: &str = "layers.1.ffn.gate.tid2eid";
    let check = |edit: &dyn Fn(&mut Tensor), fragments: &[&str]| {
        let edit = |tensor: &mut Tensor| {
            if tensor.name == TABLE {
                edit(tensor);
            }
        };
        let Some((checkpoint, _folder)) = altered(edit) else { return };
        let error = read_all(&checkpoint).unwrap_err().to_string();
        for fragment in fragments.iter().chain(&[TABLE]) {
            assert!(error.contains(fragment), "{error:?} does not say {fragment:?}");
        }
    };
    let first = |value: i64| {
        move |tensor: &mut Tensor| tensor.data[16..24].copy_from_slice(&value.to_le_bytes())
    };
    check(&first(8), &["expected numbers from 0 to 7", "found 8 as value 2"]);
    check(&first(-1), &["from 0 to 7", "found -1"]);
    check(&first(i64::MAX), &["from 0 to 7", "found 9223372036854775807"]);
    let reshape = |tensor: &mut Tensor| tensor.shape = vec![3, 640];
    check(&reshape, &["expected shape [640, 3]", "found [3, 640]"]);
    let floats = |tensor: &mut Tensor| {
        tensor.ty = by_name("f32").unwrap();
        tensor.data.truncate(4 * 3 * 640);
    };
    check(&floats, &["i32 or i64", "f32"]);
    let gone = |tensor: &mut Tensor| tensor.name = "mtp.0.tid2eid".into();
    check(&gone, &["expected shape [640, 3], found no such tensor"]);
}

#[test]
fn integers_are_weights_nowhere_else() {
    let edit = |tensor: &mut Tensor| {
        if tensor.name == "layers.0.attn.wkv.weight" {
            tensor.ty = by_name("i16").unwrap();
        }
    };
    let Some((checkpoint, _folder)) = altered(edit) else { return };
    let error = read_all(&checkpoint).unwrap_err().to_string();
    assert!(error.contains("wkv") && error.contains("i16"), "{error}");
    let table = checkpoint.require("blk.0.ffn_gate_tid2eid.weight", &[640, 3]).unwrap_err();
    assert!(table.to_string().contains("i64"), "{table}");
}

#[test]
fn a_bias_for_a_choice_by_token_is_left_alone_and_others_must_be_there() {
    let Some(fixture) = fixtures::find("models/deepseek_v4") else { return };
    let files = formats::ModelFiles::open(&fixture).unwrap();
    let tensor = |view: &TensorView| Tensor::of(view, view.source_name.clone());
    let mut tensors: Vec<_> = files.tensors().iter().map(tensor).collect();
    let bias = tensors.iter().find(|tensor| tensor.name == "layers.2.ffn.gate.bias").unwrap();
    let (ty, shape, data) = (bias.ty, bias.shape.clone(), bias.data.clone());
    tensors.push(Tensor { name: "layers.0.ffn.gate.bias".into(), ty, shape, data });
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &fixture, |_| {}, &tensors);
    check_tensors(&open(&path).unwrap(), TensorForm::Read);
    tensors.retain(|tensor| tensor.name != "layers.3.ffn.gate.bias");
    let path = write(folder.path(), &fixture, |_| {}, &tensors);
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("layers.3.ffn.gate.bias: expected shape [8]"), "{error}");
}

#[test]
fn an_output_head_is_found_under_its_name() {
    let Some(fixture) = fixtures::find("models/deepseek_v4") else { return };
    let files = formats::ModelFiles::open(&fixture).unwrap();
    let tensor = |view: &TensorView| Tensor::of(view, view.source_name.clone());
    let tensors: Vec<_> = files.tensors().iter().map(tensor).collect();
    let folder = tempfile::tempdir().unwrap();
    let unsaid = |config: &mut Json| config["tie_word_embeddings"] = json!(null);
    let path = write(folder.path(), &fixture, unsaid, &tensors);
    assert!(!open(&path).unwrap().config().hyperparameters().tied_embeddings);
}
