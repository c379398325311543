//! Fixtures with Gated DeltaNet: their configuration, the names and values of their tensors, and
//! their GGUF twins.

use std::path::Path;

use crate::common::read_all;
use formats::config::{GroupedConfig, OfLayers};
use formats::gguf::GgufWriter;
use formats::layers::{DeltaSpec, OutputGate, TensorForm, ValueSource};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, OpenOptions, TensorView};
use kernels::quant::{BF16, F32};

fn open(fixture: &str) -> Option<Checkpoint> {
    let path = fixtures::find(fixture)?;
    Some(Checkpoint::open(&path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}")))
}

const GATED: GroupedConfig = GroupedConfig {
    value_dim: None,
    value_scale: None,
    head_norms: false,
    gate: OutputGate::WithQueries,
    values: ValueSource::Projected,
    bare_norms: false,
};

/// The recurrence of some layers.
type Delta = OfLayers<DeltaSpec>;

fn delta(layers: [bool; 4], heads: [usize; 2], dims: [usize; 2]) -> Option<Delta> {
    let spec = DeltaSpec {
        key_heads: heads[0],
        value_heads: heads[1],
        key_dim: dims[0],
        value_dim: dims[1],
        kernel: 4,
        ..DeltaSpec::default()
    };
    Some(OfLayers { layers: layers.to_vec(), spec })
}

const PERIOD: [bool; 4] = [true, true, true, false];

#[test]
fn checkpoints_of_every_class_have_their_configuration_and_all_of_their_tensors() {
    let check = |fixture: &str, family: &str, expected: Option<Delta>, others: usize| {
        let Some(checkpoint) = open(fixture) else { return };
        let config = checkpoint.config();
        assert_eq!(config.architecture, family, "{fixture}");
        assert_eq!(config.hyperparameters().grouped, GATED, "{fixture}");
        assert_eq!(config.hyperparameters().delta, expected, "{fixture}");
        let rope = (
            config.hyperparameters().rope.theta,
            config.hyperparameters().rope.dim,
            config.hyperparameters().head_dim,
        );
        assert_eq!(rope, (1e7, 8, 32), "{fixture}");
        assert_eq!(
            (config.layers.len(), config.vocab, config.hyperparameters().rms_norm_eps),
            (4, 640, 1e-6)
        );
        assert_eq!((config.special.pad, &config.special.eos[..]), (Some(597), &[599, 597][..]));
        read_all(&checkpoint).unwrap_or_else(|e| panic!("{fixture}: {e}"));
        let left = checkpoint.other_modalities();
        assert_eq!(left.len(), others, "{fixture}");
        assert!(left.iter().all(|view| view.source_name.starts_with("model.visual.")));
        let drafts = |view: &TensorView| view.source_name.starts_with("mtp.");
        assert!(!checkpoint.tensors().any(drafts), "{fixture}");
    };
    let six = delta(PERIOD, [2, 6], [16, 16]);
    let four = delta(PERIOD, [2, 4], [16, 16]);
    check("models/qwen3_next", "qwen3_next", four.clone(), 0);
    check("next/models/qwen3_next_mtp", "qwen3_next", four, 0);
    check("next/models/qwen3_5", "qwen3_5", six.clone(), 4);
    check("next/models/qwen3_5_mtp", "qwen3_5", six.clone(), 4);
    check("next/models/qwen3_5_moe", "qwen3_5_moe", six, 4);
    check("next/models/qwen3_5_text", "qwen3_5", delta(PERIOD, [2, 4], [16, 24]), 0);
}

#[test]
fn experts_and_ties_are_those_of_the_text() {
    let Some(text) = open("next/models/qwen3_5_text") else { return };
    assert!(
        text.config().hyperparameters().tied_embeddings
            && text.config().hyperparameters().experts.is_none()
    );
    let check = |fixture: &str, numbers: [usize; 4]| {
        let Some(checkpoint) = open(fixture) else { return };
        let experts = checkpoint.config().hyperparameters().experts.clone().expect("experts");
        let found = [experts.count, experts.chosen, experts.width, experts.shared_width];
        assert_eq!((found, experts.layers), (numbers, vec![true; 4]), "{fixture}");
        assert!(experts.normalise && experts.shared_gate, "{fixture}");
        assert!(!checkpoint.config().hyperparameters().tied_embeddings);
    };
    check("next/models/qwen3_5_moe", [8, 3, 32, 24]);
    check("models/qwen3_next", [8, 2, 32, 32]);
}

fn sorted(mut tensors: Vec<(String, Vec<usize>)>) -> Vec<(String, Vec<usize>)> {
    // A gate of one row is a vector in some files.
    tensors.iter_mut().for_each(|(_, shape)| shape.retain(|size| *size != 1));
    tensors.sort();
    tensors
}

/// Opens a checkpoint and its GGUF twin, which must describe the same model.
fn twins(folder: &str, file: &str) -> Option<(Checkpoint, Checkpoint)> {
    let (original, twin) = (open(folder)?, open(&format!("next/gguf/{file}"))?);
    let expected = original.config();
    let mut config = twin.config().with(|said| {
        let delta = said.delta.as_mut().expect("a recurrence");
        assert_eq!(delta.spec.tiled, expected.architecture != "qwen3_next", "{file}");
        delta.spec.tiled = false;
    });
    (config.name, config.special) = (expected.name.clone(), expected.special.clone());
    assert_eq!(&config, expected, "{file}");
    let found = twin.tensors().map(|t| (t.name.clone(), t.shape.clone())).collect();
    assert_eq!(sorted(found), sorted(config.tensors(TensorForm::ReadGguf)), "{file}");
    Some((original, twin))
}

#[test]
fn gguf_twins_have_the_configuration_and_the_tensors_of_the_checkpoint() {
    twins("next/models/qwen3_5", "qwen3_5-f16.gguf");
    twins("next/models/qwen3_5", "qwen3_5-q8_0.gguf");
    twins("next/models/qwen3_5_mtp", "qwen3_5_mtp-q8_0.gguf");
    twins("models/qwen3_next", "qwen3_next-f16.gguf");
    twins("models/qwen3_next", "qwen3_next-q8_0.gguf");
}

/// The values of a matrix with its value heads tiled, `per` rows each behind the first `skip`.
fn tiled(values: &[f32], delta: &DeltaSpec, row: usize, skip: usize, per: usize) -> Vec<f32> {
    let (head, skipped) = (per * row, skip * row);
    let grouped = |head: usize| head % delta.key_heads * delta.ratio() + head / delta.key_heads;
    let of = |number: usize| &values[skipped + grouped(number) * head..][..head];
    let heads = (0..delta.value_heads).flat_map(of);
    values[..skipped].iter().chain(heads).copied().collect()
}

fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

/// The values of a tensor of a checkpoint, in the order of value heads of its GGUF twin.
fn reordered(view: &TensorView, config: &DeltaSpec, values: &[f32]) -> Vec<f32> {
    let (columns, keys) = (*view.shape.last().unwrap(), 2 * config.keys());
    let in_order = |row, skip, per| tiled(values, config, row, skip, per);
    match view.name.split('.').nth(2).unwrap_or_default() {
        "ssm_a" | "ssm_dt" => in_order(1, 0, 1),
        "ssm_alpha" | "ssm_beta" => in_order(columns, 0, 1),
        "attn_gate" => in_order(columns, 0, config.value_dim),
        "attn_qkv" | "ssm_conv1d" => in_order(columns, keys, config.value_dim),
        "ssm_out" => {
            let rows = view.shape[0];
            let heads = tiled(&transposed(values, columns), config, rows, 0, config.value_dim);
            transposed(&heads, rows)
        }
        _ => values.to_vec(),
    }
}

/// Every value of the twin is that of the checkpoint, rounded to f16 where the twin is.
fn check_values(folder: &str, file: &str, tensors: usize) {
    let Some((original, twin)) = twins(folder, file) else { return };
    let config = twin.config().hyperparameters().delta.as_ref().unwrap();
    let mut compared = 0;
    for view in original.tensors() {
        let other = twin.tensor(&view.name).unwrap_or_else(|| panic!("{}", view.name));
        let (mut values, found) = (view.to_f32().unwrap(), other.to_f32().unwrap());
        if config.spec.tiled {
            values = reordered(view, &config.spec, &values);
        }
        // Exponentials of two libraries differ in the last bit.
        let slack = if view.name.ends_with(".ssm_a") { 4.0 * f32::EPSILON } else { 0.0 };
        for (value, found) in values.iter().zip(&found) {
            let exact = if other.ty.name == "f16" { rounded(*value) } else { *value };
            let near = (exact - found).abs() <= slack * exact.abs();
            assert!(near, "{file}: {}: {value} is not {found}", view.name);
        }
        assert_eq!(values.len(), found.len());
        compared += 1;
    }
    assert_eq!(compared, tensors, "{file}");
}

fn rounded(value: f32) -> f32 {
    let mut bytes = [0; 2];
    (kernels::quant::F16.quantize.unwrap())(&[value], None, &mut bytes);
    let mut back = [0.0];
    (kernels::quant::F16.dequantize.unwrap())(&bytes, &mut back);
    back[0]
}

#[test]
fn every_value_of_a_gguf_twin_is_that_of_the_checkpoint() {
    check_values("next/models/qwen3_5", "qwen3_5-f16.gguf", 3 + 3 * 14 + 11);
    check_values("models/qwen3_next", "qwen3_next-f16.gguf", 3 + 3 * 19 + 16);
}

/// Every field of the configuration that GGUF files of `family` can hold is read back, and every
/// tensor of the file is asked for once it is open.
#[test]
fn written_gguf_files_open_with_all_of_their_tensors() {
    for family in ["qwen3_next", "qwen3_5", "qwen3_5_moe"] {
        for layers in 1..=5 {
            let config = ModelConfig::tiny(family, layers).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.gguf");
            let mut writer = GgufWriter::new();
            config.to_gguf(&mut writer).unwrap();
            for (name, shape) in config.tensors(TensorForm::Gguf) {
                writer.plan(&config.gguf_tensor_name(&name), &F32, &shape).unwrap();
            }
            let mut stream = writer.create(&path).unwrap();
            while let Some((_, missing)) = stream.next() {
                stream.write(&vec![0; missing]).unwrap();
            }
            stream.finish().unwrap();
            let checkpoint = Checkpoint::open(&path, &OpenOptions::default()).unwrap();
            let tiled = config.gguf_is_tiled();
            let expected = config.hyperparameters().delta.clone().map(|delta| {
                let spec = DeltaSpec { tiled, ..delta.spec };
                OfLayers { spec, ..delta }
            });
            assert_eq!(checkpoint.config().hyperparameters().delta, expected, "{family} {layers}");
            for (name, shape) in checkpoint.config().tensors(TensorForm::ReadGguf) {
                checkpoint.require(&name, &shape).unwrap();
            }
            checkpoint.check_all_read().unwrap();
        }
    }
}

#[test]
fn gguf_files_without_gates_are_known_by_their_queries() {
    let config = ModelConfig::tiny("qwen3_5", 2).unwrap();
    let grouped = GroupedConfig::default();
    let check = |config: &ModelConfig| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let mut writer = GgufWriter::new();
        config.to_gguf(&mut writer).unwrap();
        let mut tensors = config.tensors(TensorForm::Gguf).into_iter();
        let (_, rows) = tensors.find(|(name, _)| name == "blk.1.attn_q.weight").unwrap();
        writer.plan("blk.0.ssm_dt.bias", &F32, &[6]).unwrap();
        writer.plan("blk.1.attn_q.weight", &F32, &rows).unwrap();
        let mut stream = writer.create(&path).unwrap();
        stream.write(&vec![0; 4 * (6 + rows[0] * rows[1])]).unwrap();
        stream.finish().unwrap();
        let read = Checkpoint::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(read.config().hyperparameters().grouped, config.hyperparameters().grouped);
    };
    check(&config);
    check(&config.with(|said| said.grouped = grouped));
}

