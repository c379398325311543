//! Sizes and byte ranges of tensors, for all file formats.

use std::ops::Range;
use std::path::Path;

use kernels::quant::QuantType;

use crate::error::{Error, Result, shown};

/// Name, shape, type and byte range of one tensor of a file.
#[derive(Debug)]
pub struct TensorEntry {
    /// Name in the file.
    pub name: String,
    /// Row-major, outermost first.
    pub shape: Vec<usize>,
    /// How the values are stored.
    pub ty: &'static QuantType,
    /// Byte range within the file.
    pub range: Range<usize>,
}

/// Size of a tensor in bytes, or the problem with its shape.
pub(crate) fn tensor_bytes(ty: &QuantType, shape: &[usize]) -> Result<usize, String> {
    let overflow = || format!("the product of the dimensions {shape:?} overflows");
    // A product of zero must not hide an overflow among the other dimensions.
    let nonzero = shape.iter().filter(|&&dim| dim > 0);
    nonzero.copied().try_fold(1usize, usize::checked_mul).ok_or_else(overflow)?;
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(ty.block_len) {
        return Err(format!(
            "a row of {row} values is not a whole number of {ty} blocks of {} values",
            ty.block_len
        ));
    }
    ty.bytes_for(shape.iter().product()).ok_or_else(overflow)
}

/// Checks that no two tensors share bytes.
pub(crate) fn check_overlaps(path: &Path, tensors: &[TensorEntry]) -> Result<()> {
    let mut sorted: Vec<_> = tensors.iter().filter(|tensor| !tensor.range.is_empty()).collect();
    sorted.sort_by_key(|tensor| tensor.range.start);
    for pair in sorted.windows(2) {
        let (a, b) = (&pair[0].range, &pair[1].range);
        if b.start < a.end {
            let first = shown(&pair[0].name);
            let problem = format!("its bytes {b:?} overlap those of tensor {first} ({a:?})");
            return Err(Error::tensor(path, &pair[1].name, problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::quant::{F32, by_name};

    fn check(ty: &QuantType, shape: &[usize], expected: Option<usize>) {
        assert_eq!(tensor_bytes(ty, shape).ok(), expected, "{ty} {shape:?}");
    }

    #[test]
    fn sizes_are_exact_or_refused() {
        check(&F32, &[], Some(4));
        check(&F32, &[3, 5], Some(60));
        check(&F32, &[0, 5], Some(0));
        check(&F32, &[1 << 32, 1 << 32], None);
        check(&F32, &[1 << 32, 1 << 32, 0], None);
        check(&F32, &[1 << 62], None);
        check(by_name("q4_k").unwrap(), &[2, 512], Some(4 * 144));
        check(by_name("q4_k").unwrap(), &[512, 100], None);
    }

    #[test]
    fn touching_tensors_do_not_overlap_and_nested_ones_do() {
        let entry = |name: &str, range| TensorEntry {
            name: name.into(),
            shape: Vec::new(),
            ty: &F32,
            range,
        };
        let check = |b: Range<usize>| {
            check_overlaps(Path::new("f"), &[entry("a", 4..8), entry("b", b)]).is_ok()
        };
        assert!(check(8..12) && check(0..4) && check(5..5));
        assert!(!check(7..9) && !check(5..6) && !check(0..5));
    }
}
