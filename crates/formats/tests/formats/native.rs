//! Native checkpoints: values against those of the formats' definitions, and broken ones refused.

use crate::common::altered::{Altered, bytes, data, joined};
use formats::{Checkpoint, ModelFiles, OpenOptions, TensorView, native};

const STEM: &str = "model.layers.0.mlp.up_proj";

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn values_are_those_of_the_definitions_bit_for_bit() {
    let mut checked = 0;
    for entry in std::fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().path()) {
        if !entry.is_dir() {
            continue;
        }
        let tensors = joined(&entry).unwrap();
        let reference = ModelFiles::open(&entry.join("reference.safetensors")).unwrap();
        assert_eq!(tensors.len(), reference.tensors().len(), "{entry:?}");
        for expected in reference.tensors() {
            let found = tensors.iter().find(|t| t.source_name == expected.source_name);
            let found = found.unwrap_or_else(|| panic!("{entry:?}: {}", expected.source_name));
            assert_eq!(found.shape, expected.shape, "{entry:?}");
            let (found, expected) = (found.to_f32().unwrap(), expected.to_f32().unwrap());
            assert!(bits(&found) == bits(&expected), "{entry:?}");
            checked += 1;
        }
    }
    assert!(checked >= 46, "{checked} tensors");
}

#[test]
fn rows_read_alone_are_those_of_the_whole() {
    let folders =
        ["gptq_4_ordered", "gptq_8", "awq", "compressed_4_zeros", "fp8_blocks", "nvfp4_compressed"];
    for folder in folders {
        let tensors = joined(&data().join(folder)).unwrap();
        let view = tensors.iter().find(|t| t.source_name.starts_with(STEM)).unwrap();
        let whole = bytes(view);
        for rows in [0..1, 3..6, 5..6, 0..view.shape[0]] {
            let row = whole.len() / view.shape[0];
            assert_eq!(bytes(&view.rows(rows.clone())), whole[rows.start * row..rows.end * row]);
            let values = view.rows(rows.clone()).to_f32().unwrap();
            let expected = view.to_f32().unwrap();
            assert_eq!(values, expected[rows.start * view.shape[1]..rows.end * view.shape[1]]);
        }
    }
}

#[test]
fn inputs_of_groups_in_another_order_are_told() {
    let order = |folder: &str| {
        let tensors = joined(&data().join(folder)).unwrap();
        tensors.into_iter().find(|t| t.source_name.starts_with(STEM)).unwrap().order
    };
    let mut inputs = order("gptq_4_ordered").unwrap().to_vec();
    assert!(inputs.chunks(32).all(<[u32]>::is_sorted) && !inputs.is_sorted());
    inputs.sort_unstable();
    assert!(inputs.into_iter().eq(0..128));
    assert!(order("gptq_4").is_none() && order("gptq_2_uneven").is_none());
}

