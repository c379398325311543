//! `X.qweight`, `X.qzeros` and `X.scales`: GPTQ and AWQ.
//!
//! Both have scales `[groups, outputs]` and zero points `[groups, outputs * bits / 32]`, packed
//! along outputs.
//!
//! - `quant_method: gptq`: codes `[inputs * bits / 32, outputs]`, packed along inputs, lowest bits
//!   first. `X.g_idx` is the group of each input, if they are not in order. With the default,
//!   `checkpoint_format: gptq`, the words of zero points have 1 subtracted for each of their
//!   integers, as gptqmodel does it: from the word as a whole, so that a zero point of 0 borrows
//!   from the next. With `gptq_v2` they are as they are.
//! - `quant_method: awq` (`version: gemm`): codes `[inputs, outputs / 8]`, packed along outputs in
//!   AutoAWQ's order.
//!
//! Nothing in the tensors distinguishes these, so that settings must be there. The number of bits
//! and the size of groups follow from the shapes, and must be those of the settings.

use super::grouped::{Codes, Grouped, Strides, Zeros, words};
use super::order::InputGroups;
use super::scales::Scales;
use super::scheme::{Stored, ZeroPoints};
use super::words::{Along, Words};
use crate::error::Result;
use crate::native::parts::{Parts, check_shape, check_type, matrix};
use crate::tensor::TensorView;

/// How words are packed.
struct QweightLayout {
    codes: Along,
    zeros: Along,
    /// Whether words of zero points have ones subtracted.
    less: bool,
}

/// The weights whose codes are in `view`.
pub(super) fn join<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    let layout = layout(parts, view)?;
    let scales = parts.need(view, stem, ".scales")?;
    let zeros = parts.need(view, stem, ".qzeros")?;
    let index = parts.take(stem, ".g_idx");
    check_type(view, &["i32"])?;
    check_type(zeros, &["i32"])?;
    let (groups, outputs) = matrix(scales)?;
    let bits = bits(zeros, outputs)?;
    let by_input = layout.codes == Along::Rows;
    if !by_input && bits != 4 {
        return Err(view.error(format!("expected 4 bits, found {bits}")));
    }
    let per = 32 / bits;
    check_shape(zeros, &[&[groups, outputs / per]])?;
    let cols = inputs(parts, view, by_input, [per, outputs])?;
    let more = if layout.less { Words::ones(bits) } else { 0 };
    let zeros = Words { more, ..words(zeros, bits, layout.zeros) };
    let inputs =
        InputGroups::new(view, cols, groups, parts.method.group_inputs(cols, groups), index);
    let middle = parts.method.is_symmetric() && zeros.are_all(1 << (bits - 1));
    let stored = Stored {
        bits,
        shape: [outputs, cols],
        scales: [outputs, groups],
        zeros: if middle { ZeroPoints::Middle } else { ZeroPoints::Any },
        indexed: index.is_some(),
        ordered: inputs.as_ref().is_ok_and(InputGroups::is_ordered),
        ..Stored::default()
    };
    parts.method.check(view, &stored)?;
    let grouped = Grouped {
        inputs: inputs?,
        codes: Codes::ByInput(words(view, bits, layout.codes)),
        zeros: Zeros::ByGroup(zeros),
        scales: Scales::new(scales, &["f16", "bf16", "f32"])?,
        strides: Strides { group: outputs, output: 1 },
        groups,
        cols,
    };
    Ok(grouped.into_view(view, format!("{stem}.weight"), outputs))
}

/// Inputs of codes that are packed `per` to a word, along inputs or along outputs.
fn inputs(
    parts: &Parts,
    view: &TensorView,
    by_input: bool,
    [per, outputs]: [usize; 2],
) -> Result<usize> {
    let (down, across) = matrix(view)?;
    if across == if by_input { outputs / per } else { outputs } {
        let (expected, found) = match by_input {
            true => ("inputs", "outputs"),
            false => ("outputs", "inputs"),
        };
        let problem = format!("expected codes packed along {expected}, found them along {found}");
        return Err(parts.method.contradiction(view, &problem));
    }
    check_shape(view, &[&[down, if by_input { outputs } else { outputs / per }]])?;
    Ok(if by_input { down.saturating_mul(per) } else { down })
}

fn layout(parts: &Parts, view: &TensorView) -> Result<QweightLayout> {
    let method = &parts.method;
    let gptq = |less| QweightLayout { codes: Along::Rows, zeros: Along::Columns, less };
    let refused = |what: &str, found: &str| {
        Err(view.error(format!("expected {what}, found {}", crate::error::shown(found))))
    };
    match method.name.as_deref() {
        Some("gptq") => match method.format.as_deref() {
            None | Some("gptq") => Ok(gptq(true)),
            Some("gptq_v2") => Ok(gptq(false)),
            Some(other) => refused("checkpoint_format gptq or gptq_v2", other),
        },
        Some("awq") => match method.format.as_deref() {
            None | Some("gemm") => {
                let along = Along::Interleaved;
                Ok(QweightLayout { codes: along, zeros: along, less: false })
            }
            Some(other) => refused("version gemm of AWQ", other),
        },
        _ => Err(method.unknown(view)),
    }
}

/// Bits of a code, from zero points `[groups, outputs * bits / 32]`.
fn bits(zeros: &TensorView, outputs: usize) -> Result<usize> {
    let (_, words) = matrix(zeros)?;
    let bits = words.saturating_mul(32);
    match bits.checked_div(outputs).filter(|_| bits.is_multiple_of(outputs)) {
        Some(bits @ (2 | 4 | 8)) => Ok(bits),
        found => {
            let found =
                found.map_or_else(|| format!("{words} words"), |bits| format!("{bits} bits"));
            let problem = format!("expected 2, 4 or 8 bits for each of {outputs} outputs");
            Err(zeros.error(format!("{problem}, found {found}")))
        }
    }
}
