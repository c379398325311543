use super::*;
use crate::file_header::{FileHeaders, WeightFile};
use crate::layout::TensorEntry;
use base::Storage;
use kernels::quant::{BF16, F16, MXFP4, QuantType};

/// Two key heads of one value, four value heads of two values: shares of 10 rows.
fn config() -> ModelConfig {
    let spec = DeltaSpec {
        key_heads: 2,
        value_heads: 4,
        key_dim: 1,
        value_dim: 2,
        kernel: 3,
        ..DeltaSpec::default()
    };
    let delta = OfLayers { layers: vec![true], spec };
    let tiny = ModelConfig::tiny("llama", 1).unwrap();
    tiny.with(|said| said.delta = Some(delta))
}

/// A tensor of bytes that differ from their neighbours.
fn view(name: &str, ty: &'static QuantType, shape: &[usize]) -> TensorView {
    let len = ty.bytes_for(shape.iter().product()).unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    holding(name, ty, shape, &bytes)
}

fn holding(name: &str, ty: &'static QuantType, shape: &[usize], bytes: &[u8]) -> TensorView {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let file = WeightFile::open(file.path(), &FileHeaders::default()).unwrap();
    let (name, shape, range) = (name.to_owned(), shape.to_vec(), 0..bytes.len());
    TensorView::new(&file, TensorEntry { name, shape, ty, range })
}

fn convert(view: TensorView, hf: bool) -> Result<Vec<TensorView>> {
    let config = config();
    DeltaTensors { config: &config, hf, zero_centred: true, plain_norms: &[] }.convert(vec![view])
}

fn bytes(bytes: Storage) -> Vec<u8> {
    bytes.read(0..bytes.len()).into_owned()
}

/// `part` has these rows of `whole`, read at once and one by one.
fn check_rows(part: &TensorView, whole: &TensorView, name: &str, rows: &[usize]) {
    assert_eq!((part.name.as_str(), part.ty), (name, whole.ty));
    assert_eq!(part.shape, [rows.len(), whole.shape[1]]);
    let expected: Vec<u8> =
        rows.iter().flat_map(|&row| bytes(whole.rows(row..row + 1).bytes())).collect();
    assert_eq!(bytes(part.bytes()), expected, "{name}");
    let single = (0..rows.len()).flat_map(|row| bytes(part.rows(row..row + 1).bytes()));
    assert_eq!(single.collect::<Vec<_>>(), expected, "{name} by rows");
}

#[test]
fn fused_projections_come_apart_whatever_their_rows_are() {
    for (ty, columns) in [(&F32, 3), (&BF16, 5), (&MXFP4, 64)] {
        for hf in [false, true] {
            let fused = view("blk.7.ssm_in.weight", ty, &[20, columns]);
            let parts = convert(fused.clone(), hf).unwrap();
            let qkv = [0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15];
            check_rows(&parts[0], &fused, "blk.7.attn_qkv.weight", &qkv);
            let gate = [6, 7, 8, 9, 16, 17, 18, 19];
            check_rows(&parts[1], &fused, "blk.7.attn_gate.weight", &gate);
            let fused = view("blk.7.ssm_ba.weight", ty, &[8, columns]);
            let parts = convert(fused.clone(), hf).unwrap();
            check_rows(&parts[0], &fused, "blk.7.ssm_beta.weight", &[0, 1, 4, 5]);
            check_rows(&parts[1], &fused, "blk.7.ssm_alpha.weight", &[2, 3, 6, 7]);
        }
    }
}

#[test]
fn parts_keep_the_order_of_their_columns() {
    let mut fused = view("blk.0.ssm_ba.weight", &F32, &[8, 3]);
    fused.order = Some([2, 0, 1].into());
    for part in convert(fused, true).unwrap() {
        assert_eq!(part.order.as_deref(), Some(&[2, 0, 1][..]));
    }
}

#[test]
fn fused_projections_of_another_size_are_refused() {
    let check = |name: &str, shape: &[usize], fragments: &[&str]| {
        let error = convert(view(name, &F32, shape), true).unwrap_err().to_string();
        assert!(fragments.iter().all(|part| error.contains(part)), "{error}");
    };
    check("blk.0.ssm_in.weight", &[19, 2], &["blk.0.ssm_in", "expected 20 rows", "found 19"]);
    check("blk.0.ssm_ba.weight", &[10, 2], &["expected 8 rows (4 for each of 2", "found 10"]);
    check("blk.0.ssm_ba.weight", &[8], &["expected a matrix", "[8]"]);
    check("blk.0.ssm_in.weight", &[20, 2, 1], &["expected a matrix"]);
}

fn of_bf16(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; 2 * values.len()];
    (BF16.quantize.unwrap())(values, None, &mut bytes);
    bytes
}

#[test]
fn norms_and_decays_of_hugging_face_checkpoints_are_computed_in_f32() {
    let check = |name: &str, hf: bool, expected: &[f32]| {
        let source = holding(name, &BF16, &[3], &of_bf16(&[0.0, -1.5, 0.0078125]));
        let found = &convert(source, hf).unwrap()[0];
        assert_eq!(found.to_f32().unwrap(), expected, "{name}");
        assert_eq!(found.shape, [3]);
    };
    let plus_one = [1.0, -0.5, 1.0078125];
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        check(name, true, &plus_one);
    }
    check("blk.0.attn_q_norm.weight", true, &plus_one);
    check("blk.0.ssm_a", true, &[-1.0, -0.223_130_16, -1.007_843_1]);
    let same = [0.0, -1.5, 0.0078125];
    check("blk.0.ssm_norm.weight", true, &same);
    check("blk.0.ssm_dt.bias", true, &same);
    check("blk.0.attn_norm.weight", false, &same);
    check("blk.0.ssm_a", false, &same);
}

#[test]
fn convolutions_lose_their_dimension_of_one_channel() {
    let found = convert(view("blk.0.ssm_conv1d.weight", &F16, &[12, 1, 3]), true).unwrap();
    assert_eq!((found[0].ty, &found[0].shape[..]), (&F16, &[12, 3][..]));
    for shape in [&[12, 3][..], &[12, 1, 3], &[1, 12, 1, 3]] {
        let other = convert(view("blk.0.ssm_conv1d.weight", &F16, shape), false).unwrap();
        assert_eq!(other[0].shape, [12, 3]);
        assert_eq!(bytes(other[0].bytes()), bytes(found[0].bytes()));
    }
}