#[test]
fn weights_without_their_scales_and_scales_without_weights_are_errors() {
    let missing = |folder: &str, end: &str, expected: &str| {
        Altered::new(folder).without(end).fails(expected);
    };
    missing("gptq_4", ".scales", "up_proj.qweight: expected a tensor");
    missing("gptq_4", ".qzeros", "up_proj.qweight: expected a tensor");
    missing("gptq_4", ".qweight", "expected weights that it belongs to");
    missing("compressed_4", ".weight_scale", "up_proj.weight_packed: expected a tensor");
    missing("compressed_4", ".weight_shape", "up_proj.weight_packed: expected a tensor");
    missing("compressed_4", ".weight_packed", "expected weights that it belongs to");
    missing("compressed_int8", "up_proj.weight", "expected weights that it belongs to");
    missing(
        "fp8_blocks",
        "_scale_inv",
        "expected a tensor model.layers.0.mlp.up_proj.weight_scale_inv",
    );
    missing(
        "fp8_blocks",
        "up_proj.weight",
        "weight_scale_inv: expected weights that it belongs to",
    );
    missing("fp8_powers", "up_proj.weight", "expected weights that it belongs to");
    missing("mxfp4_blocks", "_scales", "expected a tensor");
    missing("mxfp4_blocks", "_blocks", "expected weights that it belongs to");
    missing("nvfp4_compressed", "_global_scale", "expected a tensor");
    missing("nvfp4_compressed", "_packed", "scale: expected weights that it belongs to");
    missing("nvfp4_modelopt", "_scale_2", "up_proj.weight: expected a tensor");
    missing("nvfp4_modelopt", "up_proj.weight", "scale: expected weights that it belongs to");
    missing("modelopt_fp8", "weight_scale", "up_proj.weight: expected a tensor");
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let shaped = |folder: &str, end: &str, shape: &[usize], expected: &str| {
        Altered::new(folder).shaped(end, shape).fails(expected);
    };
    shaped("gptq_4", ".scales", &[5, 16], "expected shape [5, 2], found [4, 2]");
    shaped("gptq_4", ".scales", &[4, 15], "expected 2, 4 or 8 bits");
    shaped("gptq_4", ".scales", &[0, 16], "expected a matrix");
    shaped("gptq_4", ".qzeros", &[4, 0], "expected a matrix");
    shaped("gptq_4", ".qzeros", &[4, 1 << 20], "expected 2, 4 or 8 bits");
    shaped("gptq_4", ".qweight", &[16, 17], "expected shape [16, 16]");
    shaped(
        "gptq_4",
        ".qweight",
        &[17, 16],
        "expected groups of 32 inputs, which has scales of shape [16, 5], found [16, 4]",
    );
    shaped("gptq_4", ".g_idx", &[127], "expected shape [128]");
    shaped("awq", ".qweight", &[127, 2], "expected rows of whole blocks of 32 values, found 127");
    shaped("awq", ".qweight", &[128, 3], "expected shape [128, 2]");
    shaped(
        "compressed_4",
        ".weight_scale",
        &[10, 4],
        "groups of a multiple of 32 inputs, found 24",
    );
    shaped("compressed_4", ".weight_scale", &[9, 3], "expected [10, groups]");
    shaped("compressed_4", ".weight_scale", &[10, 0], "expected groups of one size");
    shaped("compressed_4_zeros", ".weight_zero_point", &[3, 3], "expected shape [2, 3]");
    let tiles = "expected tiles of 8 by 32, which has scales of shape [2, 3], found";
    shaped("fp8_blocks", "_scale_inv", &[2, 2], &format!("{tiles} [2, 2]"));
    shaped("fp8_blocks", "_scale_inv", &[12, 1], &format!("{tiles} [12, 1]"));
    shaped("fp8_blocks", "_scale_inv", &[1], &format!("{tiles} [1, 1]"));
    shaped("fp8_blocks", "up_proj.weight", &[12, 81], "of whole runs of 8 values");
    shaped("fp8_blocks", "up_proj.weight", &[0, 80], "expected a matrix");
    shaped("fp8_blocks", "up_proj.weight", &[2, 12, 80], tiles);
    shaped("fp8_blocks", "up_proj.weight", &[3, 12, 80], "expected scales of 3 experts");
    shaped("mxfp4_blocks", "_scales", &[2, 4, 3], "expected shape [2, 4, 2]");
    shaped("mxfp4_blocks", "_blocks", &[2, 4, 2, 15], "expected [.., rows, cols / 32, 16]");
    shaped("mxfp4_pairs", "up_proj.weight", &[4, 31], "expected rows of whole blocks of 16 bytes");
    shaped("mxfp4_pairs", ".scale", &[4, 1], "expected shape [4, 2]");
    let groups = "expected groups of 16 inputs, which has scales of shape [6, 6], found [6, 3]";
    shaped("nvfp4_compressed", "weight_scale", &[6, 3], groups);
    shaped("nvfp4_modelopt", "weight_scale", &[6, 3], groups);
    shaped("nvfp4_modelopt", "weight_scale_2", &[2], "expected shape [1] or [] or [1, 1]");
    shaped("nvfp4_modelopt", "up_proj.weight", &[6], "expected a matrix");
    shaped("compressed_mxfp4", "weight_scale", &[4, 4], "expected shape [4, 2]");
}

