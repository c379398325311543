//! Gated DeltaNet in config.json and in the metadata of GGUF files.

use serde_json::{Value as Json, json};

use super::gguf::{read_with, u};
use super::{check_error, with};
use crate::config::{ModelConfig, OfLayers};
use crate::gguf::{Array, Value};
use crate::layers::{DeltaSpec, OutputGate, RopeScaling, TensorForm};

const NEXT: &str = "Qwen3NextForCausalLM";
const TEXT: &str = "Qwen3_5ForCausalLM";
const WHOLE: &str = "Qwen3_5ForConditionalGeneration";
const MOE: &str = "Qwen3_5MoeForCausalLM";
const LINEAR: &str = "linear_attention";
const FULL: &str = "full_attention";

fn delta(class: &str, fields: Json) -> OfLayers<DeltaSpec> {
    with(class, fields).unwrap().said.delta.expect("a recurrence")
}

fn gate(fields: Json) -> bool {
    with(TEXT, fields).unwrap().said.grouped.gate == OutputGate::WithQueries
}

/// The base fields without some, under `text_config`.
fn wrapped(inner: Json, outer: Json) -> Result<ModelConfig, String> {
    let mut text = super::base(TEXT);
    text.as_object_mut().unwrap().remove("architectures");
    text.as_object_mut().unwrap().extend(inner.as_object().unwrap().clone());
    let mut whole = json!({"architectures": [WHOLE], "text_config": text});
    whole.as_object_mut().unwrap().extend(outer.as_object().unwrap().clone());
    let path = std::path::Path::new("models/m/config.json");
    ModelConfig::from_hf_json(&whole.to_string(), path).map_err(|e| e.to_string())
}

#[test]
fn absent_fields_have_the_defaults_of_the_reference() {
    for class in [NEXT, TEXT, MOE] {
        let spec = DeltaSpec {
            key_heads: 16,
            value_heads: 32,
            key_dim: 128,
            value_dim: 128,
            kernel: 4,
            ..DeltaSpec::default()
        };
        let expected = OfLayers { layers: vec![true, true, true, false], spec };
        assert_eq!(delta(class, json!({})), expected, "{class}");
        let config = with(class, json!({})).unwrap();
        assert_eq!((config.said.head_dim, config.said.rope.dim), (256, 64), "{class}");
    }
    let experts = |class: &str, fields: Json| with(class, fields).unwrap().said.experts.unwrap();
    let numbers = |class: &str| {
        let e = experts(class, json!({}));
        [e.count, e.chosen, e.width, e.shared_width]
    };
    assert_eq!(numbers(NEXT), [512, 10, 512, 512]);
    assert_eq!(numbers(MOE), [256, 8, 512, 512]);
    assert!(experts(NEXT, json!({})).normalise && experts(MOE, json!({})).normalise);
    assert!(!experts(NEXT, json!({"norm_topk_prob": false})).normalise);
    let some = json!({"mlp_only_layers": [0], "decoder_sparse_step": 2});
    assert_eq!(experts(NEXT, some).layers, [false, true, false, true]);
    assert_eq!(with(TEXT, json!({})).unwrap().said.kv_heads, 4);
}

#[test]
fn the_width_of_the_mlp_is_needed_only_where_a_layer_has_one() {
    let without = json!({"intermediate_size": null});
    assert_eq!(with(MOE, without.clone()).unwrap().said.intermediate_size, 512);
    check_error(TEXT, without, &["intermediate_size"]);
    let dense = json!({"intermediate_size": null, "mlp_only_layers": [2]});
    check_error(NEXT, dense, &["intermediate_size"]);
}

#[test]
fn layers_follow_their_types_and_else_the_interval() {
    let layers = |fields: Json| with(TEXT, fields).unwrap().said.delta.map(|delta| delta.layers);
    let types = json!([FULL, LINEAR, LINEAR, FULL]);
    let expected = Some(vec![false, true, true, false]);
    assert_eq!(layers(json!({"layer_types": types})), expected);
    // The reference library ignores the interval beside types.
    assert_eq!(layers(json!({"layer_types": types, "full_attention_interval": 2})), expected);
    let every_second = Some(vec![true, false, true, false]);
    assert_eq!(layers(json!({"full_attention_interval": 2})), every_second);
    assert_eq!(layers(json!({"full_attention_interval": 1})), None);
    assert_eq!(layers(json!({"layer_types": [FULL, FULL, FULL, FULL]})), None);
    let all = with(TEXT, json!({"full_attention_interval": 1})).unwrap();
    let tensors = all.tensors(TensorForm::Hf);
    assert!(tensors.iter().all(|(name, _)| !name.contains("ssm_")), "attention in every layer");
}

