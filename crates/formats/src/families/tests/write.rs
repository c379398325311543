//! Written configurations read the same, and tensors are named as the families name them.

use crate::checkpoint::canonical_name;
use std::path::Path;

use kernels::quant;
use serde_json::{Value as Json, json};

use super::super::{all, name_table};
use super::{llama3, with};
use crate::config::ModelConfig;
use crate::gguf::{GgufFile, GgufWriter, Value};
use crate::layers::{
    ClassifierConfig, HeadActivation, MambaNorm, PositionTable, RopeLayout, TensorForm,
};
use crate::pooling::Pooling;

fn samples() -> Vec<ModelConfig> {
    let mistral = json!({"sliding_window": 9, "num_key_value_heads": 2, "bos_token_id": 1});
    let linear = json!({"rope_scaling": {"type": "linear", "factor": 2.0}});
    let yarn = json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 16}});
    let mut samples = vec![
        with("LlamaForCausalLM", llama3()).unwrap(),
        with("LlamaForCausalLM", linear).unwrap(),
        with("MistralForCausalLM", mistral).unwrap(),
        with("Qwen2ForCausalLM", json!({"tie_word_embeddings": true})).unwrap(),
        with("Qwen3ForCausalLM", json!({"pad_token_id": 3})).unwrap(),
        with("Qwen3ForCausalLM", yarn).unwrap(),
    ];
    samples.extend(samples_with_experts());
    samples.extend(super::compressed::samples());
    samples.extend(
        super::super::names()
            .chain(super::super::encoders())
            .map(|name| named(ModelConfig::tiny(name, 3).unwrap())),
    );
    samples
}

