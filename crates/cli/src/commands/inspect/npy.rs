//! One tensor as a NumPy file: version 1.0 of the format, little-endian float32, C order.

use crate::interrupt::Watch;
use crate::new_file::NewFile;
use anyhow::{Context, Result, bail};
use formats::{ModelFiles, TensorView};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Quant blocks dequantised at a time, so that memory does not grow with the tensor.
const BLOCKS: usize = 1 << 12;

/// Writes the values of the tensor that the files or the engine call `name`; over an existing file
/// only if `force` says so.
pub(super) fn write(files: &ModelFiles, name: &str, out: &Path, force: bool) -> Result<()> {
    let named = |tensor: &&TensorView| tensor.source_name == name || tensor.name == name;
    let Some(tensor) = files.tensors().iter().find(named) else {
        let count = files.tensors().len();
        bail!("{}: none of its {count} tensors is named {name}", files.path().display());
    };
    let mut file = NewFile::create(out, force)?;
    let written = write_values(tensor, &mut file);
    written.with_context(|| format!("cannot write {}", out.display()))?;
    file.finish()
}

fn write_values(tensor: &TensorView, out: &mut NewFile) -> Result<()> {
    let unsupported =
        || format!("tensor {}: values of type {} cannot be read", tensor.name, tensor.ty);
    let dequantize = tensor.ty.dequantize.with_context(unsupported)?;
    let watch = Watch::new();
    let mut file = BufWriter::new(out);
    file.write_all(&header(&tensor.shape))?;
    let mut values = Vec::new();
    let (bytes, step) = (tensor.bytes(), BLOCKS * tensor.ty.block_bytes);
    for start in (0..bytes.len()).step_by(step) {
        watch.check()?;
        let piece = bytes.read(start..bytes.len().min(start + step));
        values.resize(piece.len() / tensor.ty.block_bytes * tensor.ty.block_len, 0.0f32);
        dequantize(&piece, &mut values);
        for value in &values {
            file.write_all(&value.to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

fn header(shape: &[usize]) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    const ALIGNMENT: usize = 64;
    // In the form of a Python tuple.
    let mut dims = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if shape.len() == 1 {
        dims.push(',');
    }
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}), }}");
    let total = (MAGIC.len() + 2 + dict.len() + 1).next_multiple_of(ALIGNMENT);
    // Shapes have a handful of dimensions: the length fits 16 bits.
    let length = (total - MAGIC.len() - 2) as u16;
    let mut out = [MAGIC, &length.to_le_bytes(), dict.as_bytes()].concat();
    out.resize(total - 1, b' ');
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_aligned_and_says_its_length() {
        for shape in [&[][..], &[3], &[151_936, 1024]] {
            let header = header(shape);
            assert_eq!(header.len() % 64, 0);
            let length = u16::from_le_bytes([header[8], header[9]]);
            assert_eq!(usize::from(length) + 10, header.len());
        }
        let text = String::from_utf8_lossy(&header(&[2, 3])).into_owned();
        assert!(text.contains("'shape': (2, 3)"), "{text}");
    }
}