/// Writes the tiny model as a part of one of several modalities.
fn write_wrapped(folder: &Path, rename: impl Fn(&str) -> String, more: &[&str]) {
    let config = ModelConfig::tiny("qwen3_5", 2).unwrap();
    let config = config.with(|said| said.tied_embeddings = false);
    let mut text = config.to_hf_json().unwrap();
    let fields = text.as_object_mut().unwrap();
    fields.remove("architectures");
    let class = "Qwen3_5ForConditionalGeneration";
    let whole = serde_json::json!({"architectures": [class], "text_config": text});
    std::fs::write(folder.join("config.json"), whole.to_string()).unwrap();
    let names = formats::families::name_table("qwen3_5").unwrap();
    let mut writer = SafetensorsWriter::new();
    for (name, shape) in config.tensors(TensorForm::Hf) {
        writer.plan(&rename(&names.source(&name).unwrap()), &BF16, &shape).unwrap();
    }
    for name in more {
        writer.plan(name, &BF16, &[3]).unwrap();
    }
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    while let Some((_, missing)) = stream.next() {
        stream.write(&vec![0; missing]).unwrap();
    }
    stream.finish().unwrap();
}

#[test]
fn every_spelling_of_several_modalities_is_read_and_others_are_refused() {
    let read = |rename: &dyn Fn(&str) -> String, more: &[&str]| -> formats::Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        write_wrapped(folder.path(), rename, more);
        let checkpoint = Checkpoint::open(folder.path(), &OpenOptions::default())?;
        read_all(&checkpoint)?;
        let others = checkpoint.other_modalities().iter();
        Ok(others.map(|view| view.source_name.clone()).collect())
    };
    let within = |name: &str| name.replace("model.", "model.language_model.");
    let visual = ["model.visual.patch_embed.proj.bias", "model.visual.merger.norm.weight"];
    assert_eq!(read(&within, &visual).unwrap().len(), 2);
    let before = |name: &str| format!("language_model.{name}");
    assert_eq!(read(&before, &["visual.merger.norm.weight"]).unwrap().len(), 1);
    assert_eq!(read(&str::to_owned, &["mtp.norm.weight"]).unwrap().len(), 0);
    let error = |rename: &dyn Fn(&str) -> String, more: &[&str], expected: &[&str]| {
        let error = read(rename, more).unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    };
    let unknown = "model.audio_tower.weight";
    error(&within, &[unknown], &[unknown, "no part of"]);
    // A layer more than config.json has is no draft layer.
    let further = "model.language_model.layers.2.input_layernorm.weight";
    error(&within, &[further], &[further, "no part of"]);
    let twice = "model.norm.weight";
    error(&within, &[twice], &[twice, "the same as tensor model.language_model.norm.weight"]);
    let lost = |name: &str| within(name).replace("0.linear_attn.dt_bias", "0.linear_attn.dt");
    let missing = "model.language_model.layers.0.linear_attn.dt_bias";
    error(&lost, &[], &[missing, "shape [6]", "no such tensor"]);
}
