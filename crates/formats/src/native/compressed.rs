//! Integers of compressed-tensors: `X.weight_packed` in words along inputs (`pack-quantized`) or
//! `X.weight` in signed bytes (`int-quantized`, `naive-quantized`), with `X.weight_scale`.
//!
//! Scales are `[outputs, groups]`, or one for all. Packed codes and zero points are stored half
//! their range too large. Zero points are `[outputs * bits / 32, groups]`, packed along outputs, or
//! signed bytes `[outputs, groups]`. `X.weight_shape` is `[outputs, inputs]`; `X.weight_g_idx` is
//! the group of each input, if they are not in order. Scales of activations are not used: in
//! `exact` mode activations stay as they are, in `fast` mode they are rounded under finer scales of
//! their own.

use super::grouped::{Codes, Grouped, Strides, Zeros, words};
use super::order::InputGroups;
use super::scales::Scales;
use super::scheme::{Stored, ZeroPoints};
use super::words::Along;
use super::{mxfp4, nvfp4};
use crate::error::Result;
use crate::native::parts::{Parts, check_shape, check_type, matrix};
use crate::tensor::TensorView;

const METHODS: &[&str] = &["compressed-tensors"];

/// The weights whose packed codes are `view`.
pub(super) fn join_packed<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    parts.check_method(view, METHODS)?;
    check_type(view, &["i32", "u8"])?;
    if view.ty.name == "u8" {
        let scales = parts.need(view, stem, ".weight_scale")?;
        return match scales.ty.name {
            "f8_e4m3" => nvfp4::join_under_divisor(parts, view, stem),
            _ => mxfp4::join_packed(parts, view, stem),
        };
    }
    let shape = parts.need(view, stem, ".weight_shape")?;
    let (rows, packed) = matrix(view)?;
    let cols = columns(shape, rows)?;
    let all = packed.saturating_mul(32);
    let bits = match all.checked_div(cols).filter(|_| all.is_multiple_of(cols)) {
        Some(bits @ (2 | 4 | 8)) => bits,
        _ => {
            let problem = format!("expected {cols} codes of 2, 4 or 8 bits in a row");
            return Err(view.error(format!("{problem}, found {packed} words")));
        }
    };
    let codes = Codes::ByOutput(words(view, bits, Along::Columns));
    grouped(parts, view, stem, CodeMatrix { rows, cols, codes, bits })
}

/// The weights whose codes are `view`, in signed bytes.
pub(super) fn join_bytes<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    parts.check_method(view, METHODS)?;
    let (rows, cols) = matrix(view)?;
    let codes = Codes::Bytes(view.bytes());
    grouped(parts, view, stem, CodeMatrix { rows, cols, codes, bits: 0 })
}

/// Codes `[rows, cols]` of `bits` bits each; 0 bits stand for signed bytes.
struct CodeMatrix {
    rows: usize,
    cols: usize,
    codes: Codes,
    bits: usize,
}

/// Joins codes with their companion tensors.
fn grouped<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
    CodeMatrix { rows, cols, codes, bits }: CodeMatrix,
) -> Result<TensorView> {
    let scales = parts.need(view, stem, ".weight_scale")?;
    let index = parts.take(stem, ".weight_g_idx");
    let (groups, strides) = match scales.shape[..] {
        [] | [1] | [1, 1] => (1, Strides { group: 0, output: 0 }),
        [count] if count == rows => (1, Strides { group: 0, output: 1 }),
        [count, groups] if count == rows => (groups, Strides { group: 1, output: groups }),
        _ => {
            let problem = format!("expected [{rows}, groups], [{rows}] or [1]");
            return Err(scales.error(format!("{problem}, found {:?}", scales.shape)));
        }
    };
    let zeros = zeros(parts.take(stem, ".weight_zero_point"), (rows, groups), bits)?;
    let size = parts.method.group_inputs(cols, groups);
    let inputs = InputGroups::new(view, cols, groups, size, index);
    let middle = parts.method.is_symmetric() && zeros.are_middle([rows, groups], bits);
    let stored = Stored {
        formats: if bits > 0 { &["pack-quantized"] } else { &["int-quantized", "naive-quantized"] },
        bits: if bits > 0 { bits } else { 8 },
        floats: false,
        shape: [rows, cols],
        scales: [if strides.output > 0 { rows } else { 1 }, groups],
        zeros: match zeros {
            Zeros::Fixed(_) => ZeroPoints::None,
            _ if middle => ZeroPoints::Middle,
            _ => ZeroPoints::Any,
        },
        indexed: index.is_some(),
        ordered: inputs.as_ref().is_ok_and(InputGroups::is_ordered),
    };
    parts.method.check(view, &stored)?;
    let inputs = inputs?;
    let scales = Scales::new(scales, &["f32", "bf16", "f16"])?;
    let grouped = Grouped { codes, zeros, scales, strides, inputs, groups, cols };
    Ok(grouped.into_view(view, format!("{stem}.weight"), rows))
}

fn zeros(view: Option<&TensorView>, (rows, groups): (usize, usize), bits: usize) -> Result<Zeros> {
    let middle = if bits == 0 { 0 } else { 1i16 << (bits - 1) };
    let Some(view) = view else { return Ok(Zeros::Fixed(middle)) };
    if view.ty.name == "i32" && bits > 0 {
        check_shape(view, &[&[rows.saturating_mul(bits).div_ceil(32), groups]])?;
        return Ok(Zeros::ByOutput(words(view, bits, Along::Rows)));
    }
    check_type(view, &["i8"])?;
    if view.elements() != rows.saturating_mul(groups) || view.shape.first() != Some(&rows) {
        let problem = format!("expected shape [{rows}, {groups}], found {:?}", view.shape);
        return Err(view.error(problem));
    }
    let bytes = view.bytes();
    let within = |zero: &u8| bits == 0 || (-middle..middle).contains(&i16::from(*zero as i8));
    if !bytes.read(0..bytes.len()).iter().all(within) {
        return Err(view.error(format!("expected zero points of {bits} bits, found larger ones")));
    }
    Ok(Zeros::Bytes(bytes, middle))
}

/// Inputs according to `weight_shape`, which has to have `rows` outputs.
fn columns(view: &TensorView, rows: usize) -> Result<usize> {
    check_type(view, &["i64", "i32"])?;
    check_shape(view, &[&[2]])?;
    let bytes = view.bytes();
    let bytes = bytes.read(0..bytes.len());
    let mut sizes = bytes.chunks_exact(view.ty.block_bytes).map(|size| {
        let sign = if size[size.len() - 1] < 128 { 0 } else { 255 };
        let mut wide = [sign; 8];
        wide[..size.len()].copy_from_slice(size);
        usize::try_from(i64::from_le_bytes(wide)).ok().filter(|size| (1..1 << 32).contains(size))
    });
    match (sizes.next().flatten(), sizes.next().flatten()) {
        (Some(outputs), Some(inputs)) if outputs == rows => Ok(inputs),
        _ => Err(view.error(format!("expected {rows} outputs and their inputs, found others"))),
    }
}
