//! Settings of quantised checkpoints: where they are found, and what happens where they are missing
//! or contradict each other or the tensors.

use std::path::Path;

use crate::common::altered::Altered;
use crate::common::read_all;
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, OpenOptions};
use kernels::quant::{BF16, QuantType, by_name};

/// Settings of AWQ as the first releases of AutoAWQ name them.
const AWQ: &str = r#"{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}"#;
/// The same as transformers names them.
const AWQ_CONFIG: &str = r#"{"quant_method": "awq", "zero_point": true, "group_size": 32,
    "bits": 4, "version": "gemm"}"#;

#[test]
fn integer_codes_without_settings_are_errors() {
    let missing = "expected settings of its quantisation (quantization_config in config.json, \
                   quantize_config.json, quant_config.json, quantization in hf_quant_config.json), \
                   found none";
    let check = |folder: &str, tensor: &str| {
        Altered::new(folder).without_settings().fails(&format!("{tensor}: {missing}"));
    };
    check("awq_by_file", "up_proj.qweight");
    check("gptq_by_file", "up_proj.qweight");
    check("gptq_4_ordered", "up_proj.qweight");
    check("awq", "up_proj.qweight");
    check("compressed_4", "up_proj.weight_packed");
    check("compressed_int8", "up_proj.weight");
    check("compressed_mxfp4", "up_proj.weight_packed");
    check("nvfp4_compressed", "up_proj.weight_packed");
    check("nvfp4_modelopt", "up_proj.weight");
    check("mxfp4_blocks", "gate_up_proj_blocks");
    check("mxfp4_pairs", "up_proj.weight");
    let config = Altered::new("gptq_4").settings(r#"{"bits": 4, "group_size": 32}"#);
    config.fails("up_proj.qweight: expected quant_method in quantization_config in");
}

#[test]
fn settings_of_two_files_agree_or_are_errors_that_name_both() {
    let both = |config: &str, file: &str| {
        Altered::new("awq_by_file").settings(config).file("quant_config.json", file)
    };
    both(AWQ_CONFIG, AWQ).join().unwrap();
    both(r#"{"quant_method": "awq"}"#, AWQ).join().unwrap();
    let differ = |config: &str, file: &str, field: &str, expected: &str| {
        let text = both(config, file).join().expect_err(expected).to_string();
        let all = ["config.json: quantization_config.", field, expected, "/quant_config.json"];
        assert!(all.iter().all(|part| text.contains(part)), "{text}");
    };
    let from = |from: &str, to: &str| AWQ_CONFIG.replace(from, to);
    differ(&from("32", "64"), AWQ, "group_size", "found 64, but 32 in ");
    differ(&from("4,", "8,"), AWQ, "bits", "found 8, but 4 in ");
    differ(&from("true", "false"), AWQ, "sym", "found true, but false in ");
    differ(&from("gemm", "gemv"), AWQ, "format", "\"gemv\", but the string \"gemm\" in ");
    let named = AWQ.replace('{', r#"{"quant_method": "gptq", "#);
    differ(AWQ_CONFIG, &named.replace("version", "v"), "quant_method", "\"awq\", but");
    // What config.json leaves out is taken from the other file, and none is chosen of two.
    let file = r#"{"bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"}"#;
    let gptq = |format: &str| {
        let altered = Altered::new("gptq_4_ordered");
        let config = format!(r#"{{"quant_method": "gptq", "bits": 4{format}}}"#);
        altered.settings(&config).file("quantize_config.json", file)
    };
    gptq("").join().unwrap();
    gptq(r#", "checkpoint_format": "gptq""#).fails("found the string \"gptq\", but");
    gptq(r#", "format": "gptq", "checkpoint_format": "gptq_v2""#)
        .fails("quantization_config.checkpoint_format: found the string \"gptq_v2\", but");
    let file = r#"{"bits": 4, "group_size": 32}"#;
    let two = Altered::new("awq_by_file").file("quantize_config.json", file);
    two.fails("quantize_config.json: expected quant_method, because this file is one of gptq, and");
}

#[test]
fn settings_that_the_tensors_contradict_are_errors() {
    let settings = |folder: &str, settings: &str, expected: &str| {
        Altered::new(folder).settings(settings).fails(expected);
    };
    let gptq = |rest: &str| format!(r#"{{"quant_method": "gptq", "bits": 4, {rest}}}"#);
    let groups = "expected groups of 64 inputs, which has scales of shape [16, 2], found [16, 4]";
    settings("gptq_4", &gptq(r#""group_size": 64"#), groups);
    settings("gptq_4", &gptq(r#""group_size": -1"#), "expected a scale for each output");
    let symmetric = "expected symmetric weights, found zero points off the middle (quantization_";
    settings("gptq_4", &gptq(r#""sym": true"#), symmetric);
    let order = "expected inputs in the order of their groups, found another order";
    let v2 = r#""checkpoint_format": "gptq_v2", "desc_act": false"#;
    settings("gptq_4_ordered", &gptq(v2), order);
    let index = Altered::new("gptq_4_ordered").without(".g_idx");
    index.fails("expected a tensor with the group of each input, found none (quantization_config");
    settings("gptq_4", &gptq(r#""pack_dtype": "int16""#), "pack_dtype: expected int32");
    let bits = r#"{"quant_method": "gptq", "bits": 8}"#;
    settings("gptq_4", bits, "expected integers of 8 bits, found integers of 4 bits");
    settings("gptq_4", AWQ_CONFIG, "expected codes packed along outputs, found them along inputs");
    let packed = "expected codes packed along inputs, found them along outputs";
    settings("awq", &gptq(r#""group_size": 32"#), packed);
    settings("awq", &AWQ_CONFIG.replace("32", "128"), "expected groups of 128 inputs");
    settings("awq", &AWQ_CONFIG.replace("true", "false"), symmetric);
    let block = |rows: usize, cols: usize| {
        format!(r#"{{"quant_method": "fp8", "weight_block_size": [{rows}, {cols}]}}"#)
    };
    settings("fp8_blocks", &block(16, 32), "expected tiles of 16 by 32");
    settings("fp8_rows", &block(1, 32), "expected tiles of 1 by 32");
    settings("fp8_tensor", &block(2, 24), "expected tiles of 2 by 24");
    settings("fp8_blocks", r#"{"quant_method": "fbgemm_fp8"}"#, "a scale for each output");
    let format = r#"{"quant_method": "fp8", "fmt": "e5m2"}"#;
    settings("fp8_blocks", format, "quantization_config.fmt: expected e4m3, found e5m2");
}

#[test]
fn groups_of_compressed_tensors_that_the_tensors_contradict_are_errors() {
    let config = |format: &str, groups: &str| {
        let method = r#""quant_method": "compressed-tensors""#;
        format!(r#"{{{method}, "format": "{format}", "config_groups": {{{groups}}}}}"#)
    };
    let group = |name: &str, weights: &str| format!(r#""{name}": {{"weights": {{{weights}}}}}"#);
    let ints = r#""num_bits": 4, "type": "int", "strategy": "group", "group_size": 32"#;
    let check = |folder: &str, format: &str, weights: &str, expected: &str| {
        let settings = config(format, &group("group_0", weights));
        Altered::new(folder).settings(&settings).fails(expected);
    };
    let fits = config("pack-quantized", &group("group_0", ints));
    Altered::new("compressed_4").settings(&fits).join().unwrap();
    check("compressed_4", "int-quantized", ints, "expected int-quantized, found pack-quantized");
    check("compressed_int8", "pack-quantized", ints, "expected pack-quantized, found int-");
    check("compressed_4", "nvfp4-pack-quantized", ints, "expected nvfp4-pack-quantized, found");
    check("nvfp4_compressed", "pack-quantized", ints, "found nvfp4-pack-quantized");
    check("fp8_rows", "int-quantized", ints, "expected int-quantized, found float-quantized");
    let eight = ints.replace('4', "8");
    check(
        "compressed_4",
        "pack-quantized",
        &eight,
        "expected integers of 8 bits, found integers of",
    );
    let floats = ints.replace("int", "float");
    check("compressed_4", "pack-quantized", &floats, "expected floats of 4 bits, found integers");
    let size = ints.replace("32", "48");
    check("compressed_4", "pack-quantized", &size, "expected groups of 48 inputs");
    let channel = r#""num_bits": 4, "type": "int", "strategy": "channel""#;
    check("compressed_4", "pack-quantized", channel, "expected a scale for each output");
    let symmetric = |is: bool| format!(r#"{ints}, "symmetric": {is}"#);
    check("compressed_4_zeros", "pack-quantized", &symmetric(true), "zero points off the middle");
    check("compressed_4", "pack-quantized", &symmetric(false), "expected zero points, found none");
    let ordered = eight.replace("38", "32");
    check("compressed_8_ordered", "pack-quantized", &ordered, "found another order");
    let tensor = r#""num_bits": 8, "type": "float", "strategy": "tensor""#;
    check("fp8_rows", "float-quantized", tensor, "expected one scale, which has scales of shape");
    let block = r#""num_bits": 8, "type": "float", "strategy": "block", "block_structure": [2, 8]"#;
    check("fp8_tensor", "float-quantized", block, "expected tiles of 2 by 8");
    // A matrix agrees with any one group.
    let groups = [group("group_0", &size), group("group_1", &symmetric(true))].join(", ");
    let mixed = config("mixed-precision", &groups);
    Altered::new("compressed_4").settings(&mixed).join().unwrap();
    let more = "nor what 1 more groups of settings say (quantization_config in";
    Altered::new("compressed_4_zeros").settings(&mixed).fails(more);
}

#[test]
fn formats_that_are_not_read_are_refused_by_their_own_names() {
    for format in ["marlin-24", "sparse-bitmask", "sparse-24-bitmask", "mxfp6-pack-quantized"] {
        let config = format!(r#"{{"quant_method": "compressed-tensors", "format": "{format}"}}"#);
        let altered = Altered::new("compressed_4").settings(&config);
        let text = altered.join().expect_err(format).to_string();
        let read = "quantization_config.format: expected one of pack-quantized, int-quantized, ";
        let found = format!("mixed-precision, dense, found {format}");
        assert!(text.contains(read) && text.ends_with(&found), "{text}");
    }
    for algorithm in ["NVFP4_AWQ", "W4A8_AWQ", "W8A8_SQ_PER_CHANNEL", "NVFP4_SVD"] {
        let settings = format!(r#"{{"quantization": {{"quant_algo": "{algorithm}"}}}}"#);
        let altered = Altered::new("nvfp4_modelopt").file("hf_quant_config.json", &settings);
        altered.fails(&format!("FP8_PB_WO, MXFP8, found {algorithm}"));
    }
    let bits = r#"{"quant_method": "bitsandbytes", "load_in_4bit": true}"#;
    let altered = Altered::new("nvfp4_modelopt").settings(bits);
    altered.file("hf_quant_config.json", "{}").fails("quantised by bitsandbytes (quant_method,");
}

#[test]
fn algorithms_of_modelopt_are_those_of_the_tensors() {
    let fails = |folder: &str, settings: &str, expected: &str| {
        Altered::new(folder).settings(settings).fails(expected);
    };
    let algorithm =
        |name: &str| format!(r#"{{"quant_method": "modelopt", "quant_algo": "{name}"}}"#);
    fails("modelopt_fp8", &algorithm("NVFP4"), "expected floats of 4 bits, found floats of 8 bits");
    fails("modelopt_fp8", &algorithm("FP8_PER_CHANNEL_PER_TOKEN"), "a scale for each output");
    fails("fp8_rows", &algorithm("FP8"), "expected one scale");
    Altered::new("fp8_rows").settings(&algorithm("FP8_PER_CHANNEL_PER_TOKEN")).join().unwrap();
    // The other file of this checkpoint says NVFP4.
    fails("nvfp4_modelopt", &algorithm("FP8"), "\"fp8\", but the string \"nvfp4\" in ");
    let size = r#"{"quantization": {"quant_algo": "NVFP4", "group_size": 32}}"#;
    let altered = Altered::new("nvfp4_modelopt").file("hf_quant_config.json", size);
    altered.fails("expected groups of 32 inputs, which has scales of shape [6, 3]");
    let layers = |other: &str| {
        let layers = format!(r#""a": {{"quant_algo": "NVFP4"}}, "b": {{"quant_algo": "{other}"}}"#);
        let all = format!(r#""quant_algo": "MIXED_PRECISION", "quantized_layers": {{{layers}}}"#);
        format!(r#"{{"quantization": {{{all}}}}}"#)
    };
    let mixed =
        |other: &str| Altered::new("nvfp4_modelopt").file("hf_quant_config.json", &layers(other));
    mixed("FP8").join().unwrap();
    mixed("W8A16").fails("hf_quant_config.json: b.quant_algo: expected one of NVFP4");
}

/// A model of one layer with two experts, with tensor `changed` of type `ty`.
fn tiny(folder: &Path, changed: &str, ty: &'static QuantType, settings: &str) -> Checkpoint {
    let config = format!(
        r#"{{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 64,
        "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 32, "head_dim": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_experts": 2, "num_experts_per_tok": 1, "norm_topk_prob": true, "hidden_act": "silu",
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": false{settings}}}"#
    );
    std::fs::write(folder.join("config.json"), config).unwrap();
    let layer =
        |name: &str, shape: &[usize]| (format!("model.layers.0.{name}.weight"), shape.to_vec());
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![64, 32]),
        layer("input_layernorm", &[32]),
        layer("self_attn.q_proj", &[32, 32]),
        layer("self_attn.k_proj", &[16, 32]),
        layer("self_attn.v_proj", &[16, 32]),
        layer("self_attn.o_proj", &[32, 32]),
        layer("self_attn.q_norm", &[16]),
        layer("self_attn.k_norm", &[16]),
        layer("post_attention_layernorm", &[32]),
        layer("mlp.gate", &[2, 32]),
        ("model.norm.weight".to_owned(), vec![32]),
        ("lm_head.weight".to_owned(), vec![64, 32]),
    ];
    for expert in 0..2 {
        for part in ["gate_proj", "up_proj", "down_proj"] {
            tensors.push(layer(&format!("mlp.experts.{expert}.{part}"), &[32, 32]));
        }
    }
    let mut writer = SafetensorsWriter::new();
    let typed: Vec<_> = tensors
        .into_iter()
        .map(|(name, shape)| (if name.contains(changed) { ty } else { &BF16 }, name, shape))
        .collect();
    typed.iter().for_each(|(ty, name, shape)| writer.plan(name, ty, shape).unwrap());
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    for (ty, _, shape) in &typed {
        stream.write(&vec![0; ty.bytes_for(shape.iter().product()).unwrap()]).unwrap();
    }
    stream.finish().unwrap();
    Checkpoint::open(folder, &OpenOptions::default()).unwrap()
}

#[test]
fn integers_in_place_of_weights_are_errors_wherever_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    read_all(&tiny(folder.path(), "no such tensor", &BF16, "")).unwrap();
    let parts = ["embed_tokens", "q_proj", "input_layernorm", "mlp.gate.", "experts", "lm_head"];
    let settings = r#", "quantization_config": {"quant_method": "gptq", "bits": 4}"#;
    for part in parts {
        for ty in ["i32", "i8", "i64"] {
            let open = |settings| {
                let checkpoint = tiny(folder.path(), part, by_name(ty).unwrap(), settings);
                read_all(&checkpoint).expect_err(part).to_string()
            };
            let found = format!("expected floating-point weights, found values of type {ty}, ");
            let (without, with) = (open(""), open(settings));
            let missing = format!("{found}no settings of their quantisation (quantization_config");
            assert!(without.contains(part) && without.contains(&missing), "{without}");
            let known = format!("{found}not known in weights quantised by gptq (quantization_");
            assert!(with.contains(part) && with.contains(&known), "{with}");
        }
    }
}
