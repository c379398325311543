//! Random checkpoints, small enough to make for each test.

use base::Rng;
use engine::{Error, LoadOptions, Runner, WeightsMemory};
use formats::layers::{Presence, TensorForm};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, OpenOptions, TensorStream};
use kernels::quant::{self, BF16, QuantType};
use std::path::Path;

/// Every architecture there is, with its points of variation in use.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    formats::families::names()
}

/// A small configuration whose sizes are no multiples of lanes or blocks where they need not be.
pub fn config(architecture: &str) -> ModelConfig {
    config_of(architecture, 2)
}

/// The same with `layers` layers.
pub fn config_of(architecture: &str, layers: usize) -> ModelConfig {
    ModelConfig::tiny(architecture, layers).expect("a known family")
}

/// Writes a checkpoint of random weights into `folder`; `change` may alter a tensor's values.
pub fn write(folder: &Path, config: &ModelConfig, change: impl Fn(&str, &mut [f32])) {
    write_tensors(folder, config, config.tensors(TensorForm::Hf), change);
}

/// The same with these tensors.
pub fn write_tensors(
    folder: &Path,
    config: &ModelConfig,
    all: Vec<(String, Vec<usize>)>,
    change: impl Fn(&str, &mut [f32]),
) {
    let names = formats::families::name_table(&config.architecture).expect("a known family");
    let source = |name: &str| names.source(name).expect("every name has a source");
    write_named(folder, config, all, (source, change));
}

/// The same with the names of `source`.
fn write_named(
    folder: &Path,
    config: &ModelConfig,
    all: Vec<(String, Vec<usize>)>,
    (source, change): (impl Fn(&str) -> String, impl Fn(&str, &mut [f32])),
) {
    let mut tensors = Vec::new();
    let mut writer = SafetensorsWriter::new();
    for (name, shape) in all {
        // Values do not depend on the order of tensors.
        let seed = name.bytes().fold(3, |seed: u64, byte| 31 * seed % (1 << 56) + u64::from(byte));
        let mut rng = Rng::new(seed);
        let source = source(&name);
        if formats::names::holds_ids(&name) {
            let experts =
                config.hyperparameters().experts.as_ref().expect("a model with experts").count
                    as u64;
            writer.plan(&source, quant::by_name("i64").unwrap(), &shape).unwrap();
            let numbers = (0..shape.iter().product()).map(|_: usize| rng.below(experts));
            tensors.push(numbers.flat_map(u64::to_le_bytes).collect());
            continue;
        }
        let mut values: Vec<f32> = (0..shape.iter().product())
            .map(|_| if shape.len() == 1 { 1.0 } else { 0.0 } + 0.15 * rng.normal())
            .collect();
        change(&name, &mut values);
        writer.plan(&source, &BF16, &shape).unwrap();
        tensors.push(bytes(&BF16, &values));
    }
    std::fs::write(folder.join("config.json"), config.to_hf_json().unwrap().to_string()).unwrap();
    let mut stream: TensorStream = writer.create(&folder.join("model.safetensors")).unwrap();
    for tensor in tensors {
        stream.write(&tensor).unwrap();
    }
    stream.finish().unwrap();
}

fn bytes(ty: &QuantType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; ty.bytes_for(values.len()).unwrap()];
    (ty.quantize.unwrap())(values, None, &mut bytes);
    bytes
}

/// A checkpoint of random weights and the folder it lies in.
pub fn random(architecture: &str) -> (Checkpoint, tempfile::TempDir) {
    random_with(&config(architecture))
}

/// The same with `layers` layers.
pub fn random_of(architecture: &str, layers: usize) -> (Checkpoint, tempfile::TempDir) {
    random_with(&config_of(architecture, layers))
}

/// A model of one layer without attention to speak of: the same tokens again and again.
#[allow(dead_code)] // Not all programs that share this file use it.
pub fn repeating() -> (Checkpoint, tempfile::TempDir) {
    let one_layer = config("llama")
        .with(|said| (said.layers, said.windows, said.unrotated) = (1, vec![None], vec![false]));
    random_with(&one_layer)
}

/// A model with a layer of multi-token prediction, without which the next token follows from the
/// last one alone, and which drafts the same token as the model chooses where it is `right`.
#[allow(dead_code)] // Not all programs that share this file use it.
pub fn drafting(right: bool) -> (Checkpoint, tempfile::TempDir) {
    const SOURCES: [(&str, &str); 4] = [
        ("nextn.eh_proj.weight", "mtp.fc.weight"),
        ("nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"),
        ("nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"),
        ("nextn.shared_head_norm.weight", "mtp.norm.weight"),
    ];
    let (folder, config) = (tempfile::tempdir().unwrap(), config("qwen3_5"));
    let (hidden, prefix) = (config.hidden, format!("blk.{}.", config.layers.len()));
    let with_mtp = config.clone().with_mtp(1).unwrap();
    let mtp = with_mtp.drafter.iter().flat_map(|drafter| drafter.specs()[0].loaded(hidden));
    let mtp = mtp.filter(|tensor| tensor.presence == Presence::Required);
    let mut all = config.tensors(TensorForm::Hf);
    all.extend(mtp.map(|tensor| (format!("{prefix}{}", tensor.name), tensor.shape)));
    let names = formats::families::name_table("qwen3_5").unwrap();
    let source = |name: &str| {
        let Some(rest) = name.strip_prefix(&prefix) else { return names.source(name).unwrap() };
        match SOURCES.iter().find(|(own, _)| *own == rest) {
            Some((_, source)) => (*source).to_owned(),
            None => names.source(&format!("blk.0.{rest}")).unwrap().replace("model.", "mtp."),
        }
    };
    let change = |name: &str, values: &mut [f32]| {
        let adds = ["attn_output", "ssm_out", "ffn_down"].iter().any(|part| name.contains(part));
        if adds && right {
            values.fill(0.0);
        } else if name.contains("norm") {
            // The files have these without their 1.
            values.fill(0.0);
        } else if name.ends_with("eh_proj.weight") && right {
            for (at, value) in values.iter_mut().enumerate() {
                *value = f32::from(u8::from(at % (2 * hidden) == at / (2 * hidden)));
            }
        }
    };
    write_named(folder.path(), &config, all, (source, change));
    (open(folder.path()).with_mtp().unwrap(), folder)
}

fn random_with(config: &ModelConfig) -> (Checkpoint, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), config, |_, _| {});
    (open(folder.path()), folder)
}

/// The least memory for the weights of a model that is streamed.
pub fn least(checkpoint: &Checkpoint, streamed: &LoadOptions) -> usize {
    let limited =
        |bytes| LoadOptions { weights_memory: WeightsMemory::Bytes(bytes), ..streamed.clone() };
    let mut found = 0;
    while let Err(error) = Runner::load(checkpoint, &limited(found)) {
        let Error::WeightsMemory { least, limit, .. } = error else { panic!("{error}") };
        assert!(limit == found && least > limit);
        found = least;
    }
    found
}

/// Opens a checkpoint that must be good.
pub fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(folder, &OpenOptions::default()).unwrap()
}
