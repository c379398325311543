//! YaRN in config.json: its parameters, and the two factors that follow from them.

use serde_json::{Value as Json, json};

use super::{check_error, check_scaling, with};
use crate::layers::RopeScaling;

const V3: &str = "DeepseekV3ForCausalLM";
const QWEN3: &str = "Qwen3ForCausalLM";

fn yarn(factor: f32, original_context: usize) -> RopeScaling {
    let (beta_fast, beta_slow) = (32.0, 1.0);
    RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate: true }
}

/// Magnitude and factor of the attention scores (times the root of the head's values).
fn check_factors(class: &str, parameters: Json, magnitude: f64, sharpening: f64) {
    let config = with(class, json!({"rope_scaling": parameters})).unwrap();
    let scale = f64::from(config.said.attention_scale) * (config.said.head_dim as f64).sqrt();
    let close = |found: f64, expected: f64| (found - expected).abs() < 1e-6 * expected;
    let found = f64::from(config.said.rope.magnitude);
    assert!(close(found, magnitude), "{parameters}: {found}, not {magnitude}");
    assert!(close(scale, sharpening), "{parameters}: {scale}, not {sharpening}");
}

#[test]
fn parameters_have_the_defaults_of_the_reference() {
    let given = json!({"rope_scaling": {"type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 128}});
    check_scaling(given, 1e4, &yarn(4.0, 128));
    let absent = json!({"rope_scaling": {"type": "yarn", "factor": 4.0}});
    check_scaling(absent, 1e4, &yarn(4.0, 512));
    let ratio = json!({"rope_scaling": {"rope_type": "yarn", "factor": null,
        "original_max_position_embeddings": 64}});
    check_scaling(ratio, 1e4, &yarn(8.0, 64));
    let outer = json!({"original_max_position_embeddings": 32, "rope_scaling":
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}});
    check_scaling(outer, 1e4, &yarn(2.0, 32));
    let all = json!({"rope_theta": 15e4, "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
        "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 0,
        "truncate": false}});
    let expected = RopeScaling::Yarn {
        factor: 2.0,
        original_context: 64,
        beta_fast: 16.0,
        beta_slow: 1.0,
        truncate: false,
    };
    check_scaling(all, 15e4, &expected);
}

#[test]
fn the_factors_are_those_of_the_reference() {
    let log = |factor: f64, multiplier: f64| 0.1 * multiplier * factor.ln() + 1.0;
    let with_keys = |more: Json| {
        let mut keys = json!({"rope_type": "yarn", "factor": 40.0});
        keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        keys
    };
    check_factors(QWEN3, with_keys(json!({})), log(40.0, 1.0), 1.0);
    check_factors(QWEN3, with_keys(json!({"attention_factor": 0.5})), 0.5, 1.0);
    check_factors(QWEN3, with_keys(json!({"factor": 0.5})), 1.0, 1.0);
    let both = with_keys(json!({"mscale": 1.0, "mscale_all_dim": 0.5}));
    check_factors(QWEN3, both.clone(), log(40.0, 1.0) / log(40.0, 0.5), 1.0);
    check_factors(V3, both, log(40.0, 1.0) / log(40.0, 0.5), log(40.0, 0.5).powi(2));
    check_factors(V3, with_keys(json!({"mscale": 1.0})), log(40.0, 1.0), 1.0);
    let zero = with_keys(json!({"mscale": 1.0, "mscale_all_dim": 0}));
    check_factors(V3, zero, log(40.0, 1.0), 1.0);
    let alone = with_keys(json!({"mscale_all_dim": 1.0}));
    check_factors(V3, alone, log(40.0, 1.0), log(40.0, 1.0).powi(2));
}

#[test]
fn gpt_oss_is_scaled_unless_it_says_otherwise() {
    let class = "GptOssForCausalLM";
    let expected = RopeScaling::Yarn {
        factor: 32.0,
        original_context: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: false,
    };
    let absent = with(class, json!({})).unwrap().said.rope;
    assert_eq!((absent.scaling, absent.theta), (expected, 150_000.0));
    assert!((absent.magnitude - (0.1 * 32f32.ln() + 1.0)).abs() < 1e-6);
    let default = json!({"rope_parameters": {"rope_theta": 1e4}});
    let rope = with(class, default).unwrap().said.rope;
    assert_eq!((rope.scaling, rope.theta, rope.magnitude), (RopeScaling::None, 1e4, 1.0));
}

#[test]
fn numbers_that_cannot_be_computed_with_are_refused_by_name() {
    let check = |key: &str, value: Json, field: &str| {
        let mut keys = json!({"rope_type": "yarn", "factor": 40.0, "rope_theta": 1e4});
        keys[key] = value;
        check_error(QWEN3, json!({"rope_scaling": keys}), &[field]);
    };
    check("factor", json!(0), "rope_scaling.factor");
    check("beta_fast", json!(-1), "rope_scaling.beta_fast");
    check("mscale", json!(-1), "rope_scaling.mscale");
    check("attention_factor", json!(0), "rope_scaling.attention_factor");
    check("rope_theta", json!(1.0), "rope_theta");
    check("original_max_position_embeddings", json!(0), "original_max_position_embeddings");
    let huge =
        json!({"rope_type": "yarn", "factor": 1e30, "mscale": 3e38, "mscale_all_dim": 1e-30});
    check_error(QWEN3, json!({"rope_scaling": huge}), &["rope_scaling", "finite"]);
}
