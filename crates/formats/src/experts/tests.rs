use super::*;
use crate::config::ExpertsConfig;
use crate::file_header::{FileHeaders, WeightFile};
use crate::layout::TensorEntry;
use kernels::quant::{F32, MXFP4, QuantType};

/// A configuration with `count` experts.
fn config(count: usize) -> ModelConfig {
    let text = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "vocab_size": 8,
        "num_attention_heads": 1, "num_hidden_layers": 1, "intermediate_size": 8,
        "max_position_embeddings": 8, "rms_norm_eps": 1e-5}"#;
    let mut config = ModelConfig::from_hf_json(text, Path::new("config.json")).unwrap();
    config.said.experts = Some(ExpertsConfig::plain(count, 1, 2, 1));
    config
}

/// Tensors that hold consecutive numbers, each from where the one before ended.
fn tensors(all: &[(&str, &[usize])]) -> Vec<TensorView> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let count: usize = all.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let bytes: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    std::fs::write(file.path(), bytes).unwrap();
    let file = WeightFile::open(file.path(), &FileHeaders::default()).unwrap();
    let mut end = 0;
    let view = |(name, shape): &(&str, &[usize])| {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let (name, shape) = ((*name).to_owned(), shape.to_vec());
        TensorView::new(&file, TensorEntry { name, shape, ty: &F32, range: start..end })
    };
    all.iter().map(view).collect()
}

fn join(
    config: &ModelConfig,
    form: ExpertFiles,
    all: &[(&str, &[usize])],
) -> Result<Vec<TensorView>> {
    let names = Some(&crate::config::names::DENSE);
    Experts { path: Path::new("model"), names, config, form }.join(tensors(all))
}

fn check(view: &TensorView, name: &str, shape: &[usize], values: &[f32]) {
    assert_eq!((view.name.as_str(), view.shape.as_slice()), (name, shape));
    assert_eq!(view.to_f32().unwrap(), values, "{name}");
    let parts = (0..shape[0]).map(|expert| view.part(expert).to_f32().unwrap());
    assert_eq!(parts.collect::<Vec<_>>().concat(), values, "{name} by parts");
}

#[test]
fn tensors_of_single_experts_become_stacks_in_their_order() {
    let all: &[(&str, &[usize])] = &[
        ("blk.0.ffn_up.1.weight", &[1, 2]),
        ("blk.0.ffn_norm.weight", &[1]),
        ("blk.0.ffn_up.0.weight", &[1, 2]),
        ("blk.0.ffn_up.0.bias", &[1]),
        ("blk.0.ffn_up.1.bias", &[1]),
    ];
    let joined = join(&config(2), ExpertFiles::Single, all).unwrap();
    check(&joined[0], "blk.0.ffn_up_exps.weight", &[2, 1, 2], &[3.0, 4.0, 0.0, 1.0]);
    assert_eq!(joined[1].name, "blk.0.ffn_norm.weight");
    check(&joined[2], "blk.0.ffn_up_exps.bias", &[2, 1], &[5.0, 6.0]);
}

#[test]
fn experts_that_are_missing_or_unlike_are_errors_that_name_them() {
    let error = |count: usize, all: &[(&str, &[usize])], expected: &str| {
        let text = join(&config(count), ExpertFiles::Single, all).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    };
    let (first, second) = ("blk.0.ffn_up.0.weight", "blk.0.ffn_up.1.weight");
    let two: &[(&str, &[usize])] = &[(first, &[1, 2]), (second, &[1, 2])];
    error(3, two, "blk.0.ffn_up.2.weight: expected one for each of 3 experts");
    error(1, two, "blk.0.ffn_up.1.weight: expected 1 experts, found one more");
    error(2, &two[1..], "blk.0.ffn_up.0.weight: expected one for each of 2 experts");
    error(2, &[two[0], two[0]], "a second tensor of expert 0");
    error(
        2,
        &[two[0], (second, &[2, 1])],
        "expected 2 experts of type f32 [1, 2], found f32 [2, 1]",
    );
    error(2, &[("blk.0.ffn_up.99999999999999999999.weight", &[1])], "expected 2 experts");
    error(2, &[("blk.0.ffn_gate_up_exps.weight", &[2, 3, 1])], "[experts, 2 * outputs, inputs]");
    error(2, &[("blk.0.ffn_gate_up_exps.weight", &[2, 0, 1])], "[experts, 2 * outputs, inputs]");
    error(2, &[("blk.0.ffn_gate_up_exps.weight", &[2])], "[experts, 2 * outputs, inputs]");
    error(2, &[("blk.0.ffn_gate_up_exps.weight", &[1 << 40, 2, 0])], "expected 2 experts");
    error(2, &[("blk.0.ffn_down_exps.weight", &[1 << 40, 0, 2])], "expected 2 experts");
}

