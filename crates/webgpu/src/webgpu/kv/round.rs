//! Rounding of heads as plain rows are rounded.

use crate::gpu::{Access, Kernel};
use crate::parts::workgroups;
use crate::webgpu::held::device::WebGpu;
use crate::wgsl::params;
use backend::{Error, HeadColumns, Rounding};

/// Source that rounds values under the scale of their block.
pub(crate) const ROUNDING: &str = include_str!("../../shaders/rounding.wgsl");

/// Most values that are transformed, as in `shaders/round_heads.wgsl`.
const MAX_TRANSFORMED: usize = 2048;

static ROUND: Kernel = Kernel {
    name: "round_heads",
    source: &[RoundParams::WGSL, include_str!("../../shaders/round_heads.wgsl"), ROUNDING],
    bindings: &[Access::Write],
};

params! {
    struct RoundParams {
        units: u32,
        heads: u32,
        row_width: u32,
        first: u32,
        stride: u32,
        rounded: u32,
        kind: u32,
        transform: u32,
        /// Factor of transformed values.
        factor: f32,
    }
}

/// Number of rounded values of a head of `width` values, kind of their codes as
/// `shaders/rounding.wgsl` numbers it, and the factor of their transform if there is one.
pub(crate) fn codes(rounding: Rounding, width: usize) -> (usize, u32, Option<f32>) {
    match rounding {
        Rounding::None => (0, 0, None),
        Rounding::Fp8 { rotated } => (width - rotated, 0, None),
        Rounding::Fp4 => (width, 1, Some((1.0 / (width as f64).sqrt()) as f32)),
    }
}

impl WebGpu {
    /// Rounds the first `width` columns of each head of `x`.
    pub(crate) fn round_heads(
        &mut self,
        x: HeadColumns,
        width: usize,
        rounding: Rounding,
        rows: usize,
    ) {
        let fits = rounding != Rounding::Fp4 || width <= MAX_TRANSFORMED;
        if !rounding.fits(width) || !fits {
            let problem = format!("{rounding:?} of {width} values cannot be computed");
            return self.note(Err(Error::Device(problem)));
        }
        let (rounded, kind, factor) = codes(rounding, width);
        let heads = self.heads_of(x);
        let units = rows * heads;
        if rounded == 0 || units == 0 {
            return;
        }
        let buffer = &self.buffers[x.buffer.0];
        let params = RoundParams {
            units: units as u32,
            heads: heads as u32,
            row_width: buffer.width as u32,
            first: x.first as u32,
            stride: x.stride as u32,
            rounded: rounded as u32,
            kind,
            transform: u32::from(factor.is_some()),
            factor: factor.unwrap_or(1.0),
        };
        let bound = [&buffer.words];
        self.gpu.run(&ROUND, workgroups(units), &bound, &params);
    }
}
