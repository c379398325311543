//! Fixtures with routed experts and latent attention: their configuration, the names of their
//! tensors, and their GGUF twins.

use std::path::Path;

use formats::layers::{ExpertGroups, GroupRank, RopeLayout, RopeScaling, RouterScores, TensorForm};
use formats::{Checkpoint, ModelConfig, OpenOptions};

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Opens a fixture and checks that every tensor got a canonical name.
fn model(name: &str) -> Option<Checkpoint> {
    let checkpoint = open(&fixtures::find("models")?.join(name));
    assert_eq!(checkpoint.config().name, name);
    for tensor in checkpoint.tensors() {
        assert!(!tensor.name.contains("layers"), "{name}: {} has no name", tensor.source_name);
    }
    Some(checkpoint)
}

fn check_experts(config: &ModelConfig, numbers: [usize; 4], layers: &[bool], normalise: bool) {
    let experts = config.hyperparameters().experts.as_ref().expect("experts");
    let found = [experts.count, experts.chosen, experts.width, experts.shared_width];
    assert_eq!((found, &experts.layers[..]), (numbers, layers), "{}", config.name);
    assert_eq!(experts.normalise, normalise, "{}", config.name);
}

#[test]
fn qwen_and_mixtral_fixtures_are_read() {
    let Some(qwen2) = model("qwen2_moe") else { return };
    check_experts(qwen2.config(), [8, 3, 32, 96], &[true; 3], false);
    assert!(qwen2.tensors().any(|t| t.name == "blk.2.ffn_gate_inp_shexp.weight"));
    let Some(qwen3) = model("qwen3_moe") else { return };
    check_experts(qwen3.config(), [12, 3, 32, 0], &[true, false, true], true);
    qwen3.require("blk.2.ffn_down_exps.weight", &[12, 64, 32]).unwrap();
    let Some(fused) = model("qwen3_moe_fused") else { return };
    check_experts(fused.config(), [8, 2, 32, 0], &[true; 2], false);
    fused.require("blk.1.ffn_gate_exps.weight", &[8, 32, 64]).unwrap();
    let Some(mixtral) = model("mixtral") else { return };
    check_experts(mixtral.config(), [6, 2, 96, 0], &[true; 3], true);
    mixtral.require("blk.1.ffn_up_exps.weight", &[6, 96, 64]).unwrap();
    assert_eq!(mixtral.config().hyperparameters().rope.theta, 1e6);
}

#[test]
fn deepseek_fixtures_are_read_without_their_further_layers() {
    let Some(grouped) = model("deepseek_v2") else { return };
    check_experts(grouped.config(), [12, 3, 32, 64], &[false, true, true], false);
    let experts = grouped.config().hyperparameters().experts.as_ref().unwrap();
    let groups = ExpertGroups { count: 4, chosen: 2, rank: GroupRank::Best };
    assert_eq!((experts.groups, experts.scale), (Some(groups), 2.0));
    assert_eq!(experts.scores, RouterScores::Softmax);
    let Some(lite) = model("deepseek_v2_lite") else { return };
    check_experts(lite.config(), [8, 3, 32, 64], &[false, true, true], false);
    assert_eq!(lite.config().hyperparameters().latent.unwrap().q_rank, None);
    let Some(third) = model("deepseek_v3") else { return };
    check_experts(third.config(), [16, 4, 32, 32], &[false, true, true], true);
    let config = third.config();
    assert_eq!(
        config.hyperparameters().experts.as_ref().unwrap().groups.unwrap().rank,
        GroupRank::BestTwo
    );
    assert_eq!(
        (
            config.hyperparameters().head_dim,
            config.hyperparameters().rope.dim,
            config.hyperparameters().kv_heads
        ),
        (48, 16, 4)
    );
    assert_eq!(config.hyperparameters().rope.layout, RopeLayout::Interleaved);
    let sharpening = 0.1 * 40f64.ln() + 1.0;
    let expected = sharpening * sharpening / 48f64.sqrt();
    assert!((f64::from(config.hyperparameters().attention_scale) - expected).abs() < 1e-6);
    assert_eq!(config.hyperparameters().rope.magnitude, 1.0);
    assert!(third.tensors().all(|tensor| !tensor.source_name.starts_with("model.layers.3.")));
}

#[test]
fn gpt_oss_fixtures_are_read() {
    let Some(checkpoint) = model("gpt_oss") else { return };
    let config = checkpoint.config();
    check_experts(config, [6, 2, 64, 0], &[true; 3], false);
    assert_eq!(config.hyperparameters().windows, [Some(24), None, Some(24)]);
    let expected = RopeScaling::Yarn {
        factor: 16.0,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: false,
    };
    assert_eq!(
        (&config.hyperparameters().rope.scaling, config.hyperparameters().rope.theta),
        (&expected, 150_000.0)
    );
    assert!(checkpoint.tensors().any(|tensor| tensor.name == "blk.0.attn_sinks.weight"));
}

#[test]
fn quantised_fixtures_have_the_configuration_and_names_of_the_others() {
    let Some(eighth) = model("deepseek_v3_fp8") else { return };
    check_experts(eighth.config(), [8, 2, 48, 48], &[false, true], true);
    assert_eq!(
        (eighth.config().hyperparameters().heads, eighth.config().hyperparameters().kv_heads),
        (5, 5)
    );
    let (Some(fourth), Some(plain)) = (model("gpt_oss_mxfp4"), model("gpt_oss")) else { return };
    let mut expected = plain.config().clone();
    expected.name = fourth.config().name.clone();
    assert_eq!(fourth.config(), &expected);
}

fn sorted(mut tensors: Vec<(String, Vec<usize>)>) -> Vec<(String, Vec<usize>)> {
    tensors.sort();
    tensors
}

fn check_tensors(checkpoint: &Checkpoint, expected: Vec<(String, Vec<usize>)>) {
    let found = checkpoint.tensors().map(|t| (t.name.clone(), t.shape.clone())).collect();
    assert_eq!(sorted(found), sorted(expected), "{}", checkpoint.path().display());
}

#[test]
fn the_tensors_of_a_configuration_are_those_of_the_fixtures() {
    let published =
        ["qwen2_moe", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3"];
    for name in published.into_iter().chain(["gpt_oss"]) {
        let Some(checkpoint) = model(name) else { return };
        check_tensors(&checkpoint, checkpoint.config().tensors(TensorForm::Read));
    }
}

/// Checks that a GGUF file describes the model of a Hugging Face checkpoint.
fn check_twin(name: &str, file: &str) {
    let Some(original) = model(name) else { return };
    let Some(folder) = fixtures::find("gguf/models") else { return };
    let twin = open(&folder.join(file));
    let (config, expected) = (twin.config(), original.config());
    // The format stores the multiplier of a logarithm where config.json has a tenth of it.
    let scales =
        (config.hyperparameters().attention_scale, expected.hyperparameters().attention_scale);
    assert!((scales.0 - scales.1).abs() <= 1e-6 * scales.1, "{file}: {scales:?}");
    let mut config = config.with(|said| said.attention_scale = scales.1);
    config.name = expected.name.clone();
    config.special = expected.special.clone();
    assert_eq!(&config, expected, "{file}");
    check_tensors(&twin, config.tensors(TensorForm::ReadGguf));
}

#[test]
fn gguf_twins_have_the_configuration_of_the_checkpoint() {
    for name in ["qwen2_moe", "deepseek_v2_lite", "deepseek_v3"] {
        for kind in ["f16", "q8_0"] {
            check_twin(name, &format!("{name}-{kind}.gguf"));
        }
    }
}
