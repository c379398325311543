use super::*;
use kernels::quant::{F32, Q4_K, Q6_K, Q8_0, QuantType};

/// A model with experts: a dense layer, then three with shared and routed experts.
fn experts() -> Vec<TensorInfo> {
    let tensor = |name: &str, shape: &[usize], ty: &'static QuantType| {
        let bytes = ty.bytes_for(shape.iter().product()).unwrap();
        TensorInfo::new(name, shape, ty, bytes)
    };
    let mut all = vec![
        tensor("token_embd.weight", &[1024, 256], &Q8_0),
        tensor("output_norm.weight", &[256], &F32),
        tensor("output.weight", &[1024, 256], &Q6_K),
        tensor("blk.0.ffn_gate.weight", &[512, 256], &Q4_K),
        tensor("blk.0.ffn_up.weight", &[512, 256], &Q4_K),
        tensor("blk.0.ffn_down.weight", &[256, 512], &Q6_K),
    ];
    for layer in 0..4 {
        all.push(tensor(&format!("blk.{layer}.attn_norm.weight"), &[256], &F32));
        all.push(tensor(&format!("blk.{layer}.attn_q.weight"), &[256, 256], &Q4_K));
    }
    for layer in 1..4 {
        all.push(tensor(&format!("blk.{layer}.ffn_gate_inp.weight"), &[16, 256], &F32));
        all.push(tensor(&format!("blk.{layer}.ffn_up_exps.weight"), &[16, 256, 256], &Q4_K));
        all.push(tensor(&format!("blk.{layer}.ffn_up_shexp.weight"), &[256, 256], &Q4_K));
    }
    all
}

const RULES: &str = "
- match: {kind: routed_expert, layers: 2-3}
  place: {memory: mapped, decode: {threads: 4}}
- match: {kind: shared_expert}
  place: {type: q8_0}
";

fn plan() -> PlacementPlan {
    let rules = Placement::parse(RULES, Path::new("rules.yaml")).unwrap();
    PlacementPlan::new(
        &rules,
        experts(),
        &mut Cpu::with_isa(1, Mode::Fast, Isa::available()[0]).unwrap(),
    )
    .unwrap()
}

#[test]
fn layers_that_are_held_alike_stand_on_one_line() {
    assert_eq!(plan().to_text().trim_end(), include_str!("snapshot.txt").trim_end());
}

#[test]
fn totals_are_those_of_the_tensors_and_of_the_groups() {
    let json = plan().to_json();
    let sum = |list: &str| {
        let bytes = json[list].as_array().unwrap().iter().map(|one| one["bytes"].as_u64().unwrap());
        bytes.sum::<u64>()
    };
    let total = |of: &str| -> u64 {
        json[of].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
    };
    assert_eq!(sum("tensors"), sum("groups"));
    assert_eq!(sum("tensors"), total("memory_bytes"));
    assert_eq!(sum("tensors"), total("device_bytes"));
    assert_eq!(json["tensors"].as_array().unwrap().len(), experts().len());
}
