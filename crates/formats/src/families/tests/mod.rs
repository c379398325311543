//! Reading config.json of every style, and reading back written configurations.

mod compressed;
mod delta;
mod encoders;
mod experts;
mod gguf;
mod names;
mod write;
mod yarn;

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::config::ModelConfig;
use crate::layers::RopeScaling;

fn base(class: &str) -> Json {
    json!({
        "architectures": [class], "hidden_size": 64, "intermediate_size": 96, "vocab_size": 320,
        "num_hidden_layers": 4, "num_attention_heads": 8, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6, "eos_token_id": 2
    })
}

fn with(class: &str, fields: Json) -> Result<ModelConfig, String> {
    let mut config = base(class);
    for (key, value) in fields.as_object().unwrap() {
        config[key] = value.clone();
    }
    let path = Path::new("models/m/config.json");
    ModelConfig::from_hf_json(&config.to_string(), path).map_err(|e| e.to_string())
}

fn check_windows(class: &str, fields: Json, expected: [Option<usize>; 4]) {
    assert_eq!(with(class, fields.clone()).unwrap().said.windows, expected, "{class} {fields}");
}

fn check_scaling(fields: Json, theta: f32, expected: &RopeScaling) {
    let rope = with("LlamaForCausalLM", fields.clone()).unwrap().said.rope;
    assert_eq!((rope.theta, &rope.scaling), (theta, expected), "{fields}");
}

fn check_error(class: &str, fields: Json, fragments: &[&str]) {
    let error = with(class, fields.clone()).unwrap_err();
    for fragment in fragments {
        assert!(error.contains(fragment), "{fields}: {error:?} does not say {fragment:?}");
    }
}

#[test]
fn absent_fields_have_the_defaults_of_the_reference() {
    let config = with("LlamaForCausalLM", json!({})).unwrap();
    assert_eq!((config.said.kv_heads, config.said.head_dim, config.said.rope.dim), (8, 8, 8));
    assert_eq!((config.said.rope.theta, config.said.tied_embeddings), (10_000.0, false));
    assert_eq!(config.name, "m");
    assert_eq!(with("Qwen3ForCausalLM", json!({})).unwrap().said.head_dim, 128);
    let by_type = json!({"architectures": null, "model_type": "qwen2"});
    assert_eq!(with("", by_type).unwrap().architecture, "qwen2");
}

#[test]
fn a_padding_id_of_minus_one_is_none_and_other_negative_ids_are_errors() {
    let pad = |id: i64| with("LlamaForCausalLM", json!({"pad_token_id": id}));
    assert_eq!(pad(-1).unwrap().special.pad, None);
    assert_eq!(pad(3).unwrap().special.pad, Some(3));
    assert!(pad(-2).is_err());
    check_error("LlamaForCausalLM", json!({"eos_token_id": -1}), &["eos_token_id", "-1"]);
}

#[test]
fn windows_follow_the_rules_of_each_family() {
    let (none, w) = (None, Some(7));
    check_windows("LlamaForCausalLM", json!({"sliding_window": 7}), [none; 4]);
    check_windows("MistralForCausalLM", json!({"sliding_window": 7}), [w; 4]);
    check_windows("MistralForCausalLM", json!({"sliding_window": null}), [none; 4]);
    check_windows("MistralForCausalLM", json!({}), [Some(4096); 4]);
    let off = json!({"sliding_window": 7, "use_sliding_window": false, "max_window_layers": 0});
    check_windows("Qwen2ForCausalLM", off, [none; 4]);
    let on = json!({"sliding_window": 7, "use_sliding_window": true, "max_window_layers": 3});
    check_windows("Qwen2ForCausalLM", on.clone(), [none, none, none, w]);
    check_windows("Qwen3ForCausalLM", on, [none, none, none, w]);
    let (full, sliding) = ("full_attention", "sliding_attention");
    let types = json!({"sliding_window": 7, "use_sliding_window": true,
        "layer_types": [sliding, full, sliding, full]});
    check_windows("Qwen2ForCausalLM", types, [w, none, w, none]);
    let absent = json!({"use_sliding_window": true, "max_window_layers": 3});
    check_windows("Qwen3ForCausalLM", absent, [none, none, none, Some(4096)]);
    let null = json!({"use_sliding_window": true, "max_window_layers": 0, "sliding_window": null});
    check_windows("Qwen3ForCausalLM", null, [none; 4]);
}

#[test]
fn rope_scaling_is_read_in_both_styles() {
    let linear = RopeScaling::Linear { factor: 4.0 };
    check_scaling(json!({"rope_theta": 5e5, "rope_scaling": null}), 5e5, &RopeScaling::None);
    check_scaling(json!({"rope_scaling": {"type": "linear", "factor": 4.0}}), 1e4, &linear);
    check_scaling(json!({"rope_scaling": {"rope_type": "linear", "factor": 4}}), 1e4, &linear);
    let new = json!({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 2e4}});
    check_scaling(new, 2e4, &linear);
    check_scaling(json!({"rope_parameters": {"rope_theta": 3e4}}), 3e4, &RopeScaling::None);
    let inside = json!({"type": "linear", "factor": 4.0, "rope_theta": 6e4});
    check_scaling(json!({"rope_scaling": inside, "rope_theta": 5e5}), 6e4, &linear);
    let both = json!({"rope_scaling": inside, "rope_parameters": {"rope_theta": 3e4}});
    check_scaling(both, 6e4, &linear);
    let empty = json!({"rope_scaling": {}, "rope_parameters": {"rope_theta": 3e4}});
    check_scaling(empty, 3e4, &RopeScaling::None);
    let half = with("LlamaForCausalLM", json!({"partial_rotary_factor": 0.5})).unwrap();
    assert_eq!(half.said.rope.dim, 4);
}

