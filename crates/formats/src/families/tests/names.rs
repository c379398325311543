//! Laws of name tables: what maps where, and that it maps back.

use super::super::FAMILIES;
use super::super::deepseek_v2::NAMES as DEEPSEEK;
use super::super::gpt_oss::NAMES as GPT_OSS;
use super::super::mixtral::NAMES as MIXTRAL;
use super::super::qwen2_moe::NAMES as QWEN_MOE;
use crate::names::{DENSE, NameTable, split_canonical};

fn check(table: &NameTable, source: &str, expected: Option<&str>) {
    assert_eq!(table.canonical(source).as_deref(), expected, "{source}");
    if let Some(canonical) = expected {
        assert_eq!(table.source(canonical).as_deref(), Some(source));
    }
}

#[test]
fn names_map_to_their_canonical_form_and_back() {
    check(&DENSE, "model.embed_tokens.weight", Some("token_embd.weight"));
    check(&DENSE, "lm_head.weight", Some("output.weight"));
    check(&DENSE, "model.layers.0.self_attn.q_proj.weight", Some("blk.0.attn_q.weight"));
    check(&DENSE, "model.layers.12.self_attn.k_proj.bias", Some("blk.12.attn_k.bias"));
    check(&DENSE, "model.layers.7.post_attention_layernorm.weight", Some("blk.7.ffn_norm.weight"));
    check(&DENSE, "model.layers.01.self_attn.q_proj.weight", None);
    check(&DENSE, "model.layers..self_attn.q_proj.weight", None);
    check(&DENSE, "model.layers.0.self_attn.rotary_emb.inv_freq", None);
    check(&DENSE, "model.layers.0.mlp.experts.0.gate_proj.weight", None);
    check(&DENSE, "blk.0.attn_q.weight", None);
}

#[test]
fn the_number_of_an_expert_is_carried_over_both_ways() {
    let expert = "model.layers.3.mlp.experts.17.gate_proj.weight";
    check(&QWEN_MOE, expert, Some("blk.3.ffn_gate.17.weight"));
    check(&DEEPSEEK, expert, Some("blk.3.ffn_gate.17.weight"));
    check(&QWEN_MOE, "model.layers.3.mlp.experts.017.gate_proj.weight", None);
    check(&QWEN_MOE, "model.layers.3.mlp.experts..gate_proj.weight", None);
    check(&QWEN_MOE, "model.layers.3.mlp.experts.x.gate_proj.weight", None);
    let mixtral = "model.layers.0.block_sparse_moe.experts.5.w2.weight";
    check(&MIXTRAL, mixtral, Some("blk.0.ffn_down.5.weight"));
    check(&MIXTRAL, expert, None);
}

#[test]
fn parts_of_a_quantised_matrix_are_named_as_it_is() {
    check(&DENSE, "model.layers.0.self_attn.q_proj.qweight", Some("blk.0.attn_q.qweight"));
    check(&DENSE, "lm_head.weight_packed", Some("output.weight_packed"));
    let scale = "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv";
    check(&DEEPSEEK, scale, Some("blk.1.ffn_up.2.weight_scale_inv"));
    let blocks = "model.layers.0.mlp.experts.gate_up_proj_blocks";
    check(&GPT_OSS, blocks, Some("blk.0.ffn_gate_up_exps.weight_blocks"));
    check(&DENSE, "model.layers.0.self_attn.q_proj.other", None);
    check(&DENSE, "model.layers.0.self_attn.w_proj.qweight", None);
}

#[test]
fn every_name_maps_back_to_its_source_and_to_no_other() {
    for table in FAMILIES.iter().map(|family| family.names) {
        let globals = table.globals.iter().map(|(source, _)| (*source).to_owned());
        let layer = table.layer_names().map(|(source, _)| format!("model.layers.3.{source}"));
        let mut seen = std::collections::HashSet::new();
        for source in globals.chain(layer.map(|name| name.replace("{}", "9"))) {
            let canonical = table.canonical(&source).unwrap();
            assert_eq!(table.source(&canonical), Some(source));
            assert!(seen.insert(canonical.clone()), "{canonical} twice");
        }
    }
}

#[test]
fn layers_are_found_in_names_of_both_kinds() {
    assert_eq!(DEEPSEEK.layer_of("model.layers.61.eh_proj.weight"), Some(61));
    assert_eq!(DEEPSEEK.layer_of("mtp.0.weight"), None);
    assert_eq!(split_canonical("blk.4.ffn_up.2.weight"), Some(("4", "ffn_up.2.weight")));
    assert_eq!(split_canonical("token_embd.weight"), None);
}
