//! Reading routed experts and latent attention from config.json, family by family.

use serde_json::{Value as Json, json};

use super::{check_error, check_windows, with};
use crate::config::{ExpertsConfig, ModelConfig};
use crate::layers::{Activation, ExpertGroups, GroupRank, LatentConfig, RopeLayout, RouterScores};

const QWEN2: &str = "Qwen2MoeForCausalLM";
const QWEN3: &str = "Qwen3MoeForCausalLM";
const MIXTRAL: &str = "MixtralForCausalLM";
const V2: &str = "DeepseekV2ForCausalLM";
const V3: &str = "DeepseekV3ForCausalLM";
const GLM: &str = "Glm4MoeForCausalLM";
const GPT_OSS: &str = "GptOssForCausalLM";

/// As `with`, for eight heads whatever the class takes.
fn read(class: &str, mut fields: Json) -> ModelConfig {
    if fields.get("num_key_value_heads").is_none() {
        fields["num_key_value_heads"] = json!(8);
    }
    with(class, fields).unwrap()
}

fn experts(class: &str, fields: Json) -> ExpertsConfig {
    read(class, fields).said.experts.expect("a model with experts")
}

fn check_layers(class: &str, fields: Json, expected: [bool; 4]) {
    let found = read(class, fields.clone()).said.experts.map_or([false; 4].to_vec(), |e| e.layers);
    assert_eq!(found, expected, "{class} {fields}");
}

#[test]
fn absent_fields_have_the_defaults_of_each_class() {
    let check = |class: &str, fields: Json, expected: [usize; 4]| {
        let e = experts(class, fields);
        assert_eq!([e.count, e.chosen, e.width, e.shared_width], expected, "{class}");
    };
    check(QWEN2, json!({}), [60, 4, 1408, 5632]);
    check(QWEN3, json!({}), [128, 8, 768, 0]);
    check(MIXTRAL, json!({}), [8, 2, 96, 0]);
    check(V2, json!({"num_experts_per_tok": 6}), [64, 6, 1407, 2 * 1407]);
    check(V3, json!({"first_k_dense_replace": 1}), [256, 8, 2048, 2048]);
    check(GLM, json!({}), [128, 8, 1408, 1408]);
    check(GPT_OSS, json!({}), [128, 4, 96, 0]);
    assert_eq!(with(QWEN3, json!({})).unwrap().said.kv_heads, 4);
    assert_eq!(with(QWEN3, json!({"num_key_value_heads": null})).unwrap().said.kv_heads, 8);
    assert_eq!(with(MIXTRAL, json!({})).unwrap().said.rope.theta, 1e6);
    assert_eq!((read(GLM, json!({})).said.rope.dim, read(GLM, json!({})).said.head_dim), (4, 8));
    assert_eq!(read(GPT_OSS, json!({})).said.head_dim, 64);
}

#[test]
fn each_family_routes_in_its_own_way() {
    let check = |class: &str, scores: RouterScores, normalise: bool, scale: f32| {
        let e = experts(class, json!({"num_experts_per_tok": 4, "first_k_dense_replace": 0}));
        assert_eq!((e.scores, e.normalise, e.scale), (scores, normalise, scale), "{class}");
    };
    check(QWEN2, RouterScores::Softmax, false, 1.0);
    check(QWEN3, RouterScores::Softmax, false, 1.0);
    check(MIXTRAL, RouterScores::Softmax, true, 1.0);
    check(V2, RouterScores::Softmax, false, 1.0);
    check(V3, RouterScores::Sigmoid, true, 2.5);
    check(GLM, RouterScores::Sigmoid, true, 1.0);
    check(GPT_OSS, RouterScores::SoftmaxOfChosen, false, 1.0);
    assert!(experts(QWEN3, json!({"norm_topk_prob": true})).normalise);
    let v2 = json!({"norm_topk_prob": true, "routed_scaling_factor": 16, "num_experts_per_tok": 6});
    let v2 = experts(V2, v2);
    assert_eq!((v2.normalise, v2.scale), (false, 16.0));
    let clamped = read(GPT_OSS, json!({"swiglu_limit": 2.0})).said.activation;
    assert_eq!(clamped, Activation::ClampedSwiglu { alpha: 1.702, limit: 2.0 });
    assert_eq!(read(QWEN3, json!({})).said.activation, Activation::Silu);
}

#[test]
fn the_number_of_experts_has_many_names() {
    for name in ["num_experts", "num_local_experts", "n_routed_experts"] {
        assert_eq!(experts(QWEN3, json!({name: 16})).count, 16, "{name}");
    }
    assert!(read(QWEN3, json!({"num_experts": 0})).said.experts.is_none());
    let kimi = json!({"architectures": null, "model_type": "kimi_k2", "first_k_dense_replace": 1});
    assert_eq!(with("", kimi).unwrap().architecture, "deepseek_v3");
}

#[test]
fn layers_without_experts_are_found_by_every_rule() {
    let (no, yes) = (false, true);
    check_layers(QWEN3, json!({}), [yes; 4]);
    check_layers(QWEN3, json!({"mlp_only_layers": [1, 9]}), [yes, no, yes, yes]);
    check_layers(QWEN2, json!({"decoder_sparse_step": 2}), [no, yes, no, yes]);
    let both = json!({"decoder_sparse_step": 2, "mlp_only_layers": [3]});
    check_layers(QWEN2, both, [no, yes, no, no]);
    check_layers(QWEN2, json!({"decoder_sparse_step": 5}), [no; 4]);
    check_layers(V3, json!({}), [no, no, no, yes]);
    check_layers(V3, json!({"first_k_dense_replace": 9}), [no; 4]);
    let second = json!({"first_k_dense_replace": 1, "moe_layer_freq": 2});
    check_layers(V3, second, [no, no, yes, no]);
    check_layers(V2, json!({"num_experts_per_tok": 2}), [yes; 4]);
    check_layers(GLM, json!({}), [no, yes, yes, yes]);
}