#[test]
fn kinds_of_layers_and_factors_that_do_not_fit_are_errors() {
    let all = json!({"num_kv_shared_layers": 4, "hidden_size_per_layer_input": 0});
    check_error("Gemma4ForCausalLM", all, &["num_kv_shared_layers", "fewer", "4"]);
    let kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"];
    let alone = json!({"num_kv_shared_layers": 1, "layer_types": kinds});
    check_error("Gemma4ForCausalLM", alone, &["num_kv_shared_layers", "layer 3"]);
    let uneven = json!({"num_key_value_heads": 3, "num_global_key_value_heads": 2,
        "attention_k_eq_v": true});
    check_error("Gemma4ForCausalLM", uneven, &["num_key_value_heads", "8", "3"]);
    let short = json!({"rope_scaling": {"type": "longrope", "short_factor": [1.0],
        "long_factor": [1.0, 2.0, 3.0, 4.0]}});
    check_error("Phi3ForCausalLM", short, &["rope_scaling", "4 factors"]);
    let large = json!({"rope_scaling": {"type": "dynamic", "alpha": 1e38}});
    check_error("HunYuanDenseV1ForCausalLM", large, &["rope_scaling.alpha", "finite"]);
    check_error("Gemma3ForCausalLM", json!({"hidden_activation": "relu"}), &["gelu", "relu"]);
}

#[test]
fn layers_attend_to_latent_rows_of_earlier_ones_of_their_kind() {
    const CLASS: &str = "MistralLarge4ForCausalLM";
    let read = |fields: Json| with(CLASS, fields).unwrap().said;
    let config = read(json!({}));
    assert_eq!((config.kv_sources, config.logit_cap), (None, Some(30.0)));
    assert_eq!(config.unrotated, [false, false, false, true]);
    assert_eq!(read(json!({"kv_source_layers": [0, 1, 2, 3]})).kv_sources, None);
    let config = read(json!({"kv_source_layers": [0, 1, 0, 3]}));
    assert_eq!(config.kv_sources, Some(vec![0, 1, 0, 3]));
    for (sources, words) in [
        (json!([0, 1]), ["the number of a layer for each of 4 layers", ""]),
        (json!([0, 1, 2, 4]), ["the number of a layer for each of 4 layers", ""]),
        (json!([0, 1, 2, -1]), ["the number of a layer for each of 4 layers", ""]),
        (json!([0, 2, 2, 3]), ["expected layer 1 or an earlier one", "found 2"]),
        (json!([0, 0, 1, 3]), ["expected layer 2 or an earlier one", "found 1"]),
        // The last layer is not rotated.
        (json!([0, 1, 2, 1]), ["expected layer 3 or an earlier one", "found 1"]),
    ] {
        let fields = json!({"kv_source_layers": sources});
        check_error(CLASS, fields, &["config.json", "kv_source_layers", words[0], words[1]]);
    }
}

#[test]
fn what_cannot_be_run_rightly_is_refused_by_name() {
    let llama = "LlamaForCausalLM";
    let dynamic = json!({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}});
    check_error(llama, dynamic, &["rope_scaling.rope_type", "dynamic", "llama3", "yarn"]);
    check_error(llama, json!({"rope_scaling": {"factor": 4.0}}), &["rope_scaling.rope_type"]);
    check_error(llama, json!({"hidden_act": "gelu"}), &["hidden_act", "silu", "gelu"]);
    check_error(llama, json!({"rms_norm_eps": -1.0}), &["rms_norm_eps", "-1"]);
    check_error(llama, json!({"rope_theta": 0}), &["rope_theta"]);
    check_error(llama, json!({"partial_rotary_factor": 0.1}), &["partial_rotary_factor"]);
    check_error(llama, json!({"vocab_size": 4e9}), &["vocab_size"]);
    check_error(llama, json!({"eos_token_id": [1, "x"]}), &["eos_token_id"]);
    check_error("MistralForCausalLM", json!({"sliding_window": 0}), &["sliding_window", "0"]);
    check_error(
        "Qwen2ForCausalLM",
        json!({"layer_types": ["full_attention"]}),
        &["layer_types", "4"],
    );
    check_error("Qwen2ForCausalLM", json!({"layer_types": [1, 2, 3, 4]}), &["layer_types"]);
    let sliding = json!({"layer_types": vec!["sliding_attention"; 4]});
    check_error("Qwen2ForCausalLM", sliding, &["sliding_window", "layer_types"]);
    let apart = json!({"rope_parameters": {"full_attention": {"rope_theta": 5e5}}});
    check_error(llama, apart, &["rope_parameters.full_attention", "all layers"]);
    check_error(llama, json!({"architectures": [5]}), &["architectures", "found 5"]);
    check_error("BloomForCausalLM", json!({}), &["BloomForCausalLM", "qwen3"]);
}

fn llama3() -> Json {
    json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, "rope_theta": 5e5,
        "head_dim": 16})
}

#[test]
fn llama3_factors_keep_short_wavelengths_and_divide_long_ones() {
    let config = with("LlamaForCausalLM", llama3()).unwrap();
    let factors =
        config.said.rope.scaling.factors(config.said.rope.theta, config.said.rope.dim).unwrap();
    assert_eq!(factors.len(), 8);
    assert_eq!((factors[0], factors[7]), (1.0, 8.0));
    assert!(factors.is_sorted());
    assert!(factors[1] > 1.0 && factors[1] < 8.0, "{factors:?}");
}