#[test]
fn values_that_no_format_has_are_errors() {
    let with = |folder: &str, end: &str, data: &[u8], expected: &str| {
        Altered::new(folder).with(end, data).fails(expected);
    };
    with("gptq_4", ".g_idx", &[4, 0, 0, 0], "expected groups from 0 to 3, found 4 of input 0");
    with("gptq_4", ".g_idx", &[0, 0, 0, 128], "expected groups from 0 to 3, found -2147483648");
    with("gptq_4", ".g_idx", &[1, 0, 0, 0], "expected a multiple of 32 inputs of group");
    with("gptq_4", ".scales", &[0, 0x7c], "expected finite scales, found inf as value 0");
    with("fp8_blocks", "_inv", &[0, 0, 0xc0, 0x7f], "expected finite scales, found NaN as value 0");
    with("fp8_powers", ".scale", &[255], "expected finite scales, found NaN as value 0");
    with("mxfp4_blocks", "_scales", &[1, 255], "expected scales, found NaN as value 1");
    with("mxfp4_pairs", ".scale", &[255], "expected scales, found NaN as value 0");
    with("nvfp4_compressed", "weight_scale", &[1, 127], "expected finite scales, found NaN");
    with("nvfp4_compressed", "_global_scale", &[0; 4], "expected a scale from 1e-30 to 1e30");
    with("nvfp4_modelopt", "_scale_2", &[0, 0, 0, 0xbf], "expected a scale from 0e0 to 1e30");
    with("nvfp4_modelopt", "_scale_2", &[0, 0, 0x80, 0x7f], "expected finite scales, found inf");
    with("compressed_4", "_shape", &[11], "expected 10 outputs and their inputs");
    with("compressed_4", "_shape", &[10, 0, 0, 0, 0, 0, 0, 0, 0], "expected 10 outputs");
    with("compressed_4", "_shape", &[10, 0, 0, 0, 0, 0, 0, 128], "expected 10 outputs");
    with(
        "compressed_4",
        "_shape",
        &[10, 0, 0, 0, 0, 0, 0, 0, 64],
        "expected 64 codes of 2, 4 or 8",
    );
}

#[test]
fn settings_that_are_not_known_are_errors() {
    let config = |folder: &str, from: &str, to: &str, expected: &str| {
        Altered::new(folder).config(from, to).fails(expected);
    };
    let size = "quantization_config.group_size: expected -1 or an integer from 1";
    config("gptq_4", "\"group_size\": 32", "\"group_size\": 0", size);
    config("gptq_4", "\"group_size\": 32", "\"group_size\": -2", size);
    config("gptq_4", "\"group_size\": 32", "\"group_size\": 1e99", size);
    config(
        "gptq_4",
        "\"gptq\"",
        "\"squeeze\"",
        "up_proj.qweight: not known in weights quantised by squeeze",
    );
    config(
        "gptq_8",
        "\"checkpoint_format\": \"gptq\"",
        "\"checkpoint_format\": \"marlin\"",
        "found marlin",
    );
    config("awq", "\"gemm\"", "\"gemv\"", "expected version gemm of AWQ, found gemv");
    config("compressed_4", "compressed-tensors", "mystery", "up_proj.weight_packed: not known");
    config(
        "fp8_blocks",
        "\"fp8\"",
        "\"fp9\"",
        "up_proj.weight: not known in weights quantised by fp9",
    );
    config("mxfp4_blocks", "\"mxfp4\"", "\"gptq\"", "gate_up_proj_blocks: not known");
    let tile = "weight_block_size: expected two integers from 1";
    config("fp8_blocks", "  8,", "  0,", tile);
    config("fp8_blocks", "  8,", "", tile);
}

#[test]
fn three_bits_are_refused_by_name() {
    // 32 inputs in three words, zero points of 16 outputs in a word and a half.
    let altered = Altered::new("gptq_4").shaped(".qzeros", &[4, 3]).shaped(".scales", &[4, 32]);
    altered.fails("expected 2, 4 or 8 bits for each of 32 outputs, found 3 bits");
}

/// Four-bit floats, two to a byte, the even one in the low nibble, under powers of two.
fn floats(codes: &[u8], powers: &[u8]) -> Vec<f32> {
    const LEVELS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let level =
        |q: u8| if q < 8 { LEVELS[usize::from(q)] } else { 0.0 - LEVELS[usize::from(q - 8)] };
    let nibbles = codes.iter().flat_map(|byte| [byte & 15, byte >> 4]).enumerate();
    nibbles.map(|(i, q)| level(q) * 2f32.powi(i32::from(powers[i / 32]) - 127)).collect()
}

