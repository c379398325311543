//! Adapters that are written here and read back.

use crate::layers::RopeLayout;
use std::path::PathBuf;

use kernels::quant::{BF16, F16, F32, QuantType};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::*;
use crate::gguf::{GgufWriter, Value};
use crate::safetensors::SafetensorsWriter;

const HIDDEN: usize = 12;
const ATTENTION: &str = "base_model.model.model.layers.1.self_attn.";

/// Two layers of a model of the family, with the projections that the tests name.
fn model(family: &str, layout: RopeLayout) -> (ModelConfig, ProjectionShapes) {
    let mut config = ModelConfig::tiny(family, 2).expect("a known family");
    (config.said.rope.layout, config.said.rope.dim, config.said.head_dim) = (layout, 4, 4);
    let mut shapes = ProjectionShapes::new();
    for layer in 0..2 {
        for (part, outputs) in [("attn_q", 8), ("attn_k", 4), ("attn_v", 4), ("ffn_up", 6)] {
            shapes.insert(format!("blk.{layer}.{part}"), [outputs, HIDDEN]);
        }
    }
    (config, shapes)
}

/// Values that differ from each other, all of them BF16.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| at as f32 - 7.5).collect()
}

fn bytes(ty: &QuantType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; ty.bytes_for(values.len()).expect("whole blocks")];
    (ty.quantize.expect("a type of floats"))(values, None, &mut bytes);
    bytes
}

type Tensors<'a> = &'a [(&'a str, &'static QuantType, Vec<usize>)];

/// A folder of PEFT whose configuration has `fields` beside rank 2 and alpha 3.
fn peft(fields: Json, tensors: Tensors<'_>) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 3});
    let (all, more) = (config.as_object_mut().expect("an object"), fields);
    all.extend(more.as_object().expect("an object").clone());
    std::fs::write(folder.path().join("adapter_config.json"), config.to_string()).expect("a file");
    let mut writer = SafetensorsWriter::new();
    for (name, ty, shape) in tensors {
        writer.plan(name, ty, shape).expect("a tensor");
    }
    let mut stream =
        writer.create(&folder.path().join("adapter_model.safetensors")).expect("a file");
    for (_, ty, shape) in tensors {
        stream.write(&bytes(ty, &numbers(shape.iter().product()))).expect("bytes");
    }
    stream.finish().expect("a whole file");
    folder
}

fn pair(
    module: &str,
    outputs: usize,
    rank: usize,
) -> [(String, &'static QuantType, Vec<usize>); 2] {
    [
        (format!("{module}.lora_A.weight"), &F32, vec![rank, HIDDEN]),
        (format!("{module}.lora_B.weight"), &F32, vec![outputs, rank]),
    ]
}

fn named<'a>(
    tensors: &'a [(String, &'static QuantType, Vec<usize>)],
) -> Vec<(&'a str, &'static QuantType, Vec<usize>)> {
    tensors.iter().map(|(name, ty, shape)| (name.as_str(), *ty, shape.clone())).collect()
}

fn open(folder: &TempDir) -> Result<AdapterFile> {
    let (config, shapes) = model("llama", RopeLayout::Halves);
    AdapterFile::open(folder.path(), &config, &shapes)
}

/// The scales of the value projection and of the MLP's, which have ranks 2 and 4.
fn check_scales(fields: Json, expected: [f32; 2]) {
    let mlp = "base_model.model.model.layers.0.mlp.up_proj";
    let tensors = [pair(&format!("{ATTENTION}v_proj"), 4, 2), pair(mlp, 6, 4)].concat();
    let mut fields = fields;
    fields["rank_pattern"] = json!({"nothing": 9, "mlp.up_proj": 4});
    let adapter = open(&peft(fields, &named(&tensors))).expect("an adapter");
    let found: Vec<f32> = adapter.pairs.iter().rev().map(|pair| pair.scale).collect();
    assert_eq!(found, expected);
}

#[test]
fn alpha_is_divided_by_the_rank_or_by_its_root() {
    check_scales(json!({}), [1.5, 0.75]);
    check_scales(json!({"use_rslora": true}), [3.0 / 2f32.sqrt(), 1.5]);
    check_scales(json!({"alpha_pattern": {"layers.1.*": 8, "v_proj": 1}}), [4.0, 0.75]);
    check_scales(json!({"alpha_pattern": {"(up|down)_proj": 8, "up_proj": 9}}), [1.5, 2.0]);
    check_scales(json!({"target_modules": ".*_proj", "fan_in_fan_out": true}), [1.5, 0.75]);
}

#[test]
fn factors_of_every_float_type_are_read_by_name() {
    for ty in [&F32, &BF16, &F16] {
        let (a, b) = (
            format!("{ATTENTION}v_proj.lora_A.weight"),
            format!("{ATTENTION}v_proj.lora_B.weight"),
        );
        let tensors = [(a.as_str(), ty, vec![2, HIDDEN]), (b.as_str(), ty, vec![4, 2])];
        let adapter = open(&peft(json!({}), &tensors)).expect("an adapter");
        let [pair] = &adapter.pairs[..] else { panic!("one pair") };
        assert_eq!((pair.projection, pair.rank), (6, 2));
        assert_eq!((&pair.a, &pair.b), (&numbers(2 * HIDDEN), &numbers(8)), "{ty}");
    }
}

