//! Random checkpoints, small enough to make for each test.

use base::Rng;
use engine::{Error, LoadOptions, Runner, WeightsMemory};
use formats::families::mtp_names;
use formats::layers::TensorForm;
use formats::names::NamePairs;
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, MtpInput, OpenOptions, TensorStream};
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

/// Models with layers of multi-token prediction, of every family that has them, and how many: one,
/// and two where files number them. A family whose model of two layers has no experts, while that
/// of three has some, is there with both.
#[allow(dead_code)] // Not all programs that share this file use it.
pub fn predicting() -> Vec<(ModelConfig, usize)> {
    let has_experts = |config: &ModelConfig| config.hyperparameters().experts.is_some();
    let all = architectures().flat_map(|name| {
        let [two, three] = [2, 3].map(|layers| config_of(name, layers));
        let further = has_experts(&three) && !has_experts(&two);
        std::iter::once(two).chain(further.then_some(three))
    });
    let all = all.filter(|config| config.clone().with_mtp(1).is_some());
    let mut all: Vec<_> = all.map(|config| (config, 1)).collect();
    let is_numbered = |config| [MtpForm::Numbered, MtpForm::Halves].contains(&mtp_form(config));
    let numbered = all.iter().filter(|(config, _)| is_numbered(config));
    let mut two: Vec<_> = numbered.map(|(config, _)| (config.clone(), 2)).collect();
    for (config, _) in &mut two {
        // What drafts has an index of its own, also where the last layer of the model has none.
        *config = config.with(|said| {
            if let Some(index) = &mut said.index {
                index.layers[1] = false;
            }
        });
    }
    all.append(&mut two);
    all
}

/// How files name layers of multi-token prediction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MtpForm {
    /// As layers of the model, after the last one.
    Numbered,
    /// Under `mtp.`, of which the only layer is a part.
    Apart,
    /// Under `mtp.` and their number.
    Streams,
    /// Under `mtp.layers.`, where each sublayer has a number.
    Halves,
}

fn mtp_form(config: &ModelConfig) -> MtpForm {
    let with_mtp = config.clone().with_mtp(1).expect("a family with such layers");
    let drafter = with_mtp.drafter.expect("layers that draft");
    match drafter.specs()[0].input {
        MtpInput::Added => MtpForm::Streams,
        _ if config.architecture.starts_with("qwen") => MtpForm::Apart,
        _ if mtp_names(&config.architecture).is_some_and(|parts| parts.len() > 1) => {
            MtpForm::Halves
        }
        _ => MtpForm::Numbered,
    }
}

/// The name in files of a tensor of the layer `number` after the last one.
fn mtp_source(config: &ModelConfig, number: usize, rest: &str) -> String {
    let (form, last) = (mtp_form(config), config.layers.len() + number);
    let own = mtp_names(&config.architecture).expect("a family with such layers");
    let in_part = |(part, names): (usize, &NamePairs)| {
        let (name, _) = names.iter().find(|(_, canonical)| *canonical == rest)?;
        Some((part, *name))
    };
    let named = own.iter().enumerate().find_map(in_part);
    let follows = rest.starts_with("ffn_") || rest.starts_with("exp_probs");
    let half = own.len() * number + named.map_or(usize::from(follows), |(part, _)| part);
    if let Some((_, name)) = named {
        return match form {
            MtpForm::Halves => format!("mtp.layers.{half}.{name}"),
            MtpForm::Numbered => format!("model.layers.{last}.{name}"),
            MtpForm::Apart => format!("mtp.{name}"),
            MtpForm::Streams => format!("mtp.{number}.{name}"),
        };
    }
    let names = formats::families::name_table(&config.architecture).expect("a known family");
    let source = |layer: usize| names.source(&format!("blk.{layer}.{rest}")).expect(rest);
    match form {
        MtpForm::Numbered => source(last),
        MtpForm::Halves => source(half).replace("backbone.", "mtp."),
        MtpForm::Apart => source(number).replace("model.", "mtp."),
        MtpForm::Streams => source(number).replace("layers.", "mtp."),
    }
}

/// Writes a model with `count` layers of multi-token prediction, and opens it with them; `change`
/// may alter the values of a tensor.
#[allow(dead_code)] // Not all programs that share this file use it.
pub fn write_predicting(
    folder: &Path,
    (config, count): (&ModelConfig, usize),
    change: impl Fn(&str, &mut [f32]),
) -> Checkpoint {
    let with_mtp = config.clone().with_mtp(count).unwrap();
    let names = formats::families::name_table(&config.architecture).unwrap();
    let source = |name: &str| match formats::names::split_canonical(name) {
        Some((layer, rest)) if layer.parse::<usize>().unwrap() >= config.layers.len() => {
            mtp_source(config, layer.parse::<usize>().unwrap() - config.layers.len(), rest)
        }
        _ => names.source(name).unwrap(),
    };
    write_named(folder, config, with_mtp.tensors(TensorForm::Hf), (source, change));
    open(folder).with_mtp().unwrap()
}

/// A model with `count` layers of multi-token prediction, without which the next token follows from
/// the last one alone, and which draft the same token as the model chooses where they are `right`.
#[allow(dead_code)] // Not all programs that share this file use it.
pub fn drafting(
    config: &ModelConfig,
    count: usize,
    right: bool,
) -> (Checkpoint, tempfile::TempDir) {
    let (folder, hidden) = (tempfile::tempdir().unwrap(), config.hidden);
    let change = |name: &str, values: &mut [f32]| {
        let adds = ["attn_output", "ssm_out", "ffn_down"].iter().any(|part| name.contains(part));
        if let Some(value) = config.constant(name, TensorForm::Hf) {
            values.fill(value);
        } else if right && (adds || name.ends_with("nextn.h_proj.weight")) {
            values.fill(0.0);
        } else if right && name.contains("nextn.e") {
            // What is made of the embedding is the embedding.
            let inputs = values.len() / hidden;
            for (at, value) in values.iter_mut().enumerate() {
                *value = f32::from(u8::from(at % inputs == at / inputs));
            }
        }
    };
    (write_predicting(folder.path(), (config, count), change), folder)
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
