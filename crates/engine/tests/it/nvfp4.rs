//! Models with NVFP4 weights, attention, dense matrices and experts alike.

use crate::checkpoints::{config, open, write};
use backend::Mode;
use base::Rng;
use engine::{LoadOptions, Runner, SingleSequence};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelFiles};
use kernels::quant::{F32, QuantType};
use std::path::Path;

const TOKENS: usize = 40;
const SETTINGS: &str = r#"{"quantization": {"quant_algo": "NVFP4", "group_size": 16}}"#;

/// The storage type with this name, taken from a checkpoint of ModelOpt.
fn stored(name: &str) -> &'static QuantType {
    let folder =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../formats/tests/data/native/package_modelopt");
    let files = ModelFiles::open(Path::new(folder)).unwrap();
    files.tensors().iter().find(|view| view.ty.name == name).expect(name).ty
}

/// A random checkpoint as ModelOpt writes it, with matrices of layers as NVFP4.
fn random_nvfp4(architecture: &str) -> (Checkpoint, tempfile::TempDir) {
    let config = config(architecture).with(|said| {
        (said.hidden_size, said.intermediate_size) = (64, 96);
        if let Some(experts) = &mut said.experts {
            experts.width = 32;
        }
    });
    let plain = tempfile::tempdir().unwrap();
    write(plain.path(), &config, |_, _| {});
    let files = ModelFiles::open(plain.path()).unwrap();
    let (codes, scales) = (stored("u8"), stored("f8_e4m3"));
    let (mut rng, mut tensors) = (Rng::new(7), Vec::new());
    let mut writer = SafetensorsWriter::new();
    for view in files.tensors() {
        let name = view.source_name.as_str();
        match view.shape[..] {
            [rows, cols] if name.contains(".layers.") => {
                writer.plan(name, codes, &[rows, cols / 2]).unwrap();
                tensors.push((0..rows * cols / 2).map(|_| rng.next_u64() as u8).collect());
                writer.plan(&format!("{name}_scale"), scales, &[rows, cols / 16]).unwrap();
                // Positive, below the code of NaN.
                tensors.push((0..rows * cols / 16).map(|_| rng.below(127) as u8).collect());
                writer.plan(&format!("{name}_scale_2"), &F32, &[]).unwrap();
                tensors.push((0.05f32 / 448.0).to_le_bytes().to_vec());
            }
            _ => {
                writer.plan(name, view.ty, &view.shape).unwrap();
                tensors.push(view.bytes().read(0..view.bytes().len()).into_owned());
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(plain.path().join("config.json"), folder.path().join("config.json")).unwrap();
    std::fs::write(folder.path().join("hf_quant_config.json"), SETTINGS).unwrap();
    let mut stream = writer.create(&folder.path().join("model.safetensors")).unwrap();
    tensors.iter().for_each(|tensor: &Vec<u8>| stream.write(tensor).unwrap());
    stream.finish().unwrap();
    (open(folder.path()), folder)
}

fn logits(checkpoint: &Checkpoint, mode: Mode, chunk: usize) -> Vec<f32> {
    let options = LoadOptions { mode, threads: 3, context: Some(128), ..LoadOptions::default() };
    let mut runner = Runner::load(checkpoint, &options).unwrap();
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|at| at * 37 % 131).collect();
    SingleSequence::new(&mut runner).feed(&tokens, chunk).unwrap().to_vec()
}

#[test]
fn chunks_do_not_change_bits_where_weights_are_nvfp4() {
    for architecture in ["qwen3", "qwen3_moe"] {
        let (checkpoint, _folder) = random_nvfp4(architecture);
        let joined = checkpoint.tensors().filter(|view| view.ty.name == "nvfp4_32");
        let names: Vec<_> = joined.map(|view| view.name.clone()).collect();
        assert!(names.len() >= 14, "{architecture}: {names:?}");
        let experts = names.iter().any(|name| name.contains("_exps."));
        assert_eq!(experts, architecture == "qwen3_moe", "{names:?}");
        for mode in [Mode::Exact, Mode::Fast] {
            let whole = logits(&checkpoint, mode, TOKENS);
            assert!(whole.iter().all(|logit| logit.is_finite()));
            for chunk in [1, 7, 33] {
                assert_eq!(logits(&checkpoint, mode, chunk), whole, "{chunk} {architecture}");
            }
        }
        let [exact, fast] = [Mode::Exact, Mode::Fast].map(|mode| logits(&checkpoint, mode, TOKENS));
        let norm = |values: &mut dyn Iterator<Item = f32>| -> f64 {
            values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
        };
        let size = norm(&mut exact.iter().copied());
        let far = norm(&mut exact.iter().zip(&fast).map(|(a, b)| a - b));
        assert!(far < 0.1 * size, "{architecture}: {far} of {size}");
    }
}
