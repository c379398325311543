//! The list of tensor types holds against that of ggml.

use formats::gguf::GgufFile;
use kernels::quant::{TYPES, by_gguf_id};

/// Numbers and names of ggml; removed types begin with a minus.
fn listed() -> Vec<(u32, String)> {
    let lines = include_str!("../data/gguf/types.txt").lines();
    let entries = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let (number, name) = line.split_once(' ').unwrap();
        (number.parse().unwrap(), name.to_lowercase())
    });
    entries.collect()
}

/// Opens a file with one tensor of this type, of as many zero bytes as any type needs.
fn open(id: u32) -> Result<GgufFile, String> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    // One tensor, no metadata.
    [1u64, 0].iter().for_each(|count| bytes.extend(count.to_le_bytes()));
    bytes.extend(1u64.to_le_bytes());
    bytes.push(b't');
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(256u64.to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(8 << 10, 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.gguf");
    std::fs::write(&path, bytes).unwrap();
    GgufFile::open(&path).map_err(|error| error.to_string())
}

#[test]
fn every_ggml_type_of_the_header_is_known_or_refused_by_name() {
    let listed = listed();
    let (count, types) = listed.split_last().unwrap();
    assert_eq!(count.1, "count");
    assert!(types.iter().map(|(number, _)| *number).eq(0..count.0), "no number is left out");
    for (number, name) in types {
        match name.strip_prefix('-') {
            Some(removed) => {
                let error = open(*number).unwrap_err();
                let named = format!("type {number} is {removed}, which has been removed");
                assert!(error.contains(&named), "{error}");
            }
            None => {
                let file = open(*number).unwrap();
                assert_eq!(file.tensors()[0].ty.name, name);
                // What cannot be computed with is refused by name.
                if let Err(error) = file.tensors()[0].to_f32() {
                    assert!(error.to_string().contains(name.as_str()), "{error}");
                    assert!(!file.tensors()[0].ty.is_supported(), "{name}");
                }
            }
        }
    }
    let known = types.iter().filter(|(_, name)| !name.starts_with('-'));
    assert!(known.map(|(number, _)| *number).eq(TYPES.iter().map(|ty| ty.gguf_id)));
    for later in [count.0, count.0 + 1, 142, u32::MAX] {
        assert!(by_gguf_id(later).is_none());
        assert!(open(later).unwrap_err().contains(&format!("unknown tensor type {later}")));
    }
}