/// E4M3 codes under scales of tiles of 128 by 128, `scale` giving that of a tile.
fn tiles(codes: &[u8], cols: usize, scale: impl Fn(usize) -> f32) -> Vec<f32> {
    let value = |index: usize| {
        let (row, col, code) = (index / cols, index % cols, i32::from(codes[index]));
        let (exponent, mantissa) = (code >> 3 & 15, (code & 7) as f32 / 8.0);
        let magnitude = match exponent {
            0 => mantissa * 2f32.powi(-6),
            _ => (1.0 + mantissa) * 2f32.powi(exponent - 7),
        };
        let value = if code & 128 == 0 { magnitude } else { -magnitude };
        scale(row / 128 * cols.div_ceil(128) + col / 128) * value
    };
    (0..codes.len()).map(value).collect()
}

/// Compares every tensor of a fixture that is not stored as it is with `direct`, which is given the
/// raw tensors of its name, and counts them.
fn check_fixture(
    folder: &str,
    direct: impl Fn(&TensorView, &dyn Fn(&str, &str) -> Vec<u8>) -> Vec<f32>,
) -> usize {
    let Some(folder) = fixtures::find(&format!("models/{folder}")) else { return usize::MAX };
    let files = ModelFiles::open(&folder).unwrap();
    let raw = |stem: &str, end: &str| {
        let name = format!("{stem}{end}");
        bytes(files.tensors().iter().find(|t| t.source_name == name).expect(&name))
    };
    let tensors = native::join(&files).unwrap();
    let changed = tensors.iter().filter(|view| {
        files.tensors().iter().all(|t| t.source_name != view.source_name || t.ty != view.ty)
    });
    let check = |view: &TensorView| {
        let (found, expected) = (view.to_f32().unwrap(), direct(view, &raw));
        assert!(bits(&found) == bits(&expected), "{}", view.source_name);
    };
    changed.map(check).count()
}

#[test]
fn fp8_of_deepseek_v3_is_what_its_tiles_say() {
    let checked = check_fixture("deepseek_v3_fp8", |view, raw| {
        let name = &view.source_name;
        let scales = raw(name, "_scale_inv");
        let scale = |tile: usize| f32::from_le_bytes(*scales.as_chunks().0.get(tile).unwrap());
        tiles(&raw(name, ""), view.shape[1], scale)
    });
    assert!(checked >= 30, "{checked}");
}

#[test]
fn fp8_and_fp4_of_deepseek_v4_are_what_their_scales_say() {
    let checked = check_fixture("deepseek_v4_fp8_fp4", |view, raw| {
        let name = &view.source_name;
        let scales = raw(name.strip_suffix(".weight").unwrap(), ".scale");
        match view.ty.name {
            "mxfp4" => floats(&raw(name, ""), &scales),
            _ => tiles(&raw(name, ""), view.shape[1], |tile| {
                2f32.powi(i32::from(scales[tile]) - 127)
            }),
        }
    });
    assert!(checked >= 60, "{checked}");
}

#[test]
fn mxfp4_of_gpt_oss_is_what_its_blocks_say() {
    let checked = check_fixture("gpt_oss_mxfp4", |view, raw| {
        let name = &view.source_name;
        floats(&raw(name, "_blocks"), &raw(name, "_scales"))
    });
    assert!(checked >= 6, "{checked}");
}

/// The values of a canonically named tensor of a fixture, and of its parts read alone.
fn values(folder: &str, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
    let folder = fixtures::find(&format!("models/{folder}"))?;
    let checkpoint = Checkpoint::open(&folder, &OpenOptions::default()).unwrap();
    let view = checkpoint.tensor(name).expect(name);
    let all = view.to_f32().unwrap();
    let parts = (0..view.shape[0]).map(|part| view.part(part).to_f32().unwrap());
    assert_eq!(bits(&all), bits(&parts.collect::<Vec<_>>().concat()), "{name}");
    Some((view.shape.clone(), all))
}