#[test]
fn heads_have_gates_unless_config_json_says_otherwise() {
    assert!(gate(json!({})) && gate(json!({"attn_output_gate": true})));
    assert!(!gate(json!({"attn_output_gate": false})));
    let rows = |fields: Json| {
        let tensors = with(TEXT, fields).unwrap().tensors(TensorForm::Hf);
        tensors.into_iter().find(|(name, _)| name == "blk.3.attn_q.weight").unwrap().1[0]
    };
    assert_eq!(rows(json!({})), 2 * 8 * 256);
    assert_eq!(rows(json!({"attn_output_gate": false})), 8 * 256);
}

#[test]
fn the_text_of_several_modalities_is_read() {
    let config = wrapped(json!({}), json!({})).unwrap();
    assert_eq!(config.architecture, with(TEXT, json!({})).unwrap().architecture);
    assert_eq!((config.hidden, config.special.eos), (64, vec![2]));
    let outer = json!({"tie_word_embeddings": true, "eos_token_id": [5, 6], "pad_token_id": null});
    let inner = json!({"tie_word_embeddings": false, "pad_token_id": 7});
    let config = wrapped(inner.clone(), outer).unwrap();
    assert!(config.said.tied_embeddings, "the whole decides");
    assert_eq!((config.special.eos, config.special.pad), (vec![5, 6], Some(7)));
    assert!(!wrapped(inner, json!({})).unwrap().said.tied_embeddings);
    let by_type = json!({"architectures": null, "model_type": "qwen3_5"});
    assert!(wrapped(json!({}), by_type).unwrap().said.delta.is_some());
    let error = wrapped(json!({"linear_num_value_heads": 0}), json!({})).unwrap_err();
    assert!(error.contains("text_config.linear_num_value_heads"), "{error}");
    check_error(WHOLE, json!({}), &["text_config", "an object", "no such field"]);
    check_error(WHOLE, json!({"text_config": 3}), &["text_config", "an object", "3"]);
}

#[test]
fn sections_of_positions_are_those_of_text() {
    let sections = json!({"mrope_interleaved": true, "mrope_section": [11, 11, 10]});
    for kind in ["default", "mrope"] {
        let mut parameters = sections.clone();
        parameters["rope_type"] = json!(kind);
        parameters["rope_theta"] = json!(5e6);
        parameters["partial_rotary_factor"] = json!(0.5);
        let rope = with(TEXT, json!({"rope_parameters": parameters})).unwrap().said.rope;
        assert_eq!((rope.theta, rope.dim, rope.scaling), (5e6, 128, RopeScaling::None), "{kind}");
    }
}

#[test]
fn broken_fields_are_refused_by_name() {
    let check = |fields: Json, fragments: &[&str]| check_error(TEXT, fields, fragments);
    let heads = json!({"linear_num_key_heads": 3, "linear_num_value_heads": 4});
    check(heads, &["linear_num_value_heads", "multiple of linear_num_key_heads (3)", "found 4"]);
    check(json!({"linear_num_key_heads": 0}), &["linear_num_key_heads", "from 1 to", "found 0"]);
    check(json!({"linear_num_key_heads": 70000}), &["linear_num_key_heads", "65536", "70000"]);
    check(json!({"linear_key_head_dim": 4097}), &["linear_key_head_dim", "4096", "4097"]);
    check(json!({"linear_value_head_dim": -1}), &["linear_value_head_dim", "-1"]);
    check(json!({"linear_conv_kernel_dim": 17}), &["linear_conv_kernel_dim", "to 16", "17"]);
    check(json!({"linear_conv_kernel_dim": 2.5}), &["linear_conv_kernel_dim", "2.5"]);
    let wide = json!({"linear_num_key_heads": 65536, "linear_num_value_heads": 65536,
        "linear_key_head_dim": 4096});
    check(wide, &["linear_key_head_dim", "at most 16777216", "268435456"]);
    check(json!({"full_attention_interval": 0}), &["full_attention_interval", "found 0"]);
    check(json!({"layer_types": [LINEAR, FULL]}), &["layer_types", "layer (4)", "found 2"]);
    let unknown = json!({"layer_types": [LINEAR, "sliding_attention", LINEAR, FULL]});
    check(unknown, &["layer_types", "linear_attention or full_attention", "sliding_attention"]);
    check(json!({"layer_types": [1, 2, 3, 4]}), &["layer_types", "found 1"]);
    check(json!({"layer_types": "full_attention"}), &["layer_types", "an array"]);
    check(json!({"partial_rotary_factor": 0.02}), &["partial_rotary_factor", "even", "found 5"]);
    check(json!({"partial_rotary_factor": 1.5}), &["partial_rotary_factor", "found 384"]);
    check(json!({"attn_output_gate": "yes"}), &["attn_output_gate", "true or false", "yes"]);
    check(json!({"attention_bias": true}), &["attention_bias", "expected false"]);
    check(json!({"hidden_act": "gelu"}), &["hidden_act", "gelu"]);
    check_error(NEXT, json!({"num_experts_per_tok": 600}), &["num_experts_per_tok", "600"]);
}

