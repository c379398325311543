//! Reading and writing attention to compressed rows, hyper-connections and experts by token.

use serde_json::{Value as Json, json};

use super::gguf::{Fields, read_with};
use super::{check_error, with};
use crate::config::ModelConfig;
use crate::gguf::{Array, GgufWriter, Value};
use crate::layers::{RopeLayout, RopeScaling, RouterScores};

const CLASS: &str = "DeepseekV4ForCausalLM";
const ARCH: &str = "deepseek4";

fn merged(mut base: Json, fields: &Json) -> Json {
    base.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    base
}

/// Fields for the four layers of the base, with heads of 32 values of which 16 are rotated.
fn fields(more: &Json) -> Json {
    let base = json!({"head_dim": 32, "qk_rope_head_dim": 16, "o_groups": 4, "index_head_dim": 24,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "compress_ratios": [0, 128, 4, 16]});
    merged(base, more)
}

fn read(more: Json) -> ModelConfig {
    with(CLASS, fields(&more)).unwrap()
}

fn refused(more: Json, fragments: &[&str]) {
    check_error(CLASS, fields(&more), fragments);
}

fn yarn(factor: f32, original_context: usize) -> RopeScaling {
    let (beta_fast, beta_slow) = (32.0, 1.0);
    RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate: true }
}

#[test]
fn absent_fields_have_the_defaults_of_the_class() {
    let config = with(CLASS, json!({"compress_ratios": [0, 128, 4, 16]})).unwrap();
    let sizes = config.said.compressed.as_ref().unwrap();
    assert_eq!((config.said.head_dim, config.said.kv_heads, sizes.rope_dim), (512, 1, 64));
    assert_eq!([sizes.q_rank, sizes.groups, sizes.out_rank], [1024, 8, 1024]);
    assert_eq!([sizes.index_heads, sizes.index_dim, sizes.index_top], [64, 128, 512]);
    assert_eq!((config.said.rope.theta, sizes.rope.theta), (10_000.0, 160_000.0));
    assert_eq!(sizes.rope.scaling, RopeScaling::None);
    assert_eq!(config.said.windows, [Some(128); 4]);
    let hyper = config.said.hyper.unwrap();
    assert_eq!((hyper.streams, hyper.iterations, hyper.eps), (4, 20, 1e-6));
    let experts = config.said.experts.unwrap();
    assert_eq!([experts.count, experts.chosen, experts.width], [256, 6, 2048]);
    assert_eq!((experts.shared_width, experts.scale), (2048, 1.5));
    assert_eq!(experts.scores, RouterScores::SqrtSoftplus);
    assert_eq!(experts.by_token, [true, true, true, false]);
    assert_eq!((experts.limits, experts.shared_limits), (vec![Some(10.0); 4], vec![Some(10.0); 4]));
    // The MLP of no layer has this width.
    assert_eq!(config.said.intermediate_size, 96);
}

#[test]
fn layers_are_compressed_by_ratio_or_by_type() {
    let check = |more: Json, ratios: [usize; 4], indexed: [bool; 4]| {
        let config = read(more.clone());
        let sizes = config.said.compressed.as_ref().unwrap();
        assert_eq!((&sizes.ratios[..], &sizes.indexed[..]), (&ratios[..], &indexed[..]), "{more}");
    };
    let (no, yes) = (false, true);
    check(json!({}), [0, 128, 4, 16], [no, no, yes, no]);
    let further = json!({"compress_ratios": [4, 0, 1, 4, 0, "draft"]});
    check(further, [4, 0, 1, 4], [yes, no, no, yes]);
    let (window, sparse, heavy) =
        ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention");
    let types = json!({"compress_ratios": null, "layer_types": [window, sparse, heavy, sparse]});
    check(types.clone(), [0, 4, 128, 4], [no, yes, no, yes]);
    let rates = json!({"compress_rates": {sparse: 6, heavy: 4}});
    check(merged(types.clone(), &rates), [0, 6, 4, 6], [no, yes, no, yes]);
    let single = json!({"compress_rate_csa": 8, "compress_rate_hca": 64});
    check(merged(types.clone(), &single), [0, 8, 64, 8], [no, yes, no, yes]);
    let draft = json!({"layer_types": [window, sparse, heavy, heavy, window],
        "num_nextn_predict_layers": 1});
    check(merged(types, &draft), [0, 4, 128, 128], [no, yes, no, no]);
    let both = json!({"layer_types": [heavy, heavy, heavy, heavy]});
    check(both, [0, 128, 4, 16], [no, no, yes, no]);
}