/// The rows of the first value of the second factor of `attn_q`.
fn query_rows(adapter: &AdapterFile) -> Vec<f32> {
    let pair = &adapter.pairs[0];
    pair.b.chunks(pair.rank).map(|row| (row[0] + 7.5) / pair.rank as f32).collect()
}

fn gguf(folder: &TempDir, alpha: f32) -> PathBuf {
    let path = folder.path().join("adapter.gguf");
    let mut writer = GgufWriter::new();
    let text = |text: &str| Value::String(text.to_owned());
    writer.set("general.architecture", text("llama"));
    writer.set("general.type", text("adapter"));
    writer.set("adapter.type", text("lora"));
    writer.set("adapter.lora.alpha", Value::F32(alpha));
    let shapes = [vec![2, HIDDEN], vec![8, 2]];
    for (factor, shape) in ["lora_a", "lora_b"].into_iter().zip(&shapes) {
        writer.plan(&format!("blk.1.attn_q.weight.{factor}"), &F32, shape).expect("a tensor");
    }
    let mut stream = writer.create(&path).expect("a file");
    for shape in &shapes {
        stream.write(&bytes(&F32, &numbers(shape.iter().product()))).expect("bytes");
    }
    stream.finish().expect("a whole file");
    path
}

#[test]
fn query_rows_follow_the_rotary_layout_of_the_model() {
    let tensors = pair(&format!("{ATTENTION}q_proj"), 8, 2);
    let from_peft = peft(json!({}), &named(&tensors));
    let from_gguf = tempfile::tempdir().expect("a folder");
    let file = gguf(&from_gguf, 3.0);
    let as_stored = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let swapped = [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0];
    for (layout, in_peft, in_gguf) in
        [(RopeLayout::Halves, as_stored, swapped), (RopeLayout::Interleaved, swapped, as_stored)]
    {
        let (config, shapes) = model("llama", layout);
        let read = |path: &Path| AdapterFile::open(path, &config, &shapes).expect("an adapter");
        assert_eq!(query_rows(&read(from_peft.path())), in_peft);
        assert_eq!(query_rows(&read(&file)), in_gguf);
        assert_eq!(read(&file).pairs[0].scale, 1.5);
        // The name of the folder, which has no other file.
        assert_eq!(read(&file), AdapterFile { path: file.clone(), ..read(from_gguf.path()) });
    }
}

#[test]
fn the_same_factors_have_one_digest_in_every_form() {
    let Some(folder) = fixtures::find("lora/llama3_r4") else { return };
    let base = fixtures::find("models/llama3").expect("the base of the adapter");
    let checkpoint = crate::Checkpoint::open(&base, &Default::default()).expect("a model");
    let mut shapes = ProjectionShapes::new();
    for view in checkpoint.tensors() {
        let name = view.name.strip_suffix(".weight").unwrap_or(&view.name);
        if let &[outputs, inputs] = &view.shape[..] {
            shapes.insert(name.to_owned(), [outputs, inputs]);
        }
    }
    let read = |path: &Path| AdapterFile::open(path, checkpoint.config(), &shapes).expect("one");
    let (peft, gguf) = (read(&folder), read(&folder.join("adapter.gguf")));
    assert_eq!(peft.pairs, gguf.pairs);
    assert_eq!((&peft.digest, &peft.name), (&gguf.digest, &gguf.name));
}

#[test]
fn a_matrix_that_holds_several_projections_gives_each_its_rows() {
    let (config, shapes) = model("phi3", RopeLayout::Halves);
    let tensors = pair(&format!("{ATTENTION}qkv_proj"), 16, 2);
    let folder = peft(json!({}), &named(&tensors));
    let adapter = AdapterFile::open(folder.path(), &config, &shapes).expect("an adapter");
    let all = numbers(32);
    let found: Vec<_> = adapter.pairs.iter().map(|pair| (pair.projection, &pair.b[..])).collect();
    assert_eq!(found, [(4, &all[..16]), (5, &all[16..24]), (6, &all[24..])]);
}

fn refused(fields: Json, tensors: Tensors<'_>, expected: &[&str]) {
    let error = open(&peft(fields, tensors)).expect_err("it is refused").to_string();
    expected.iter().for_each(|part| assert!(error.contains(part), "{error}: {part}"));
}

