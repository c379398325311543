//! Random checkpoints, small enough to make for each test.

use base::Rng;
use formats::config::{
    Activation, ExpertGroups, ExpertsConfig, GroupRank, LatentConfig, RopeConfig, RopeLayout,
    RopeScaling, RouterScores, SpecialIds,
};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, OpenOptions, TensorStream};
use kernels::quant::{BF16, QuantType};
use std::path::Path;

/// Every architecture there is, with its points of variation in use.
pub const ARCHITECTURES: [&str; 11] = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "mixtral",
    "glm4_moe",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
];

/// A small configuration whose sizes are no multiples of lanes or blocks where they need not be.
pub fn config(architecture: &str) -> ModelConfig {
    config_of(architecture, 2)
}

/// The same with so many layers.
pub fn config_of(architecture: &str, layers: usize) -> ModelConfig {
    let window = (architecture == "mistral").then_some(24);
    let latent = architecture.starts_with("deepseek").then_some(LatentConfig {
        q_rank: (architecture == "deepseek_v3").then_some(40),
        kv_rank: 36,
        nope_dim: 20,
        rope_dim: 8,
        value_dim: 22,
    });
    let head_dim = latent.map_or(24, |sizes| sizes.nope_dim + sizes.rope_dim);
    let scaling = match architecture {
        "llama" => RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 64,
        },
        "gpt_oss" | "deepseek_v3" => RopeScaling::Yarn {
            factor: 4.0,
            original_context: 64,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: architecture != "gpt_oss",
        },
        _ => RopeScaling::None,
    };
    let windows = match architecture {
        "gpt_oss" => (0..layers).map(|layer| (layer % 2 == 0).then_some(24)).collect(),
        _ => vec![window; layers],
    };
    ModelConfig {
        architecture: architecture.into(),
        name: format!("random-{architecture}"),
        hidden_size: 72,
        layers,
        heads: 4,
        kv_heads: if latent.is_some() { 4 } else { 2 },
        head_dim,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        intermediate_size: 104,
        activation: match architecture {
            "gpt_oss" => Activation::ClampedSwiglu { alpha: 1.702, limit: 2.0 },
            _ => Activation::Silu,
        },
        experts: experts(architecture, layers),
        latent,
        vocab_size: 131,
        context_length: 256,
        rms_norm_eps: 1e-5,
        rope: RopeConfig {
            theta: 10_000.0,
            dim: match architecture {
                "glm4_moe" => 12,
                _ => latent.map_or(24, |sizes| sizes.rope_dim),
            },
            layout: match latent {
                Some(_) => RopeLayout::Interleaved,
                None => RopeLayout::Halves,
            },
            magnitude: if matches!(scaling, RopeScaling::Yarn { .. }) { 1.1 } else { 1.0 },
            scaling,
        },
        windows,
        tied_embeddings: architecture == "qwen3",
        special: SpecialIds::default(),
    }
}

/// Routed experts of families that have them.
fn experts(architecture: &str, layers: usize) -> Option<ExpertsConfig> {
    let plain = ExpertsConfig {
        count: 6,
        chosen: 2,
        width: 40,
        shared_width: 0,
        layers: vec![true; layers],
        scores: RouterScores::Softmax,
        normalise: true,
        scale: 1.0,
        groups: None,
    };
    let first_dense: Vec<bool> = (0..layers).map(|layer| layer > 0).collect();
    let groups = |rank| Some(ExpertGroups { count: 3, chosen: 2, rank });
    Some(match architecture {
        "mixtral" => ExpertsConfig { width: 104, ..plain },
        "qwen3_moe" => plain,
        "qwen2_moe" => ExpertsConfig { shared_width: 56, normalise: false, ..plain },
        "gpt_oss" => ExpertsConfig { width: 104, scores: RouterScores::SoftmaxOfChosen, ..plain },
        "deepseek_v2" => ExpertsConfig {
            shared_width: 80,
            normalise: false,
            scale: 1.5,
            layers: first_dense,
            groups: groups(GroupRank::Best),
            ..plain
        },
        "deepseek_v3" | "glm4_moe" => ExpertsConfig {
            shared_width: 40,
            scores: RouterScores::Sigmoid,
            scale: 2.5,
            layers: first_dense,
            groups: groups(GroupRank::BestTwo),
            ..plain
        },
        _ => return None,
    })
}

/// Writes a checkpoint of random weights into `folder`; `change` may alter a tensor's values.
pub fn write(folder: &Path, config: &ModelConfig, change: impl Fn(&str, &mut [f32])) {
    let names = formats::families::name_table(&config.architecture).expect("a known family");
    let mut rng = Rng::new(42);
    let mut tensors = Vec::new();
    let mut writer = SafetensorsWriter::new();
    for (name, shape) in config.hf_tensors() {
        let mut values: Vec<f32> = (0..shape.iter().product())
            .map(|_| if shape.len() == 1 { 1.0 } else { 0.0 } + 0.15 * rng.normal())
            .collect();
        change(&name, &mut values);
        let source = names.source(&name).expect("every name has a source");
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
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config(architecture), |_, _| {});
    (open(folder.path()), folder)
}

/// Opens a checkpoint that must be good.
pub fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(folder, &OpenOptions::default()).unwrap()
}