#[test]
fn sizes_of_an_index_are_those_of_layers_that_have_one() {
    let config = read(json!({"compress_ratios": [0, 128, 0, 16], "index_topk": 0}));
    let sizes = config.said.compressed.as_ref().unwrap();
    assert_eq!([sizes.index_heads, sizes.index_dim, sizes.index_top], [0; 3]);
}

#[test]
fn rotary_parameters_are_read_in_both_styles_and_leave_the_magnitude_alone() {
    let check = |more: Json, main: (f32, RopeScaling), compressed: (f32, RopeScaling)| {
        let config = read(more.clone());
        for (rope, (theta, scaling)) in [
            (&config.said.rope, &main),
            (&config.said.compressed.as_ref().unwrap().rope, &compressed),
        ] {
            assert_eq!((rope.theta, &rope.scaling), (*theta, scaling), "{more}");
            assert_eq!((rope.dim, rope.magnitude), (16, 1.0), "{more}");
            assert_eq!(rope.layout, RopeLayout::Interleaved);
        }
    };
    let scaling = json!({"type": "yarn", "factor": 16, "original_max_position_embeddings": 128});
    let plain = |theta| (theta, RopeScaling::None);
    check(json!({"rope_scaling": scaling}), plain(1e4), (16e4, yarn(16.0, 128)));
    let bases = json!({"rope_scaling": scaling, "rope_theta": 2e4, "compress_rope_theta": 5e4});
    check(bases, plain(2e4), (5e4, yarn(16.0, 128)));
    let inner = merged(scaling.clone(), &json!({"rope_theta": 7e4}));
    let pair = json!({"rope_theta": 3e4, "rope_parameters": {
        "main": {"rope_type": "default", "rope_theta": 2e4}, "compress": inner}});
    check(pair, plain(2e4), (7e4, yarn(16.0, 128)));
    let outside = json!({"rope_theta": 3e4, "compress_rope_theta": 4e4,
        "rope_parameters": {"main": {"rope_type": "default"}, "compress": scaling}});
    check(outside, plain(3e4), (4e4, yarn(16.0, 128)));
    let flat = merged(scaling, &json!({"rope_type": "yarn", "attention_factor": 1.0}));
    check(json!({"rope_parameters": flat}), plain(1e4), (16e4, yarn(16.0, 128)));
}

#[test]
fn rotated_values_are_a_number_or_a_share() {
    let dim = |more: Json| read(more).said.compressed.as_ref().unwrap().rope_dim;
    let share = |share: f64| json!({"qk_rope_head_dim": null, "partial_rotary_factor": share});
    assert_eq!((dim(share(0.25)), dim(share(0.375))), (8, 12));
    assert_eq!(dim(json!({"partial_rotary_factor": 0.5})), 16);
    let main = json!({"main": {"partial_rotary_factor": 0.25}, "compress": {}});
    assert_eq!(dim(json!({"qk_rope_head_dim": null, "rope_parameters": main})), 8);
    assert_eq!(dim(json!({"qk_rope_head_dim": null})), 4);
    refused(json!({"partial_rotary_factor": 0.25}), &["partial_rotary_factor", "(16)", "8"]);
    refused(share(0.1), &["partial_rotary_factor", "even", "3"]);
    refused(share(1.5), &["partial_rotary_factor", "head_dim (32)", "48"]);
}

