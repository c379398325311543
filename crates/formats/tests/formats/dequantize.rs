//! Every type that can be computed with agrees with the reference dequantisation of its fixture.

use formats::gguf::GgufFile;
use std::path::Path;

const TYPES: [&str; 25] = [
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k",
    "q6_k", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs",
    "tq1_0", "tq2_0", "mxfp4",
];

/// Types whose values are exact, and which are quantised as ggml does.
const EXACT: [&str; 3] = ["nvfp4", "q1_0", "q2_0"];

/// The float32 values of a NumPy file, format version 1 (NEP 1).
fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let text = std::str::from_utf8(&bytes[10..header]).unwrap();
    assert!(text.contains("'<f4'") && text.contains("'fortran_order': False"), "{text}");
    let (values, rest) = bytes[header..].as_chunks();
    assert!(rest.is_empty());
    values.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// Floats between `a` and `b`, counted.
fn ulps(a: f32, b: f32) -> u64 {
    let ordinal = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -bits } else { bits }
    };
    (ordinal(a) - ordinal(b)).unsigned_abs()
}

#[test]
fn values_are_within_one_ulp_of_the_reference() {
    let Some(folder) = fixtures::find("gguf/tensors") else { return };
    let mut compared = Vec::new();
    for ty in TYPES {
        let file = GgufFile::open(&folder.join(format!("{ty}.gguf"))).unwrap();
        for tensor in file.tensors() {
            let reference = folder.join(format!("{ty}.{}.npy", tensor.source_name));
            if !reference.exists() {
                assert_eq!(tensor.source_name, "source", "{ty}: only origins have no reference");
                continue;
            }
            let (got, want) = (tensor.to_f32().unwrap(), npy(&reference));
            assert_eq!(got.len(), want.len());
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                let name = &tensor.source_name;
                assert!(ulps(*got, *want) <= 1, "{ty} {name}[{at}]: {got} is not {want}");
            }
            compared.push(ty);
        }
    }
    compared.dedup();
    assert_eq!(compared, TYPES);
}

#[test]
fn values_of_exact_types_have_the_bits_of_the_reference() {
    let Some(folder) = fixtures::find("next/autumn/gguf-tensors") else { return };
    for ty in EXACT {
        let file = GgufFile::open(&folder.join(format!("{ty}.gguf"))).unwrap();
        for name in ["random_bits", "encoded"] {
            let tensor = file.tensors().iter().find(|tensor| tensor.source_name == name).unwrap();
            assert_eq!(tensor.ty.name, ty);
            let (got, want) =
                (tensor.to_f32().unwrap(), npy(&folder.join(format!("{ty}.{name}.npy"))));
            assert_eq!(got.len(), want.len());
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_eq!(got.to_bits(), want.to_bits(), "{ty} {name}[{at}]: {got}, not {want}");
            }
        }
    }
}

#[test]
fn exact_types_are_quantised_to_the_bytes_of_ggml() {
    let Some(folder) = fixtures::find("next/autumn/gguf-tensors") else { return };
    for ty in EXACT {
        let file = GgufFile::open(&folder.join(format!("{ty}.gguf"))).unwrap();
        let find = |name: &str| file.tensors().iter().find(|it| it.source_name == name).unwrap();
        let (values, encoded) = (find("source").to_f32().unwrap(), find("encoded"));
        let bytes = encoded.bytes();
        let want = bytes.read(0..bytes.len());
        // ggml's encoders of these types do without the importance of columns.
        let importance: Vec<f32> = (0..values.len()).map(|at| (1 + at % 7) as f32).collect();
        for importance in [None, Some(importance.as_slice())] {
            let mut got = vec![0; want.len()];
            (encoded.ty.quantize.unwrap())(&values, importance, &mut got);
            let block = encoded.ty.block_bytes;
            let differ = got.chunks(block).zip(want.chunks(block)).position(|(a, b)| a != b);
            assert_eq!(differ, None, "{ty}: the first block that differs");
        }
    }
}