#[test]
fn gate_and_up_in_one_come_apart_by_halves() {
    let all: &[(&str, &[usize])] =
        &[("blk.0.ffn_gate_up_exps.weight", &[2, 2, 2]), ("blk.0.ffn_gate_up_exps.bias", &[2, 2])];
    let joined = join(&config(2), ExpertFiles::Single, all).unwrap();
    check(&joined[0], "blk.0.ffn_gate_exps.weight", &[2, 1, 2], &[0.0, 1.0, 4.0, 5.0]);
    check(&joined[1], "blk.0.ffn_up_exps.weight", &[2, 1, 2], &[2.0, 3.0, 6.0, 7.0]);
    check(&joined[2], "blk.0.ffn_gate_exps.bias", &[2, 1], &[8.0, 10.0]);
    check(&joined[3], "blk.0.ffn_up_exps.bias", &[2, 1], &[9.0, 11.0]);
}

#[test]
fn gate_and_up_of_gpt_oss_come_apart_by_turns_and_transposed() {
    let all: &[(&str, &[usize])] = &[
        ("blk.0.ffn_gate_up_exps.weight", &[1, 3, 4]),
        ("blk.0.ffn_gate_up_exps.bias", &[1, 4]),
        ("blk.0.ffn_down_exps.weight", &[1, 2, 3]),
        ("blk.0.ffn_down_exps.bias", &[1, 3]),
    ];
    let joined = join(&config(1), ExpertFiles::ByTurns, all).unwrap();
    let (gate, up) = ([0.0, 4.0, 8.0, 2.0, 6.0, 10.0], [1.0, 5.0, 9.0, 3.0, 7.0, 11.0]);
    check(&joined[0], "blk.0.ffn_gate_exps.weight", &[1, 2, 3], &gate);
    check(&joined[1], "blk.0.ffn_up_exps.weight", &[1, 2, 3], &up);
    check(&joined[2], "blk.0.ffn_gate_exps.bias", &[1, 2], &[12.0, 14.0]);
    check(&joined[3], "blk.0.ffn_up_exps.bias", &[1, 2], &[13.0, 15.0]);
    let down = [16.0, 19.0, 17.0, 20.0, 18.0, 21.0];
    check(&joined[4], "blk.0.ffn_down_exps.weight", &[1, 3, 2], &down);
    assert_eq!(joined[5].shape, [1, 3]);
}

#[test]
fn matrices_are_cut_by_rows_and_by_columns_of_whole_blocks() {
    let view = &tensors(&[("a", &[2, 3])])[0];
    assert_eq!(view.rows(1..2).to_f32().unwrap(), [3.0, 4.0, 5.0]);
    assert_eq!(view.columns(1..3).unwrap().to_f32().unwrap(), [1.0, 2.0, 4.0, 5.0]);
    assert!(view.columns(2..4).is_err() && view.part(0).columns(0..1).is_err());
    let blocks: &'static QuantType = &MXFP4;
    let bytes: Storage = Arc::new((0..4 * 17).collect::<Vec<u8>>());
    let quantised = view.with(blocks, vec![2, 64], bytes);
    let second = quantised.columns(32..64).unwrap();
    assert_eq!(second.to_f32().unwrap()[..32], quantised.to_f32().unwrap()[32..64]);
    assert!(quantised.columns(16..48).is_err());
}
