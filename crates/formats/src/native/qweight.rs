//! `X.qweight`, `X.qzeros` and `X.scales`: GPTQ, AWQ, and words without AWQ's interleave.
//!
//! All have scales `[groups, outputs]` and zero points `[groups, outputs * bits / 32]`, packed
//! along outputs.
//!
//! - `quant_method: gptq`: codes `[inputs * bits / 32, outputs]`, packed along inputs, lowest bits
//!   first. Zero points are stored less one, unless `checkpoint_format` is `gptq_v2`. `X.g_idx` is
//!   the group of each input, if they are not in order.
//! - `quant_method: awq` (`version: gemm`): codes `[inputs, outputs / 8]`, packed along outputs in
//!   AutoAWQ's order.
//! - no `quant_method`: the same, packed along outputs, lowest bits first.
//!
//! The number of bits and the size of groups follow from the shapes.

use super::grouped::{Codes, Grouped, Strides, Zeros, words};
use super::order::InputGroups;
use super::scales::Scales;
use super::words::Along;
use super::{Parts, check_shape, check_type, matrix};
use crate::error::Result;
use crate::tensor::TensorView;

/// How words are packed.
struct QweightLayout {
    codes: Along,
    zeros: Along,
    /// Added to stored zero points.
    more: i16,
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
    if let Some(said) = parts.method.bits.filter(|said| *said != bits) {
        let problem = format!("expected {said} bits, as config.json has it, found {bits}");
        return Err(zeros.error(problem));
    }
    let by_input = layout.codes == Along::Rows;
    if !by_input && bits != 4 {
        return Err(view.error(format!("expected 4 bits, found {bits}")));
    }
    let per = 32 / bits;
    check_shape(zeros, &[&[groups, outputs / per]])?;
    let (words_down, _) = matrix(view)?;
    let cols = if by_input { words_down.saturating_mul(per) } else { words_down };
    check_shape(view, &[&[words_down, if by_input { outputs } else { outputs / per }]])?;
    let grouped = Grouped {
        inputs: InputGroups::new(view, (cols, groups), parts.method.group, index)?,
        codes: Codes::ByInput(words(view, bits, layout.codes)),
        zeros: Zeros::ByGroup(words(zeros, bits, layout.zeros), layout.more),
        scales: Scales::new(scales, &["f16", "bf16", "f32"])?,
        strides: Strides { group: outputs, output: 1 },
        groups,
        cols,
    };
    Ok(grouped.into_view(view, format!("{stem}.weight"), outputs))
}

fn layout(parts: &Parts, view: &TensorView) -> Result<QweightLayout> {
    let method = &parts.method;
    let gptq = |more| QweightLayout { codes: Along::Rows, zeros: Along::Columns, more };
    let both = |along| QweightLayout { codes: along, zeros: along, more: 0 };
    let refused = |what: &str, found: &str| {
        Err(view.error(format!("expected {what}, found {}", crate::error::shown(found))))
    };
    match method.name.as_deref() {
        Some("gptq") => match method.format.as_deref() {
            None | Some("gptq") => Ok(gptq(1)),
            Some("gptq_v2") => Ok(gptq(0)),
            Some(other) => refused("checkpoint_format gptq or gptq_v2", other),
        },
        Some("awq") => match method.version.as_deref() {
            None | Some("gemm") => Ok(both(Along::Interleaved)),
            Some(other) => refused("version gemm of AWQ", other),
        },
        None => Ok(both(Along::Columns)),
        Some(_) => Err(method.unknown(view)),
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
