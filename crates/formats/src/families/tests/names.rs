//! Laws of name tables: source names map to canonical names and back.

use super::super::{FAMILIES, name_table};
use crate::names::{NameTable, split_canonical};

fn names(architecture: &str) -> &'static NameTable {
    name_table(architecture).expect("a known family")
}

fn check(architecture: &str, source: &str, expected: Option<&str>) {
    let table = names(architecture);
    assert_eq!(table.canonical(source).as_deref(), expected, "{source}");
    if let Some(canonical) = expected {
        assert_eq!(table.source(canonical).as_deref(), Some(source));
    }
}

#[test]
fn names_map_to_their_canonical_form_and_back() {
    check("llama", "model.embed_tokens.weight", Some("token_embd.weight"));
    check("llama", "lm_head.weight", Some("output.weight"));
    check("llama", "model.layers.0.self_attn.q_proj.weight", Some("blk.0.attn_q.weight"));
    check("llama", "model.layers.12.self_attn.k_proj.bias", Some("blk.12.attn_k.bias"));
    check("llama", "model.layers.7.post_attention_layernorm.weight", Some("blk.7.ffn_norm.weight"));
    check("llama", "model.layers.01.self_attn.q_proj.weight", None);
    check("llama", "model.layers..self_attn.q_proj.weight", None);
    check("llama", "model.layers.0.self_attn.rotary_emb.inv_freq", None);
    check("llama", "model.layers.0.mlp.experts.0.gate_proj.weight", None);
    check("llama", "blk.0.attn_q.weight", None);
}

#[test]
fn the_number_of_an_expert_is_carried_over_both_ways() {
    let expert = "model.layers.3.mlp.experts.17.gate_proj.weight";
    check("qwen2_moe", expert, Some("blk.3.ffn_gate.17.weight"));
    check("deepseek_v3", expert, Some("blk.3.ffn_gate.17.weight"));
    check("qwen2_moe", "model.layers.3.mlp.experts.017.gate_proj.weight", None);
    check("qwen2_moe", "model.layers.3.mlp.experts..gate_proj.weight", None);
    check("qwen2_moe", "model.layers.3.mlp.experts.x.gate_proj.weight", None);
    let mixtral = "model.layers.0.block_sparse_moe.experts.5.w2.weight";
    check("mixtral", mixtral, Some("blk.0.ffn_down.5.weight"));
    check("mixtral", expert, None);
}

#[test]
fn parts_of_a_quantised_matrix_are_named_as_it_is() {
    check("llama", "model.layers.0.self_attn.q_proj.qweight", Some("blk.0.attn_q.qweight"));
    check("llama", "lm_head.weight_packed", Some("output.weight_packed"));
    let scale = "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv";
    check("deepseek_v3", scale, Some("blk.1.ffn_up.2.weight_scale_inv"));
    let blocks = "model.layers.0.mlp.experts.gate_up_proj_blocks";
    check("gpt_oss", blocks, Some("blk.0.ffn_gate_up_exps.weight_blocks"));
    check("llama", "model.layers.0.self_attn.q_proj.other", None);
    check("llama", "model.layers.0.self_attn.w_proj.qweight", None);
}

#[test]
fn every_name_maps_back_to_its_source_and_to_no_other() {
    for table in FAMILIES.iter().map(|family| &family.names) {
        let globals = table.globals.iter().map(|(source, _)| (*source).to_owned());
        let prefix = table.layer_prefix;
        let layer = table.layer_names().map(|(source, _)| format!("{prefix}3.{source}"));
        let mut seen = std::collections::HashSet::new();
        // A tensor may have another name in some configurations; the first is found.
        let mut sources = std::collections::HashSet::new();
        let all = globals.chain(layer.map(|name| name.replace("{}", "9")));
        for source in all.filter(|source| sources.insert(source.clone())) {
            let canonical = table.canonical(&source).unwrap();
            assert_eq!(table.source(&canonical), Some(source));
            assert!(seen.insert(canonical.clone()), "{canonical} twice");
        }
    }
}

#[test]
fn layers_are_found_in_names_of_both_kinds() {
    let layer = names("deepseek_v3").in_layer("model.layers.61.eh_proj.weight");
    assert_eq!(layer, Some((61, "eh_proj.weight".to_owned())));
    assert_eq!(names("deepseek_v3").in_layer("mtp.0.weight"), None);
    assert_eq!(split_canonical("blk.4.ffn_up.2.weight"), Some(("4", "ffn_up.2.weight")));
    assert_eq!(split_canonical("token_embd.weight"), None);
}