#[test]
fn experts_are_chosen_by_token_in_layers_by_number_or_by_type() {
    let by_token = |more: Json| read(more).said.experts.unwrap().by_token;
    assert_eq!(by_token(json!({"num_hash_layers": 1})), [true, false, false, false]);
    assert_eq!(by_token(json!({"num_hash_layers": 0})), [false; 4]);
    assert_eq!(by_token(json!({"num_hash_layers": 9})), [true; 4]);
    let types = json!({"num_hash_layers": 3, "mlp_layer_types": ["moe", "hash_moe", "moe", "moe"]});
    assert_eq!(by_token(types), [false, true, false, false]);
    let limits = |limit: Json| read(json!({"swiglu_limit": limit})).said.experts.unwrap().limits;
    assert_eq!((limits(json!(7)), limits(json!(0))), (vec![Some(7.0); 4], vec![None; 4]));
    assert_eq!(limits(json!(null)), [None; 4]);
}

#[test]
fn what_is_inconsistent_is_refused_by_name() {
    let (ratios, types) = ("compress_ratios", "layer_types");
    refused(json!({"compress_ratios": [0, 4, 128]}), &[ratios, "one entry per layer (4)", "3"]);
    refused(json!({"compress_ratios": [0, -4, 4, 0]}), &[ratios, "0 to 65536", "-4 (layer 1)"]);
    refused(json!({"compress_ratios": [0, 4, 4, 65537]}), &[ratios, "65537 (layer 3)"]);
    refused(json!({"compress_ratios": [0, 4, 4, 4.5]}), &[ratios, "4.5"]);
    refused(json!({"compress_ratios": "4"}), &[ratios, "an array"]);
    refused(json!({"compress_ratios": null}), &[ratios, "layer_types is absent"]);
    let typed = |list: Json| json!({"compress_ratios": null, "layer_types": list});
    refused(typed(json!(["sliding_attention"])), &[types, "per layer (4)", "found 1"]);
    let full = json!(["full_attention", "sliding_attention", "x", "y"]);
    refused(typed(full), &[types, "compressed_sparse_attention", "full_attention"]);
    let rates = json!({"compress_rates": {"compressed_sparse_attention": 0}});
    let sparse = typed(json!(vec!["compressed_sparse_attention"; 4]));
    refused(merged(sparse, &rates), &["compress_rates.compressed_sparse_attention", "1 to", "0"]);
    refused(json!({"mlp_layer_types": ["moe"]}), &["mlp_layer_types", "(4)", "1"]);
    refused(json!({"mlp_layer_types": ["moe", "dense", 1, 2]}), &["mlp_layer_types", "dense"]);
    refused(json!({"qk_rope_head_dim": 15}), &["qk_rope_head_dim", "even", "head_dim (32)", "15"]);
    refused(json!({"qk_rope_head_dim": 34}), &["qk_rope_head_dim", "head_dim (32)", "34"]);
    refused(json!({"o_groups": 3}), &["o_groups", "num_attention_heads (8)", "3"]);
    refused(json!({"o_groups": 0}), &["o_groups", "0"]);
    refused(json!({"num_key_value_heads": 2}), &["num_key_value_heads", "expected 1", "2"]);
    refused(json!({"index_topk": 0}), &["index_topk", "0"]);
    refused(json!({"index_head_dim": 14}), &["index_head_dim", "qk_rope_head_dim (16)", "14"]);
    refused(json!({"hc_mult": 0}), &["hc_mult", "1 to 16", "0"]);
    refused(json!({"hc_mult": 17}), &["hc_mult", "to 16", "17"]);
    refused(json!({"hc_sinkhorn_iters": 1e9}), &["hc_sinkhorn_iters"]);
    refused(json!({"hc_eps": 0}), &["hc_eps", "above 0"]);
    refused(json!({"sliding_window": 0}), &["sliding_window", "0"]);
    refused(json!({"swiglu_limit": -1}), &["swiglu_limit", "at least 0", "-1"]);
    refused(json!({"scoring_func": "softmax"}), &["scoring_func", "sqrtsoftplus", "softmax"]);
    refused(json!({"n_routed_experts": 0}), &["n_routed_experts", "0"]);
    refused(json!({"num_experts_per_tok": 9}), &["num_experts_per_tok", "n_routed_experts (8)"]);
    refused(json!({"attention_bias": true}), &["attention_bias"]);
}

