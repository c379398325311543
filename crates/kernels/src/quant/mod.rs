//! Storage types of weights: one static descriptor and one file per type.
//!
//! A type is a run of `block_len` values stored in `block_bytes` bytes. Every type that
//! appears in GGUF files is known here by name and size, so that any file can be listed;
//! a type whose `dequantize` is `None` can be listed but not yet executed.

mod float;
mod q4_0;
mod q4_k;
mod q6_k;
mod q8_0;

/// Whole quant blocks to values.
pub type Dequantize = fn(src: &[u8], dst: &mut [f32]);
/// Values to whole quant blocks.
pub type Quantize = fn(src: &[f32], dst: &mut [u8]);

/// How the values of one weight type are stored, and the functions that read them.
#[derive(Debug)]
pub struct QuantType {
    /// Name as users type it, lower case: `bf16`, `q4_k`.
    pub name: &'static str,
    /// `ggml_type` number in GGUF files.
    pub gguf_id: u32,
    /// Values in one quant block (1 for plain floats).
    pub block_len: usize,
    /// Bytes of one quant block.
    pub block_bytes: usize,
    /// Whole blocks to f32, exactly as gguf-py does: the specification of the type.
    /// `src.len() / block_bytes * block_len == dst.len()`.
    pub dequantize: Option<Dequantize>,
    /// f32 to whole blocks, round to nearest where the format leaves a choice.
    pub quantize: Option<Quantize>,
}

impl PartialEq for QuantType {
    fn eq(&self, other: &Self) -> bool {
        self.gguf_id == other.gguf_id
    }
}

impl Eq for QuantType {}

impl QuantType {
    /// Bytes that `values` values take, or `None` if they are not whole blocks or the
    /// product overflows.
    pub fn bytes_for(&self, values: usize) -> Option<usize> {
        if !values.is_multiple_of(self.block_len) {
            return None;
        }
        (values / self.block_len).checked_mul(self.block_bytes)
    }

    /// Whether weights of this type can be computed with.
    pub fn is_supported(&self) -> bool {
        self.dequantize.is_some()
    }

    /// Mean bits per value.
    pub fn bits_per_value(&self) -> f64 {
        self.block_bytes as f64 * 8.0 / self.block_len as f64
    }
}

impl std::fmt::Display for QuantType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

pub use float::{BF16, F16, F32};
pub use q4_0::Q4_0;
pub use q4_k::Q4_K;
pub use q6_k::Q6_K;
pub use q8_0::Q8_0;

/// The f16 in the first two bytes, as f32.
fn read_f16(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

const fn listed(
    name: &'static str,
    gguf_id: u32,
    block_len: usize,
    block_bytes: usize,
) -> QuantType {
    QuantType { name, gguf_id, block_len, block_bytes, dequantize: None, quantize: None }
}

/// Every type a GGUF file may hold, in the order of their numbers.
pub static TYPES: &[&QuantType] = &[
    &F32,
    &F16,
    &Q4_0,
    &listed("q4_1", 3, 32, 20),
    &listed("q5_0", 6, 32, 22),
    &listed("q5_1", 7, 32, 24),
    &Q8_0,
    &listed("q8_1", 9, 32, 36),
    &listed("q2_k", 10, 256, 84),
    &listed("q3_k", 11, 256, 110),
    &Q4_K,
    &listed("q5_k", 13, 256, 176),
    &Q6_K,
    &listed("q8_k", 15, 256, 292),
    &listed("iq2_xxs", 16, 256, 66),
    &listed("iq2_xs", 17, 256, 74),
    &listed("iq3_xxs", 18, 256, 98),
    &listed("iq1_s", 19, 256, 50),
    &listed("iq4_nl", 20, 32, 18),
    &listed("iq3_s", 21, 256, 110),
    &listed("iq2_s", 22, 256, 82),
    &listed("iq4_xs", 23, 256, 136),
    &listed("i8", 24, 1, 1),
    &listed("i16", 25, 1, 2),
    &listed("i32", 26, 1, 4),
    &listed("i64", 27, 1, 8),
    &listed("f64", 28, 1, 8),
    &listed("iq1_m", 29, 256, 56),
    &BF16,
    &listed("tq1_0", 34, 256, 54),
    &listed("tq2_0", 35, 256, 66),
    &listed("mxfp4", 39, 32, 17),
];

/// The type with this `ggml_type` number.
pub fn by_gguf_id(id: u32) -> Option<&'static QuantType> {
    TYPES.iter().copied().find(|t| t.gguf_id == id)
}

/// The type with this name, in any case.
pub fn by_name(name: &str) -> Option<&'static QuantType> {
    TYPES.iter().copied().find(|t| t.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn quantising_loses_no_more_than_its_bits_allow() {
        let mut rng = Rng::new(5);
        let source: Vec<f32> = (0..1024).map(|_| rng.normal()).collect();
        for ty in TYPES.iter().filter(|ty| ty.is_supported()) {
            let quantize = ty.quantize.expect("every supported type so far can be written");
            let mut bytes = vec![0; ty.bytes_for(source.len()).unwrap()];
            quantize(&source, &mut bytes);
            let mut back = vec![0.0; source.len()];
            (ty.dequantize.unwrap())(&bytes, &mut back);
            let rms = |f: &dyn Fn(usize) -> f32| {
                ((0..1024).map(|i| f64::from(f(i)).powi(2)).sum::<f64>() / 1024.0).sqrt()
            };
            let error = rms(&|i| source[i] - back[i]) / rms(&|i| source[i]);
            // A uniform quantiser of b bits over +-3 sigma has an error of about 1.7 / 2^b.
            let bound = 2.5 / 2f64.powf(ty.bits_per_value().min(9.0).floor());
            assert!(error < bound, "{ty}: {error} of {bound}");
        }
    }

    #[test]
    fn names_and_numbers_are_unique() {
        for ty in TYPES {
            assert_eq!(by_gguf_id(ty.gguf_id), Some(*ty));
            assert_eq!(by_name(&ty.name.to_uppercase()), Some(*ty));
        }
    }

    #[test]
    fn sizes_are_whole_blocks_or_nothing() {
        assert_eq!(Q4_K.bytes_for(512), Some(288));
        assert_eq!(Q4_K.bytes_for(500), None);
        assert_eq!(F32.bytes_for(usize::MAX), None);
    }
}