fn samples_with_experts() -> Vec<ModelConfig> {
    let read = |class: &str, fields: Json| {
        let mut all = json!({"num_key_value_heads": 2, "num_experts": 12, "n_routed_experts": 12,
            "num_local_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 32});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        with(class, all).unwrap()
    };
    let yarn = |mscale: f64| {
        json!({"type": "yarn", "factor": 40, "mscale": mscale, "mscale_all_dim": mscale,
            "original_max_position_embeddings": 64})
    };
    let v2 = json!({"q_lora_rank": null, "rope_scaling": yarn(0.707), "n_group": 4,
        "topk_group": 2, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0});
    let v3 = json!({"q_lora_rank": 48, "kv_lora_rank": 32, "rope_scaling": yarn(1.0),
        "n_group": 4, "topk_group": 2, "first_k_dense_replace": 2, "v_head_dim": 24});
    let uneven = json!({"first_k_dense_replace": 1, "n_group": null, "rope_scaling":
        {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5}});
    let qwen2 = json!({"shared_expert_intermediate_size": 48, "decoder_sparse_step": 2});
    vec![
        read("Qwen2MoeForCausalLM", qwen2),
        read("Qwen3MoeForCausalLM", json!({"mlp_only_layers": [1], "norm_topk_prob": true})),
        read("MixtralForCausalLM", json!({})),
        read("DeepseekV2ForCausalLM", v2),
        read("DeepseekV3ForCausalLM", v3),
        read("DeepseekV3ForCausalLM", uneven),
        read("Glm4MoeForCausalLM", json!({"n_shared_experts": 2, "head_dim": 16})),
        read("GptOssForCausalLM", json!({"sliding_window": 7})),
        read("GptOssForCausalLM", json!({"rope_parameters": {"rope_theta": 1e4}})),
    ]
}

#[test]
fn a_written_config_json_reads_the_same() {
    for config in samples() {
        let text = config.to_hf_json().unwrap().to_string();
        let read = ModelConfig::from_hf_json(&text, Path::new("models/m/config.json"));
        assert_eq!(read.unwrap(), config, "{text}");
    }
}

/// Writes the metadata of `config`, and the tensors from which readers complete it.
fn write_gguf(config: &ModelConfig, path: &Path) {
    let mut writer = GgufWriter::new();
    config.to_gguf(&mut writer).unwrap();
    let one = |name: String| (name, vec![0.0]);
    let layers = config.said.experts.iter().flat_map(|experts| experts.layers.iter().enumerate());
    let routers = layers.filter(|(_, sparse)| **sparse);
    let mut tensors: Vec<(String, Vec<f32>)> =
        routers.map(|(layer, _)| one(format!("blk.{layer}.ffn_gate_inp.weight"))).collect();
    if !config.said.tied_embeddings {
        tensors.push(one("output.weight".to_owned()));
    }
    if config.said.declared_head_norms().is_some() {
        tensors.push(one("blk.0.attn_q_norm.weight".to_owned()));
    }
    let index = config.said.index.as_ref();
    let indexed = |layer: &usize| index.is_some_and(|index| index.layers[*layer]);
    let indexed = (0..config.layers.len()).filter(indexed);
    tensors.extend(indexed.map(|layer| one(format!("blk.{layer}.indexer.attn_k.weight"))));
    let blocks = config.said.block_index.iter().flat_map(|index| &index.layers);
    let blocks = blocks.flatten().enumerate().filter(|(_, has)| **has);
    tensors.extend(blocks.map(|(layer, _)| one(format!("blk.{layer}.indexer.q_proj.weight"))));
    if config.said.mamba.as_ref().is_some_and(|mamba| mamba.spec.norm != MambaNorm::None) {
        tensors.push(one("blk.0.ssm_norm.weight".to_owned()));
    }
    if config.said.encoder.as_ref().is_some_and(|encoder| encoder.token_types > 0) {
        tensors.push(one("token_types.weight".to_owned()));
    }
    if let Some(head) = config.said.classifier {
        let parts = [("cls.weight", head.dense.is_some()), ("cls.norm.weight", head.norm)];
        let parts = parts.into_iter().chain([("cls.output.weight", true)]).filter(|it| it.1);
        tensors.extend(parts.map(|(name, _)| one(name.to_owned())));
    }
    if let Some(convs) = config.said.convs.as_ref().filter(|convs| convs.spec.biased) {
        let first = convs.layers.iter().position(|has| *has).unwrap();
        tensors.push(one(format!("blk.{first}.shortconv.conv.bias")));
    }
    let factors = config.factor_tensors().into_iter();
    tensors.extend(factors.map(|(name, values)| (name.to_owned(), values)));
    for (name, values) in &tensors {
        writer.plan(name, &quant::F32, &[values.len()]).unwrap();
    }
    let mut stream = writer.create(path).unwrap();
    for value in tensors.iter().flat_map(|(_, values)| values) {
        stream.write(&value.to_le_bytes()).unwrap();
    }
    stream.finish().unwrap();
}

/// The model with the display name that readers of tests give it.
fn named(mut config: ModelConfig) -> ModelConfig {
    "m".clone_into(&mut config.name);
    config
}

/// Encoders with a head for one label.
fn rerankers() -> impl Iterator<Item = ModelConfig> {
    let with_heads = super::super::encoders().filter(|name| *name != "nomic_bert");
    with_heads.map(|name| {
        let config = ModelConfig::tiny(name, 3).unwrap();
        let modern = config.said.positions.is_none();
        let (pooling, dense) = match modern {
            true => (Pooling::Mean, HeadActivation::Gelu),
            false => (Pooling::Cls, HeadActivation::Tanh),
        };
        let head = ClassifierConfig { labels: 1, pooling, dense: Some(dense), norm: modern };
        let scored = config.with(|said| said.classifier = Some(head));
        named(scored)
    })
}

#[test]
fn gguf_files_may_have_another_name_of_their_family() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["m.gguf", "other.gguf"].map(|name| folder.path().join(name));
    let renamed = all().filter(|family| !family.gguf.others.is_empty());
    for family in renamed.collect::<Vec<_>>() {
        write_gguf(&ModelConfig::tiny(family.name, 4).unwrap(), &path);
        let file = GgufFile::open(&path).unwrap();
        let read = ModelConfig::from_gguf(&file).unwrap();
        for name in family.gguf.others {
            let mut writer = GgufWriter::new();
            for (key, value) in file.metadata().iter() {
                let key = key.replace(&format!("{}.", family.gguf.name), &format!("{name}."));
                writer.set(&key, value.clone());
            }
            writer.set("general.architecture", Value::String((*name).into()));
            let tensors = file.tensors();
            for tensor in tensors {
                writer.plan(&tensor.source_name, &kernels::quant::F32, &tensor.shape).unwrap();
            }
            let mut stream = writer.create(&other).unwrap();
            tensors.iter().for_each(|it| stream.write(&vec![0; it.bytes().len()]).unwrap());
            stream.finish().unwrap();
            let found = ModelConfig::from_gguf(&GgufFile::open(&other).unwrap()).unwrap();
            assert_eq!(
                (found.said, found.architecture),
                (read.said.clone(), read.architecture.clone())
            );
        }
    }
}

#[test]
fn written_gguf_metadata_reads_the_same_but_for_what_the_format_cannot_say() {
    let folder = tempfile::tempdir().unwrap();
    for config in samples().into_iter().chain(rerankers()) {
        let path = folder.path().join("m.gguf");
        write_gguf(&config, &path);
        let read = ModelConfig::from_gguf(&GgufFile::open(&path).unwrap()).unwrap();
        let mut read = read.with(|read| {
            let said = &config.said;
            if let Some(factors) = said.rope.scaling.factors(said.rope.theta, said.rope.dim) {
                assert_eq!(read.rope.scaling.factors(0.0, 0), Some(factors));
                read.rope.scaling = said.rope.scaling.clone();
            }
            (read.rope.layout, read.activation) = (said.rope.layout, said.activation);
            assert_eq!(read.positions, said.positions.map(PositionTable::from_first));
            read.positions = said.positions;
            if let (Some(read), Some(delta)) = (&mut read.delta, &said.delta) {
                read.spec.tiled = delta.spec.tiled;
            }
            // Rows that fill up the table are found by its tensor only.
            if let (Some(read), Some(said)) = (&mut read.ngrams, &said.ngrams) {
                read.rows = said.rows;
            }
        });
        read.special = config.special.clone();
        // Families with the name of another in GGUF files.
        for (own, other) in
            [("mistral", "llama"), ("glm4_moe_lite", "deepseek_v3"), ("xlm_roberta", "bert")]
        {
            if config.architecture == own {
                assert_eq!(std::mem::replace(&mut read.architecture, own.into()), other);
            }
        }
        assert_eq!(read, config);
    }
}

#[test]
fn experts_in_every_second_layer_cannot_be_written_where_only_the_first_is_named() {
    let fields = json!({"moe_layer_freq": 2, "first_k_dense_replace": 1});
    let config = with("DeepseekV3ForCausalLM", fields).unwrap();
    let error = config.to_hf_json().unwrap_err().to_string();
    assert!(error.contains("first_k_dense_replace"), "{error}");
    assert!(config.to_gguf(&mut GgufWriter::new()).is_err());
}

#[test]
fn tensors_of_checkpoints_have_names_there_and_as_many_values_in_both_forms() {
    for config in samples() {
        let names = name_table(&config.architecture).unwrap();
        let (ours, theirs) = (config.tensors(TensorForm::Gguf), config.tensors(TensorForm::Hf));
        for (name, _) in &theirs {
            let source = names.source(name).unwrap_or_else(|| panic!("{name} has no source"));
            assert_eq!(canonical_name(config.family(), &config, &source), *name);
        }
        let values = |tensors: &[(String, Vec<usize>)]| -> usize {
            tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
        };
        assert_eq!(values(&ours), values(&theirs), "{}", config.architecture);
    }
}

#[test]
fn files_are_written_with_the_names_that_llama_cpp_reads() {
    let tiny = |name, layers| ModelConfig::tiny(name, layers).unwrap();
    let keys = |config: &ModelConfig| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        write_gguf(config, &path);
        let file = GgufFile::open(&path).unwrap();
        file.metadata().iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
    };
    for (layers, name) in [(1, "nemotron_h"), (3, "nemotron_h_moe")] {
        let nemotron = keys(&tiny("nemotron_h", layers));
        for key in ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"] {
            assert!(nemotron.contains(&format!("{name}.{key}")), "{name}.{key}");
        }
    }
    let scaling = keys(&tiny("ministral3", 2));
    assert!(scaling.contains(&"mistral3.rope.scaling.yarn_log_multiplier".to_owned()));
    assert!(!scaling.contains(&"mistral3.rope.scaling.yarn_attn_factor".to_owned()));
    let windows = keys(&tiny("exaone4", 4));
    assert!(windows.contains(&"exaone4.attention.sliding_window_pattern".to_owned()));
    let kimi = tiny("kimi_linear", 2).tensors(TensorForm::Gguf);
    let shape = |name: &str| kimi.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_eq!(shape("blk.0.ssm_conv1d_q.weight"), [88, 1, 4]);
    assert_eq!(shape("blk.0.ssm_a"), [4, 1]);
    let falcon = tiny("falcon_h1", 2);
    assert_eq!(falcon.gguf_tensor_name("blk.1.ffn_norm.weight"), "blk.1.ffn_norm");
}