#[test]
fn rotary_parameters_that_cannot_be_used_are_refused_by_name() {
    let pair = |main: Json, compress: Json| json!({"rope_parameters": {"main": main, "compress": compress}});
    let odd = json!({"rope_type": "yarn", "factor": 2, "attention_factor": 1.2});
    let field = "rope_parameters.compress.attention_factor";
    refused(pair(json!({}), odd), &[field, "expected 1, found 1.2"]);
    let dynamic = json!({"rope_type": "dynamic", "factor": 2});
    refused(pair(dynamic, json!({})), &["rope_parameters.main.rope_type", "dynamic"]);
    let one = json!({"rope_parameters": {"main": {}}});
    refused(one, &["rope_parameters.compress", "found no such field"]);
    let other = json!({"rope_parameters": {"full_attention": {}}});
    refused(other, &["rope_parameters.full_attention"]);
    let low = json!({"type": "yarn", "factor": 2});
    refused(json!({"rope_scaling": low, "compress_rope_theta": 1}), &["compress_rope_theta"]);
}

/// Keys of a small file.
fn keys(more: Fields) -> Vec<(&'static str, Value)> {
    let (u, f) = (Value::U32, Value::F32);
    let ratios = Value::Array(Array::I32(vec![0, 128, 4, 16]));
    let mut keys = vec![
        ("attention.key_length", u(32)),
        ("attention.value_length", u(32)),
        ("attention.q_lora_rank", u(24)),
        ("attention.sliding_window", u(9)),
        ("attention.compress_ratios", ratios),
        ("attention.compress_rope_freq_base", f(16e4)),
        ("attention.output_group_count", u(4)),
        ("attention.output_lora_rank", u(20)),
        ("attention.indexer.head_count", u(3)),
        ("attention.indexer.key_length", u(24)),
        ("attention.indexer.top_k", u(5)),
        ("rope.dimension_count", u(16)),
        ("expert_count", u(8)),
        ("expert_used_count", u(2)),
        ("expert_feed_forward_length", u(32)),
        ("expert_weights_norm", Value::Bool(true)),
        ("swiglu_clamp_exp", f(7.0)),
        ("hyper_connection.count", u(4)),
        ("hyper_connection.sinkhorn_iterations", u(20)),
        ("hyper_connection.epsilon", f(1e-6)),
    ];
    for (key, value) in more {
        match keys.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value.clone(),
            None => {
                let others = [
                    "swiglu_clamp_shexp",
                    "hash_layer_count",
                    "expert_gating_func",
                    "attention.head_count_kv",
                    "nextn_predict_layers",
                    "rope.scaling.type",
                    "rope.scaling.factor",
                ];
                let key = others.iter().find(|other| *other == key).expect("a known key");
                keys.push((key, value.clone()));
            }
        }
    }
    keys
}

fn floats(values: &[f32]) -> Value {
    Value::Array(Array::F32(values.to_vec()))
}

