//! Reading experts, latent attention, windows and YaRN from the metadata of GGUF files.

use crate::config::ModelConfig;
use crate::gguf::{Array, GgufFile, GgufWriter, Value};
use crate::layers::{
    Activation, ExpertGroups, GroupRank, LatentConfig, RopeLayout, RopeScaling, RouterScores,
};

pub(super) type Fields<'a> = &'a [(&'a str, Value)];

pub(super) const fn u(value: u32) -> Value {
    Value::U32(value)
}

/// Reads a file of architecture `arch` with `fields`, the keys that every file needs, and
/// `tensors`.
pub(super) fn read_with(
    arch: &str,
    fields: Fields,
    tensors: &[&str],
) -> Result<ModelConfig, String> {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", Value::String(arch.into()));
    let base = [
        ("block_count", u(4)),
        ("embedding_length", u(64)),
        ("feed_forward_length", u(96)),
        ("context_length", u(512)),
        ("vocab_size", u(320)),
        ("attention.head_count", u(8)),
    ];
    let eps = [("attention.layer_norm_rms_epsilon", Value::F32(1e-6))];
    let has_other = fields.iter().any(|(key, _)| *key == OTHER_EPS);
    let eps = eps.iter().filter(|_| !has_other);
    for (key, value) in base.iter().chain(eps).chain(fields) {
        writer.set(&format!("{arch}.{key}"), value.clone());
    }
    for name in tensors {
        writer.plan(name, &kernels::quant::F32, &[1]).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut stream = writer.create(&path).unwrap();
    tensors.iter().for_each(|_| stream.write(&[0; 4]).unwrap());
    stream.finish().unwrap();
    ModelConfig::from_gguf(&GgufFile::open(&path).unwrap()).map_err(|e| e.to_string())
}

/// Name of the epsilon that some families have in place of the common one.
const OTHER_EPS: &str = "attention.layer_norm_epsilon";

fn read(arch: &str, fields: Fields) -> ModelConfig {
    read_with(arch, fields, &[]).unwrap()
}

fn check_error(arch: &str, fields: Fields, fragments: &[&str]) {
    let error = read_with(arch, fields, &[]).unwrap_err();
    for fragment in fragments {
        assert!(error.contains(fragment), "{error:?} does not say {fragment:?}");
    }
}

fn experts(more: Fields) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("expert_count", u(16)), ("expert_used_count", u(4))];
    let known = [
        "expert_weights_norm",
        "expert_weights_scale",
        "expert_gating_func",
        "expert_shared_feed_forward_length",
        "expert_shared_count",
        "expert_group_count",
        "expert_group_used_count",
        "leading_dense_block_count",
        "expert_feed_forward_length",
        "expert_used_count",
        "attention.kv_lora_rank",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "nextn_predict_layers",
    ];
    for (key, value) in more {
        let key = known.iter().find(|known| *known == key).expect("a known key");
        fields.push((key, value.clone()));
    }
    fields
}

const LATENT: [(&str, Value); 4] = [
    ("attention.kv_lora_rank", Value::U32(32)),
    ("attention.key_length", Value::U32(48)),
    ("attention.value_length", Value::U32(24)),
    ("rope.dimension_count", Value::U32(16)),
];

fn deepseek(more: Fields) -> Vec<(&'static str, Value)> {
    experts(&[&LATENT, more].concat())
}

#[test]
fn llama_with_experts_is_mixtral() {
    assert_eq!(read("llama", &[("expert_count", u(0))]).architecture, "llama");
    let config = read("llama", &experts(&[]));
    let found = config.said.experts.unwrap();
    assert_eq!(config.architecture, "mixtral");
    assert_eq!((found.count, found.chosen, found.width), (16, 4, 96));
    assert_eq!((found.scores, found.normalise), (RouterScores::Softmax, true));
}

#[test]
fn qwen_files_leave_much_unsaid() {
    let config = read("qwen2moe", &experts(&[]));
    let found = config.said.experts.unwrap();
    assert_eq!((found.width, found.shared_width, found.normalise), (24, 96, false));
    let third = read("qwen3moe", &experts(&[])).said.experts.unwrap();
    assert_eq!((third.shared_width, third.normalise), (0, true));
    let routers = ["blk.0.ffn_gate_inp.weight", "blk.3.ffn_gate_inp.weight"];
    let some = read_with("qwen3moe", &experts(&[]), &routers).unwrap();
    assert_eq!(some.said.experts.unwrap().layers, [true, false, false, true]);
}

#[test]
fn deepseek_v3_is_known_by_its_router() {
    let grouped: Fields = &[
        ("expert_gating_func", u(2)),
        ("expert_group_count", u(4)),
        ("expert_group_used_count", u(2)),
        ("expert_weights_scale", Value::F32(2.5)),
        ("expert_weights_norm", Value::Bool(true)),
        ("expert_shared_count", u(2)),
        ("expert_feed_forward_length", u(24)),
        ("leading_dense_block_count", u(3)),
    ];
    let config = read("deepseek2", &deepseek(grouped));
    let found = config.said.experts.unwrap();
    assert_eq!(config.architecture, "deepseek_v3");
    assert_eq!((found.scale, found.normalise, found.shared_width), (2.5, true, 48));
    assert_eq!(found.layers, [false, false, false, true]);
    let groups = |rank| Some(ExpertGroups { count: 4, chosen: 2, rank });
    assert_eq!(found.groups, groups(GroupRank::BestTwo));
    let second = read("deepseek2", &deepseek(&grouped[1..]));
    assert_eq!(second.architecture, "deepseek_v2");
    assert_eq!(second.said.experts.unwrap().groups, groups(GroupRank::Best));
}

#[test]
fn deepseek_v3_is_known_by_its_biases_where_its_router_is_unsaid() {
    let known = |fields: Fields, tensors: &[&str]| {
        let config = read_with("deepseek2", &deepseek(fields), tensors).unwrap();
        (config.architecture, config.said.experts.unwrap().scores)
    };
    let biased = ["blk.0.attn_norm.weight", "blk.3.exp_probs_b.bias"];
    let of = |name: &str, scores| (name.to_owned(), scores);
    assert_eq!(known(&[], &biased), of("deepseek_v3", RouterScores::Sigmoid));
    assert_eq!(known(&[], &biased[..1]), of("deepseek_v2", RouterScores::Softmax));
    let softmax = [("expert_gating_func", u(1))];
    assert_eq!(known(&softmax, &biased), of("deepseek_v2", RouterScores::Softmax));
}

#[test]
fn experts_of_granite_have_the_width_that_files_give_mlps() {
    let config = read("granitehybrid", &experts(&[("expert_shared_feed_forward_length", u(40))]));
    let found = config.said.experts.unwrap();
    assert_eq!((found.width, found.shared_width, found.shared_gate), (96, 40, false));
}

#[test]
fn weights_of_experts_of_kimi_linear_are_normalised_where_files_do_not_say() {
    let fields = [&deepseek(&[("expert_gating_func", u(2))])[..], &KIMI].concat();
    let found = read("kimi-linear", &fields).said.experts.unwrap();
    assert_eq!((found.normalise, found.scores), (true, RouterScores::Sigmoid));
}

/// Three layers with the recurrence, and one with attention.
const KIMI: [(&str, Value); 2] = [("kda.head_dim", u(16)), ("ssm.conv_kernel", u(4))];

#[test]
fn nemotron_files_may_have_either_name_of_the_epsilon() {
    let other = (OTHER_EPS, Value::F32(1e-5));
    let both = ("attention.layer_norm_rms_epsilon", Value::F32(1e-4));
    assert_eq!(read("nemotron_h", &[]).said.rms_norm_eps, 1e-6);
    assert_eq!(read("nemotron_h", std::slice::from_ref(&other)).said.rms_norm_eps, 1e-5);
    assert_eq!(read("nemotron_h", &[other.clone(), both]).said.rms_norm_eps, 1e-4);
    check_error("llama", &[other], &["llama.attention.layer_norm_rms_epsilon"]);
}

#[test]
fn windows_of_layers_may_be_flagged_in_any_family() {
    let flags = Value::Array(Array::Bool(vec![true, false, false, true]));
    let window = ("attention.sliding_window", u(7));
    let pattern = ("attention.sliding_window_pattern", flags);
    let config = read("exaone4", &[window.clone(), pattern.clone()]);
    assert_eq!(config.said.windows, [Some(7), None, None, Some(7)]);
    let unflagged = read("exaone4", std::slice::from_ref(&window));
    assert_eq!(unflagged.said.windows, [Some(7), Some(7), Some(7), None]);
    assert_eq!(read("llama", &[window, pattern]).said.windows, config.said.windows);
}

#[test]
fn old_and_new_files_of_latent_attention_read_alike() {
    let old = read("deepseek2", &deepseek(&[]));
    let new = [
        ("attention.key_length", u(48)),
        ("attention.value_length", u(32)),
        ("attention.head_count_kv", u(1)),
        ("attention.key_length_mla", u(48)),
        ("attention.value_length_mla", u(24)),
    ];
    let new = read("deepseek2", &[deepseek(&[]), new.to_vec()].concat());
    assert_eq!(old, new);
    let expected =
        LatentConfig { q_rank: None, kv_rank: 32, nope_dim: 32, rope_dim: 16, value_dim: 24 };
    assert_eq!(old.said.latent, Some(expected));
    assert_eq!((old.said.kv_heads, old.said.head_dim), (8, 48));
    assert_eq!(old.said.rope.layout, RopeLayout::Interleaved);
}

#[test]
fn gpt_oss_alternates_and_is_not_truncated() {
    let yarn = [
        ("attention.sliding_window", u(7)),
        ("rope.scaling.type", Value::String("yarn".into())),
        ("rope.scaling.factor", Value::F32(32.0)),
        ("rope.scaling.original_context_length", u(16)),
    ];
    let config = read("gpt-oss", &[experts(&[]), yarn.to_vec()].concat());
    assert_eq!(config.said.windows, [Some(7), None, Some(7), None]);
    assert_eq!(config.said.activation, Activation::ClampedSwiglu { alpha: 1.702, limit: 7.0 });
    assert!(matches!(config.said.rope.scaling, RopeScaling::Yarn { truncate: false, .. }));
    assert!((config.said.rope.magnitude - (0.1 * 32f32.ln() + 1.0)).abs() < 1e-6);
    let found = config.said.experts.unwrap();
    assert_eq!((found.scores, found.width), (RouterScores::SoftmaxOfChosen, 96));
    let flags = Value::Array(Array::Bool(vec![false, true, true, false]));
    let pattern = [("attention.sliding_window_pattern", flags)];
    let config = read("gpt-oss", &[experts(&[]), yarn.to_vec(), pattern.to_vec()].concat());
    assert_eq!(config.said.windows, [None, Some(7), Some(7), None]);
}

#[test]
fn layers_that_predict_further_tokens_are_not_counted() {
    let config = read("glm4moe", &experts(&[("nextn_predict_layers", u(1))]));
    assert_eq!((config.layers.len(), config.said.windows.len()), (3, 3));
    let found = config.said.experts.unwrap();
    assert_eq!((found.layers.len(), found.scores), (3, RouterScores::Sigmoid));
    check_error("glm4moe", &experts(&[("nextn_predict_layers", u(4))]), &["nextn_predict_layers"]);
}

#[test]
fn yarn_sharpens_latent_attention_by_its_multiplier() {
    let scaling = |more: Fields| {
        let yarn = [
            ("rope.scaling.type", Value::String("yarn".into())),
            ("rope.scaling.factor", Value::F32(40.0)),
        ];
        let config = read("deepseek2", &[&deepseek(&[])[..], &yarn, more].concat());
        let scale = config.said.attention_scale * (config.said.head_dim as f32).sqrt();
        (config.said.rope.magnitude, scale)
    };
    let close = |found: (f32, f32), expected: (f32, f32)| {
        let near = |a: f32, b: f32| (a - b).abs() < 1e-5;
        assert!(near(found.0, expected.0) && near(found.1, expected.1), "{found:?} {expected:?}");
    };
    let log = 0.1 * 40f32.ln() + 1.0;
    close(scaling(&[]), (log, 1.0));
    let multiplier = ("rope.scaling.yarn_log_multiplier", Value::F32(0.1));
    close(scaling(std::slice::from_ref(&multiplier)), (1.0, log * log));
    let factor = ("rope.scaling.yarn_attn_factor", Value::F32(0.5));
    close(scaling(&[multiplier, factor]), (0.5, log * log));
}

#[test]
fn the_multiplier_of_yarn_divides_its_factor_where_attention_is_not_latent() {
    let yarn = [
        ("rope.scaling.type", Value::String("yarn".into())),
        ("rope.scaling.factor", Value::F32(16.0)),
        ("rope.scaling.yarn_log_multiplier", Value::F32(1.0)),
        ("attention.temperature_scale", Value::F32(0.1)),
    ];
    let config = read("mistral3", &yarn);
    assert_eq!((config.said.rope.magnitude, config.said.attention_scale), (1.0, 1.0 / 8f32.sqrt()));
    assert_eq!(config.said.query_growth.unwrap().every, 512);
}

#[test]
fn factors_of_longrope_are_tensors() {
    let kind = [("rope.scaling.type", Value::String("longrope".into()))];
    assert_eq!(read("phi3", &kind).said.rope.scaling, RopeScaling::None);
    let other = [("rope.scaling.type", Value::String("dynamic".into()))];
    check_error("phi3", &other, &["phi3.rope.scaling.type", "longrope", "dynamic"]);
}

#[test]
fn broken_numbers_are_refused_by_key() {
    let used = |count: u32| experts(&[("expert_used_count", u(count))]);
    check_error("qwen3moe", &used(17), &["qwen3moe.expert_used_count", "expert_count (16)"]);
    check_error("qwen3moe", &used(0), &["qwen3moe.expert_used_count"]);
    check_error("llama", &experts(&[("expert_gating_func", u(9))]), &["expert_gating_func", "9"]);
    let groups = deepseek(&[("expert_group_count", u(5)), ("expert_group_used_count", u(2))]);
    check_error("deepseek2", &groups, &["deepseek2.expert_group_count", "divisor"]);
    let short = [deepseek(&[]), vec![("attention.key_length", u(16))]].concat();
    check_error("deepseek2", &short, &["deepseek2.attention.key_length"]);
    let missing = &deepseek(&[])[..5];
    check_error("deepseek2", missing, &["deepseek2."]);
    for layers in [&[0, 1, 2][..], &[0, 1, 2, 4], &[0, 1, 2, -1]] {
        let list = ("attention.kv_source_layers", Value::Array(Array::I32(layers.to_vec())));
        let sources = [deepseek(&[]), vec![list]].concat();
        let key = "mistral-large4.attention.kv_source_layers";
        check_error("mistral-large4", &sources, &[key, "each of 4 layers"]);
    }
}

#[test]
fn lists_of_counts_have_one_for_each_layer_and_may_be_absent() {
    let counts = |counts: &[i32]| Value::Array(Array::I32(counts.to_vec()));
    let gemma = |key: &'static str, value: Value| {
        let mut fields = experts(&[("expert_feed_forward_length", u(32))]);
        fields.extend([("attention.sliding_window", u(9)), (key, value)]);
        let routers: Vec<_> = (0..4).map(|at| format!("blk.{at}.ffn_gate_inp.weight")).collect();
        let routers: Vec<_> = routers.iter().map(String::as_str).collect();
        read_with("gemma4", &fields, &routers)
    };
    let config = gemma("feed_forward_length", u(0)).unwrap();
    assert_eq!(config.said.intermediate_size, 32, "that of the experts");
    let kinds = gemma("attention.head_count_kv", counts(&[2, 2, 2, 2])).unwrap();
    assert_eq!(kinds.said.windowed.unwrap().kv_heads, 2);
    for (key, value) in [
        ("attention.head_count_kv", counts(&[2, 2])),
        ("attention.head_count_kv", counts(&[2, 4, 2, 2])),
        ("attention.head_count_kv", counts(&[2, -1, 2, 2])),
        ("attention.shared_kv_layers", u(4)),
        ("feed_forward_length", counts(&[96, 192, 96, 96])),
    ] {
        let error = gemma(key, value).unwrap_err();
        assert!(error.contains(key), "{error}");
    }
}