const SSM: [(&str, Value); 5] = [
    ("ssm.conv_kernel", Value::U32(4)),
    ("ssm.state_size", Value::U32(16)),
    ("ssm.group_count", Value::U32(2)),
    ("ssm.time_step_rank", Value::U32(6)),
    ("ssm.inner_size", Value::U32(144)),
];

fn flags(layers: &[bool]) -> Value {
    Value::Array(Array::Bool(layers.to_vec()))
}

#[test]
fn gguf_files_say_which_layers_recur_and_how_heads_lie() {
    let read = |arch: &str, more: &[(&str, Value)]| {
        read_with(arch, &[&SSM, more].concat(), &[]).unwrap().said.delta.unwrap()
    };
    let found = read("qwen35", &[]);
    let spec = found.spec;
    let sizes = [spec.key_heads, spec.value_heads, spec.key_dim, spec.value_dim, spec.kernel];
    assert_eq!((sizes, spec.tiled), ([2, 6, 16, 24, 4], true));
    assert_eq!(found.layers, [true, true, true, false]);
    assert!(!read("qwen3next", &[]).spec.tiled);
    let second = ("full_attention_interval", u(2));
    assert_eq!(read("qwen35", std::slice::from_ref(&second)).layers, [true, false, true, false]);
    let listed = ("attention.recurrent_layers", flags(&[false, true, true, true, false]));
    assert_eq!(read("qwen35", &[second, listed]).layers, [false, true, true, true]);
    let drafts = [("nextn_predict_layers", u(1))];
    assert_eq!(read("qwen35", &drafts).layers, [true, true, true]);
}

#[test]
fn broken_keys_of_gguf_files_are_refused_by_name() {
    let check = |key: &'static str, value: Value, fragments: &[&str]| {
        let fields: Vec<_> = SSM.into_iter().filter(|(known, _)| *known != key).collect();
        let error = read_with("qwen35", &[fields, vec![(key, value)]].concat(), &[]).unwrap_err();
        let key = format!("qwen35.{key}");
        for fragment in fragments.iter().chain([&key.as_str()]) {
            assert!(error.contains(fragment), "{error:?} does not say {fragment:?}");
        }
    };
    check("ssm.inner_size", u(145), &["multiple of qwen35.ssm.time_step_rank (6)", "145"]);
    check("ssm.inner_size", u(6 * 5000), &["at most 4096", "30000"]);
    check("ssm.time_step_rank", u(3), &["multiple of qwen35.ssm.group_count (2)", "found 3"]);
    check("ssm.conv_kernel", u(0), &["from 1 to 16", "found 0"]);
    check("ssm.state_size", u(1 << 20), &["4096", "1048576"]);
    check("ssm.group_count", Value::String("x".into()), &["x"]);
    check("attention.recurrent_layers", flags(&[true]), &["layer (4)", "found 1"]);
    check("full_attention_interval", u(0), &["found 0"]);
    let error = read_with("qwen35", &SSM[..3], &[]).unwrap_err();
    assert!(error.contains("qwen35.ssm.time_step_rank"), "{error}");
}