#[test]
fn metadata_says_what_config_json_does() {
    let read = |more: Fields| read_with(ARCH, &keys(more), &[]).unwrap();
    let config = read(&[]);
    let sizes = config.said.compressed.as_ref().unwrap();
    assert_eq!((&sizes.ratios[..], sizes.indexed[2]), (&[0, 128, 4, 16][..], true));
    assert_eq!((config.said.kv_heads, &config.said.windows[..]), (1, &[Some(9); 4][..]));
    assert_eq!((config.said.intermediate_size, sizes.rope_dim), (96, 16));
    let experts = config.said.experts.as_ref().unwrap();
    assert_eq!((experts.scores, experts.normalise), (RouterScores::SqrtSoftplus, true));
    assert_eq!((&experts.limits, &experts.by_token), (&vec![Some(7.0); 4], &vec![false; 4]));
    assert_eq!(experts.shared_limits, experts.limits);

    let more: Fields = &[
        ("attention.compress_ratios", Value::Array(Array::U32(vec![4, 4, 0, 8, 0]))),
        ("swiglu_clamp_exp", Value::Array(Array::F64(vec![1.0, 2.0, 0.0, 3.0]))),
        ("swiglu_clamp_shexp", floats(&[0.0, 5.0, 0.0, 0.0])),
        ("hash_layer_count", Value::U32(2)),
        ("expert_gating_func", Value::U32(4)),
        ("rope.scaling.type", Value::String("yarn".into())),
        ("rope.scaling.factor", Value::F32(16.0)),
    ];
    let config = read(more);
    let sizes = config.said.compressed.as_ref().unwrap();
    assert_eq!(sizes.ratios, [4, 4, 0, 8]);
    assert_eq!((&config.said.rope.scaling, config.said.rope.magnitude), (&RopeScaling::None, 1.0));
    assert_eq!((&sizes.rope.scaling, sizes.rope.magnitude), (&yarn(16.0, 512), 1.0));
    let experts = config.said.experts.unwrap();
    assert_eq!(experts.limits, [Some(1.0), Some(2.0), None, Some(3.0)]);
    assert_eq!(experts.shared_limits, [None, Some(5.0), None, None]);
    assert_eq!(experts.by_token, [true, true, false, false]);
}

#[test]
fn layers_for_further_tokens_are_counted_where_the_file_has_them() {
    let layers = |tensors: &[&str]| {
        let more: Fields = &[("nextn_predict_layers", Value::U32(1))];
        read_with(ARCH, &keys(more), tensors).unwrap().layers.len()
    };
    assert_eq!(layers(&[]), 3);
    assert_eq!(layers(&["blk.2.attn_norm.weight"]), 3);
    assert_eq!(layers(&["blk.3.attn_norm.weight", "blk.3.nextn.eh_proj.weight"]), 3);
    assert_eq!(layers(&["blk.3.attn_norm.weight", "blk.3.ffn_norm.weight"]), 4);
}