#[test]
fn kinds_of_adapters_that_compute_something_else_are_refused_by_the_field() {
    let own = pair(&format!("{ATTENTION}v_proj"), 4, 2);
    let own = named(&own);
    for (fields, expected) in [
        (json!({"peft_type": "IA3"}), ["peft_type: expected LORA", "IA3"]),
        (json!({"use_dora": true}), ["use_dora", "DoRA"]),
        (json!({"modules_to_save": ["lm_head", "x"]}), ["modules_to_save", "lm_head, x"]),
        (json!({"lora_bias": true}), ["lora_bias", "biases"]),
        (json!({"alora_invocation_tokens": [1]}), ["alora_invocation_tokens", "activated"]),
        (json!({"layer_replication": [[0, 1]]}), ["layer_replication", "repeated"]),
        (json!({"init_lora_weights": "pissa_niter_4"}), ["init_lora_weights", "pissa"]),
        (json!({"r": null}), ["r: expected a number", "no such field"]),
        (json!({"lora_alpha": 1e30}), ["lora_alpha", "expected a number up to"]),
        (json!({"rank_pattern": {"v_proj": "x"}}), ["rank_pattern", "expected a rank"]),
        (json!({"alpha_pattern": {"(": 1}}), ["alpha_pattern", "regular expression"]),
        (json!({"r": 3}), ["rank 3", "found 2"]),
    ] {
        refused(fields, &own, &expected);
    }
}

#[test]
fn tensors_that_cannot_be_applied_are_refused_by_name() {
    let own = pair(&format!("{ATTENTION}v_proj"), 4, 2);
    let check = |name: &str, expected: &str| {
        let mut tensors = named(&own);
        tensors.push((name, &F32, vec![2, HIDDEN]));
        refused(json!({}), &tensors, &[name, expected]);
    };
    let module = |name: &str| format!("{ATTENTION}{name}");
    check(&module("v_proj.lora_magnitude_vector"), "DoRA");
    check(&module("v_proj.bias"), "biases");
    check(&module("v_proj.lora_B.bias"), "biases");
    check("base_model.model.lm_head.modules_to_save.weight", "modules_to_save");
    check("base_model.model.model.embed_tokens.lora_embedding_A", "embedding");
    check("base_model.model.model.embed_tokens.lora_A.weight", "embedding");
    check(&module("w_proj.lora_A.weight"), "another name");
    check("base_model.model.model.layers.7.self_attn.v_proj.lora_A.weight", "another name");
    check(&module("v_proj.weight"), "expected a factor");
    check(&module("v_proj.lora_A.default.weight"), "means the same as");
}

#[test]
fn factors_that_do_not_fit_are_refused_with_both_shapes() {
    let name = |factor: &str| format!("{ATTENTION}v_proj.lora_{factor}.weight");
    let (a, b) = (name("A"), name("B"));
    let check = |shapes: [Vec<usize>; 2], expected: [&str; 3]| {
        let [of_a, of_b] = shapes;
        refused(json!({}), &[(&a, &F32, of_a), (&b, &F32, of_b)], &expected);
    };
    check([vec![2, 11], vec![4, 2]], [&a, "expected shape [2, 12]", "found [2, 11]"]);
    check([vec![2, HIDDEN], vec![5, 2]], [&b, "expected shape [4, 2]", "found [5, 2]"]);
    check([vec![2, HIDDEN], vec![4, 3]], [&b, "expected shape [4, 2]", "found [4, 3]"]);
    check([vec![2, 3, 4], vec![4, 2]], [&a, "expected a matrix", "[2, 3, 4]"]);
    check([vec![0, HIDDEN], vec![4, 0]], [&a, "expected a rank", "found 0"]);
    refused(json!({}), &[(&a, &F32, vec![2, HIDDEN])], &[&a, "expected two factors"]);
}

/// Opens the adapter in `folder` with its `file` cut off at each length, and with each of its bytes
/// replaced. What still opens is whole.
fn check_damaged(folder: &TempDir, file: &str, adapter: &Path) {
    let (config, shapes) = model("llama", RopeLayout::Halves);
    let path = folder.path().join(file);
    let whole = std::fs::read(&path).expect("the file");
    let replaced = |at: usize, byte: u8| {
        let mut damaged = whole.clone();
        damaged[at] = byte;
        damaged
    };
    let cuts = (0..whole.len()).map(|length| whole[..length].to_vec());
    let bytes = [0, 0x7f, 0xff, b'9', b'"'];
    let changes = (0..whole.len()).flat_map(|at| bytes.map(|byte| replaced(at, byte)));
    for damaged in cuts.chain(changes) {
        std::fs::write(&path, damaged).expect("there is space");
        let Ok(opened) = AdapterFile::open(adapter, &config, &shapes) else { continue };
        for pair in opened.pairs {
            let [outputs, inputs] = shapes[pair.projection];
            assert_eq!((pair.a.len(), pair.b.len()), (pair.rank * inputs, outputs * pair.rank));
        }
    }
    std::fs::write(&path, whole).expect("there is space");
}

#[test]
fn damaged_files_are_errors_or_whole_adapters() {
    let folder = peft(json!({}), &named(&pair(&format!("{ATTENTION}v_proj"), 4, 2)));
    check_damaged(&folder, "adapter_config.json", folder.path());
    check_damaged(&folder, "adapter_model.safetensors", folder.path());
    let folder = tempfile::tempdir().expect("a folder");
    let file = gguf(&folder, 3.0);
    let name = file.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    check_damaged(&folder, &name, &file);
}