/// A raw tensor of a fixture.
fn raw(folder: &str, name: &str) -> Vec<f32> {
    let folder = fixtures::find(&format!("models/{folder}")).unwrap();
    let files = ModelFiles::open(&folder).unwrap();
    files.tensors().iter().find(|t| t.source_name == name).unwrap().to_f32().unwrap()
}

#[test]
fn experts_of_gpt_oss_are_matrices_of_their_own_whatever_holds_them() {
    let Some((shape, gate)) = values("gpt_oss", "blk.1.ffn_gate_exps.weight") else { return };
    let up = values("gpt_oss", "blk.1.ffn_up_exps.weight").unwrap();
    let down = values("gpt_oss", "blk.1.ffn_down_exps.weight").unwrap();
    assert_eq!((&shape, &up.0, &down.0), (&vec![6, 64, 64], &vec![6, 64, 64], &vec![6, 64, 64]));
    let fused = raw("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj");
    let stored = raw("gpt_oss", "model.layers.1.mlp.experts.down_proj");
    for (at, gate) in gate.into_iter().enumerate() {
        let (expert, output, input) = (at / 4096, at / 64 % 64, at % 64);
        let row = (expert * 64 + input) * 128;
        assert_eq!((gate, up.1[at]), (fused[row + 2 * output], fused[row + 2 * output + 1]));
        assert_eq!(down.1[at], stored[(expert * 64 + input) * 64 + output]);
    }
    let biases = raw("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj_bias");
    let every = |first: usize| biases.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
    assert_eq!(values("gpt_oss", "blk.1.ffn_gate_exps.bias").unwrap(), (vec![6, 64], every(0)));
    assert_eq!(values("gpt_oss", "blk.1.ffn_up_exps.bias").unwrap(), (vec![6, 64], every(1)));
}

#[test]
fn mxfp4_experts_of_gpt_oss_come_apart_by_rows() {
    let folder = "gpt_oss_mxfp4";
    let Some((shape, gate)) = values(folder, "blk.1.ffn_gate_exps.weight") else { return };
    let (_, up) = values(folder, "blk.1.ffn_up_exps.weight").unwrap();
    let folder = fixtures::find("models/gpt_oss_mxfp4").unwrap();
    let files = ModelFiles::open(&folder).unwrap();
    let fused = native::join(&files).unwrap();
    let fused = fused.iter().find(|t| t.source_name == "model.layers.1.mlp.experts.gate_up_proj");
    let fused = fused.unwrap().to_f32().unwrap();
    assert_eq!(shape, [6, 64, 64]);
    let rows = fused.chunks(64).enumerate();
    let (even, odd): (Vec<_>, Vec<_>) = rows.partition(|(row, _)| row % 2 == 0);
    let all = |rows: Vec<(usize, &[f32])>| rows.into_iter().flat_map(|(_, r)| r).copied().collect();
    let (even, odd): (Vec<f32>, Vec<f32>) = (all(even), all(odd));
    assert!(gate == even && up == odd);
}

#[test]
fn fp8_experts_of_deepseek_v3_are_stacks() {
    let name = "blk.1.ffn_down_exps.weight";
    let Some((shape, values)) = values("deepseek_v3_fp8", name) else { return };
    assert_eq!(shape, [8, 64, 48]);
    let tensors = joined(&fixtures::find("models/deepseek_v3_fp8").unwrap()).unwrap();
    for (expert, values) in values.chunks(64 * 48).enumerate() {
        let name = format!("model.layers.1.mlp.experts.{expert}.down_proj.weight");
        let one = tensors.iter().find(|t| t.source_name == name).unwrap();
        assert_eq!(one.to_f32().unwrap(), values);
    }
}

#[test]
fn fused_experts_of_qwen3_come_apart_by_halves() {
    let folder = "qwen3_moe_fused";
    let Some((shape, up)) = values(folder, "blk.1.ffn_up_exps.weight") else { return };
    assert_eq!(shape, [8, 32, 64]);
    let fused = raw(folder, "model.layers.1.mlp.experts.gate_up_proj");
    let halves: Vec<f32> = fused.chunks(64 * 64).flat_map(|one| &one[32 * 64..]).copied().collect();
    assert_eq!(up, halves);
}
