//! The types of safetensors files.
//!
//! Types that GGUF has too share its descriptors; the others have numbers outside GGUF's range and
//! can only be listed.

use kernels::quant::{self, QuantType};

const fn listed(name: &'static str, number: u32, len: usize, bytes: usize) -> QuantType {
    QuantType::listed(name, 0x5afe_0000 + number, len, bytes)
}

static ONLY_SAFETENSORS: &[(&str, QuantType)] = &[
    ("BOOL", listed("bool", 0, 1, 1)),
    ("U8", listed("u8", 1, 1, 1)),
    ("U16", listed("u16", 2, 1, 2)),
    ("U32", listed("u32", 3, 1, 4)),
    ("U64", listed("u64", 4, 1, 8)),
    ("C64", listed("c64", 5, 1, 8)),
    ("F8_E4M3", listed("f8_e4m3", 6, 1, 1)),
    ("F8_E5M2", listed("f8_e5m2", 7, 1, 1)),
    ("F8_E8M0", listed("f8_e8m0", 8, 1, 1)),
    ("F8_E4M3FNUZ", listed("f8_e4m3fnuz", 9, 1, 1)),
    ("F8_E5M2FNUZ", listed("f8_e5m2fnuz", 10, 1, 1)),
    ("F6_E2M3", listed("f6_e2m3", 11, 4, 3)),
    ("F6_E3M2", listed("f6_e3m2", 12, 4, 3)),
    ("F4", listed("f4", 13, 2, 1)),
];

/// Names shared with the table of weight types.
const SHARED: &[&str] = &["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8"];

/// The type that a safetensors header calls `dtype`.
pub(super) fn by_dtype(dtype: &str) -> Option<&'static QuantType> {
    if SHARED.contains(&dtype) {
        return quant::by_name(dtype);
    }
    ONLY_SAFETENSORS.iter().find(|(name, _)| *name == dtype).map(|(_, ty)| ty)
}

/// The name of `ty` in safetensors headers, if there is one.
pub(super) fn dtype_of(ty: &QuantType) -> Option<&'static str> {
    let only = ONLY_SAFETENSORS.iter().find(|(_, known)| known == ty).map(|(name, _)| *name);
    only.or_else(|| SHARED.iter().copied().find(|name| name.eq_ignore_ascii_case(ty.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_is_found_under_its_name_and_back() {
        let all = SHARED.iter().chain(ONLY_SAFETENSORS.iter().map(|(name, _)| name));
        for dtype in all {
            assert_eq!(dtype_of(by_dtype(dtype).unwrap()), Some(*dtype));
        }
        assert!(by_dtype("F33").is_none() && by_dtype("bf16").is_none());
    }
}