#[test]
fn groups_are_more_than_one() {
    let v3 = |mut fields: Json| {
        fields["first_k_dense_replace"] = json!(0);
        experts(V3, fields).groups
    };
    let of = |count, chosen, rank| Some(ExpertGroups { count, chosen, rank });
    assert_eq!(v3(json!({})), of(8, 4, GroupRank::BestTwo));
    assert_eq!(v3(json!({"n_group": 1, "topk_group": 1})), None);
    assert_eq!(v3(json!({"n_group": null})), None);
    let limited = json!({"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3,
        "num_experts_per_tok": 6});
    assert_eq!(experts(V2, limited).groups, of(8, 3, GroupRank::Best));
    let greedy = json!({"n_group": 8, "topk_group": 3, "num_experts_per_tok": 6});
    assert_eq!(experts(V2, greedy).groups, None);
}

#[test]
fn latent_attention_has_its_own_sizes() {
    let v3 = read(V3, json!({"num_key_value_heads": 2}));
    let mut expected = LatentConfig {
        q_rank: Some(1536),
        kv_rank: 512,
        nope_dim: 128,
        rope_dim: 64,
        value_dim: 128,
    };
    assert_eq!(v3.said.latent, Some(expected));
    assert_eq!((v3.said.head_dim, v3.said.kv_heads, v3.said.rope.dim), (192, 8, 64));
    assert_eq!(v3.said.rope.layout, RopeLayout::Interleaved);
    assert_eq!(read(V3, json!({"rope_interleave": false})).said.rope.layout, RopeLayout::Halves);
    expected.q_rank = None;
    let lite = read(V2, json!({"q_lora_rank": null, "num_experts_per_tok": 6}));
    assert_eq!(lite.said.latent, Some(expected));
}

#[test]
fn windows_differ_between_the_families() {
    let (none, w) = (None, Some(7));
    let on = |end: usize| {
        json!({"sliding_window": 7, "use_sliding_window": true, "max_window_layers": end,
            "num_key_value_heads": 8})
    };
    check_windows(QWEN2, on(2), [w, none, none, none]);
    check_windows(QWEN2, on(4), [w, none, w, none]);
    check_windows(QWEN3, on(0), [w; 4]);
    check_windows(MIXTRAL, json!({}), [none; 4]);
    check_windows(MIXTRAL, json!({"sliding_window": 7}), [w; 4]);
    check_windows(GPT_OSS, json!({}), [Some(128), none, Some(128), none]);
    let (full, sliding) = ("full_attention", "sliding_attention");
    let types = json!({"sliding_window": 7, "layer_types": [full, full, sliding, full]});
    check_windows(GPT_OSS, types, [none, none, w, none]);
}

#[test]
fn broken_numbers_of_experts_are_refused_by_name() {
    let none = json!({"num_experts_per_tok": 6, "first_k_dense_replace": 0});
    let check = |class: &str, fields: Json, fragments: &[&str]| {
        let mut all = none.clone();
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        all["num_key_value_heads"] = json!(8);
        check_error(class, all, fragments);
    };
    check(QWEN3, json!({"num_experts": 5}), &["num_experts_per_tok", "num_experts (5)", "6"]);
    check(V3, json!({"n_routed_experts": 5}), &["num_experts_per_tok", "n_routed_experts (5)"]);
    check(V3, json!({"n_group": 7}), &["n_group", "divisor", "256"]);
    check(V3, json!({"n_group": 256}), &["n_group", "two experts"]);
    check(V3, json!({"topk_group": 9}), &["topk_group", "n_group (8)"]);
    check(V3, json!({"n_group": 128, "topk_group": 2}), &["num_experts_per_tok", "4", "6"]);
    check(V3, json!({"topk_group": null}), &["topk_group"]);
    check(V3, json!({"scoring_func": "tanh"}), &["scoring_func", "sigmoid", "tanh"]);
    check(V3, json!({"topk_method": "greedy"}), &["topk_method", "noaux_tc"]);
    check(V2, json!({"topk_method": "best"}), &["topk_method", "group_limited_greedy", "best"]);
    check(V2, json!({"scoring_func": "sigmoid"}), &["scoring_func", "softmax"]);
    check(V2, json!({"num_experts_per_tok": null}), &["num_experts_per_tok"]);
    check(V2, json!({"attention_bias": true}), &["attention_bias"]);
    check(V3, json!({"num_experts_per_tok": 0}), &["num_experts_per_tok"]);
    check(V3, json!({"n_routed_experts": 1e6}), &["n_routed_experts"]);
    check(V3, json!({"qk_rope_head_dim": 63}), &["qk_rope_head_dim", "even"]);
    check(V3, json!({"n_shared_experts": 60000}), &["n_shared_experts"]);
    check(V3, json!({"routed_scaling_factor": 0}), &["routed_scaling_factor"]);
    check(QWEN2, json!({"decoder_sparse_step": 0}), &["decoder_sparse_step"]);
    check(QWEN2, json!({"mlp_only_layers": ["x"]}), &["mlp_only_layers", "x"]);
    check(GPT_OSS, json!({"swiglu_limit": -1}), &["swiglu_limit"]);
}