#[test]
fn factors_are_in_the_weights_of_files_of_falcon_h1_unless_tables_are_shared() {
    let config = ModelConfig::tiny("falcon_h1", 2).unwrap();
    let factors = |config: &ModelConfig, name: &str| config.row_factors(name);
    let folded = config.folded();
    assert_eq!(
        (folded.said.embedding_scale, folded.said.logit_scale, folded.said.factors.len()),
        (1.0, 1.0, 0)
    );
    let whole = |name: &str| vec![(usize::MAX, config.said.factor_of(name))];
    assert_eq!(factors(&config, "token_embd.weight"), [(usize::MAX, 4.0)]);
    assert_eq!(factors(&config, "output.weight"), [(usize::MAX, 0.25)]);
    assert_eq!(factors(&config, "blk.1.attn_k.weight"), whole("attn_k"));
    assert_eq!(factors(&config, "blk.1.ffn_up.weight"), []);
    let ends: Vec<_> =
        factors(&config, "blk.0.ssm_in.weight").iter().map(|(end, _)| *end).collect();
    assert_eq!(ends, [108, 216, 236, 256, 262]);
    assert_eq!(factors(&config, "blk.0.ssm_in.weight")[3].1, config.said.factor_of("ssm_in.c"));
    let tied = config.with(|said| said.tied_embeddings = true);
    assert_eq!(tied.folded(), tied);
    assert_eq!(factors(&tied, "token_embd.weight"), []);
    let granite = ModelConfig::tiny("granite", 2).unwrap();
    assert_eq!(granite.folded().said.embedding_scale, 4.0);
}

#[test]
fn gguf_files_call_the_second_norm_otherwise_in_some_families() {
    let check = |class: &str, expected: &str| {
        let fields = json!({"num_key_value_heads": 8, "first_k_dense_replace": 1});
        let config = with(class, fields).unwrap();
        assert_eq!(config.gguf_tensor_name("blk.3.ffn_norm.weight"), expected, "{class}");
        assert_eq!(config.gguf_tensor_name("output.weight"), "output.weight");
    };
    check("GptOssForCausalLM", "blk.3.post_attention_norm.weight");
    check("Glm4MoeForCausalLM", "blk.3.post_attention_norm.weight");
    check("DeepseekV3ForCausalLM", "blk.3.ffn_norm.weight");
    let config = with("DeepseekV3ForCausalLM", json!({"first_k_dense_replace": 1})).unwrap();
    assert_eq!(config.gguf_rope(), RopeLayout::Interleaved);
}