#[test]
fn broken_metadata_is_refused_by_key() {
    let check = |key: &'static str, value: Value, fragments: &[&str]| {
        let error = read_with(ARCH, &keys(&[(key, value)]), &[]).unwrap_err();
        for fragment in fragments.iter().chain(&[key]) {
            assert!(error.contains(fragment), "{error:?} does not say {fragment:?}");
        }
    };
    let ratios = "attention.compress_ratios";
    let ints = |values: &[i32]| Value::Array(Array::I32(values.to_vec()));
    check(ratios, ints(&[0, 4, 128]), &["per layer (4)", "found 3"]);
    check(ratios, ints(&[0, 4, -1, 0]), &["0 to 65536", "-1 (layer 2)"]);
    check(ratios, ints(&[0, 4, 0, 1 << 20]), &["0 to 65536", "1048576"]);
    check(ratios, Value::Array(Array::U32(vec![u32::MAX; 4])), &["integers"]);
    check(ratios, Value::U32(4), &["integers"]);
    check("swiglu_clamp_exp", floats(&[1.0; 3]), &["per layer (4)", "found 3"]);
    check("swiglu_clamp_shexp", floats(&[1.0; 5]), &["per layer (4)", "found 5"]);
    check("swiglu_clamp_exp", floats(&[1.0, -1.0, 1.0, 1.0]), &["at least 0", "-1"]);
    check("swiglu_clamp_exp", floats(&[1.0, f32::NAN, 1.0, 1.0]), &["finite", "NaN"]);
    check("swiglu_clamp_exp", ints(&[1; 4]), &["floats"]);
    check("swiglu_clamp_exp", Value::F32(-2.0), &["at least 0", "-2"]);
    check("swiglu_clamp_exp", Value::Bool(true), &["finite float"]);
    check("attention.output_group_count", Value::U32(3), &["attention.head_count (8)", "3"]);
    check("attention.head_count_kv", Value::U32(2), &["expected 1", "2"]);
    check("attention.indexer.top_k", Value::U32(0), &["0"]);
    check("attention.indexer.key_length", Value::U32(8), &["rope.dimension_count (16)", "8"]);
    check("attention.sliding_window", Value::U32(0), &["0"]);
    check("rope.dimension_count", Value::U32(15), &["even", "15"]);
    check("rope.dimension_count", Value::U32(34), &["attention.key_length (32)", "34"]);
    check("hyper_connection.count", Value::U32(0), &["1 to 16", "0"]);
    check("hyper_connection.count", Value::U32(1 << 30), &["1 to 16"]);
    check("hyper_connection.epsilon", Value::F32(0.0), &["above 0"]);
    check("expert_gating_func", Value::U32(5), &["1 to 4", "5"]);
    for (missing, _) in keys(&[]) {
        let optional = [
            "attention.key_length",
            "attention.value_length",
            "expert_count",
            "expert_feed_forward_length",
            "expert_weights_norm",
            "rope.dimension_count",
        ];
        if optional.contains(&missing) {
            continue;
        }
        let mut all = keys(&[]);
        all.retain(|(key, _)| *key != missing);
        let error = read_with(ARCH, &all, &[]).unwrap_err();
        assert!(error.contains(missing), "{error:?} does not say {missing:?}");
    }
}

#[test]
fn what_a_format_cannot_say_is_not_written() {
    let gguf = |config: &ModelConfig| config.to_gguf(&mut GgufWriter::new());
    let mut config = read(json!({}));
    let sparse = vec!["compressed_sparse_attention"; 4];
    let types = json!({"compress_ratios": null, "layer_types": sparse, "compress_rate_csa": 8});
    let typed = read(types);
    assert!(typed.to_hf_json().is_ok());
    assert!(gguf(&typed).unwrap_err().to_string().contains("compress_ratios"));
    config.said.compressed.as_mut().unwrap().indexed[3] = true;
    assert!(config.to_hf_json().unwrap_err().to_string().contains("compress_ratios"));
    let mut config = read(json!({}));
    config.said.experts.as_mut().unwrap().shared_limits[0] = None;
    assert!(config.to_hf_json().unwrap_err().to_string().contains("swiglu_limit"));
    let last = json!({"mlp_layer_types": ["moe", "moe", "moe", "hash_moe"]});
    assert!(gguf(&read(last)).unwrap_err().to_string().contains("hash_layer_count"));
    let scaled = json!({"rope_type": "linear", "factor": 2.0});
    let main = json!({"rope_parameters": {"main": scaled, "compress": {}}});
    assert!(gguf(&read(main)).unwrap_err().to_string().contains("rope.scaling"));
}

/// Configurations that are read again as they were written.
pub(super) fn samples() -> Vec<ModelConfig> {
    let scaling = json!({"type": "yarn", "factor": 16, "original_max_position_embeddings": 128});
    vec![
        read(json!({"rope_scaling": scaling, "num_hash_layers": 2, "swiglu_limit": 3.5})),
        read(json!({"compress_ratios": [0, 0, 128, 0], "swiglu_limit": 0, "num_hash_layers": 0})),
        read(json!({"hc_mult": 2, "hc_eps": 1e-5, "sliding_window": 12, "index_topk": 3})),
    ]
}
