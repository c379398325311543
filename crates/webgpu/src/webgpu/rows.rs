//! Operations on rows by themselves: norms, columns of heads, rotations, copies.

use crate::gpu::{Access, Kernel};
use crate::parts::{EACH, LANES, dealt, workgroups};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::rotation::Rotation;
use crate::wgsl::params;
use backend::{Buffer, HeadColumns, LongRows, Pairs, RmsNorm, Rope};

static NORM: Kernel = Kernel {
    name: "norm",
    source: &[NormParams::WGSL, include_str!("../shaders/norm.wgsl"), LANES],
    bindings: &[Access::Write, Access::Read, Access::Write],
};
static CENTER: Kernel = Kernel {
    name: "center",
    source: &[CenterParams::WGSL, include_str!("../shaders/center.wgsl"), LANES],
    bindings: &[Access::Write, Access::Write],
};
static HEADS: Kernel = Kernel {
    name: "heads",
    source: &[HeadsParams::WGSL, include_str!("../shaders/heads.wgsl"), EACH],
    bindings: &[Access::Write, Access::Write],
};
static ROTATE: Kernel = Kernel {
    name: "rotate",
    source: &[RotateParams::WGSL, include_str!("../shaders/rotate.wgsl"), EACH],
    bindings: &[Access::Write, Access::Read],
};
static GATHER: Kernel = Kernel {
    name: "gather",
    source: &[GatherParams::WGSL, include_str!("../shaders/gather.wgsl"), EACH],
    bindings: &[Access::Write, Access::Read, Access::Write],
};

params! {
    struct CenterParams {
        rows: u32,
        width: u32,
    }
}

params! {
    struct NormParams {
        units: u32,
        len: u32,
        eps: f32,
        row_units: u32,
        /// Values of the weight, which is that of one unit or of several.
        weights: u32,
        x_row: u32,
        out_row: u32,
    }
}

params! {
    struct HeadsParams {
        count: u32,
        width: u32,
        heads: u32,
        from_width: u32,
        from_first: u32,
        from_stride: u32,
        to_width: u32,
        to_first: u32,
        to_stride: u32,
    }
}

params! {
    struct RotateParams {
        count: u32,
        pairs: u32,
        heads: u32,
        width: u32,
        first: u32,
        stride: u32,
        interleaved: u32,
        sign: f32,
    }
}

params! {
    struct GatherParams {
        count: u32,
        width: u32,
        rows_at: u32,
    }
}

impl WebGpu {
    /// Number of heads in the columns of a buffer.
    pub(crate) fn heads_of(&self, x: HeadColumns) -> usize {
        (self.buffer_of(x.buffer).width - x.first).div_ceil(x.stride)
    }

    pub(crate) fn normalise(
        &mut self,
        [x, out]: [Buffer; 2],
        RmsNorm { weight, unit: len, eps }: RmsNorm,
        rows: usize,
    ) {
        let weights = self.vectors[weight.0].len();
        let (x_row, out_row) = (self.buffer_of(x).width, self.buffer_of(out).width);
        let row_units = x_row.min(out_row) / len;
        let units = rows * row_units;
        let params = NormParams {
            units: units as u32,
            len: len as u32,
            eps,
            row_units: row_units as u32,
            weights: weights as u32,
            x_row: x_row as u32,
            out_row: out_row as u32,
        };
        let bound = [&self.buffers[x.0].words, &self.vectors[weight.0], &self.buffers[out.0].words];
        self.gpu.run(&NORM, workgroups(units), &bound, &params);
    }

    /// `out = x - mean(x)` of each row.
    pub(crate) fn center_rows(&mut self, x: Buffer, out: Buffer, rows: usize) {
        let width = self.buffer_of(x).width;
        let bound = [&self.buffers[x.0].words, &self.buffers[out.0].words];
        let params = CenterParams { rows: rows as u32, width: width as u32 };
        self.gpu.run(&CENTER, workgroups(rows), &bound, &params);
    }

    pub(crate) fn columns(&mut self, x: HeadColumns, width: usize, out: HeadColumns, rows: usize) {
        let heads = self.heads_of(x).min(self.heads_of(out));
        let count = rows * heads * width;
        let (from, to) = (&self.buffers[x.buffer.0], &self.buffers[out.buffer.0]);
        let params = HeadsParams {
            count: count as u32,
            width: width as u32,
            heads: heads as u32,
            from_width: from.width as u32,
            from_first: x.first as u32,
            from_stride: x.stride as u32,
            to_width: to.width as u32,
            to_first: out.first as u32,
            to_stride: out.stride as u32,
        };
        let bound = [&from.words, &to.words];
        self.gpu.run(&HEADS, dealt(count), &bound, &params);
    }

    /// Computes the angles of positions, as for every device.
    pub(crate) fn set_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>) {
        let Rotation { frequencies, angles, .. } = &self.ropes[rope.0];
        let mut values = vec![0.0; 2 * positions.len() * frequencies.len()];
        if frequencies.is_empty() {
            return;
        }
        let each = values.chunks_exact_mut(2 * frequencies.len());
        for ((row, position), values) in positions.iter().enumerate().zip(each) {
            let used = &self.ropes[long.of_row(row).unwrap_or(rope).0];
            let (cos, sin) = values.split_at_mut(frequencies.len());
            let magnitude = used.magnitude.at(*position);
            kernels::rope::angles(*position, &used.frequencies, magnitude, cos, sin);
        }
        self.gpu.submit();
        self.gpu.write(angles, 0, bytemuck::cast_slice(&values));
    }

    /// Rotates the heads of each row by its angles times `sign`.
    pub(crate) fn turn(&mut self, x: HeadColumns, rope: Rope, rows: usize, sign: f32) {
        let heads = self.heads_of(x);
        let (buffer, rotation) = (&self.buffers[x.buffer.0], &self.ropes[rope.0]);
        let pairs = rotation.frequencies.len();
        let count = rows * heads * pairs;
        if count == 0 {
            return;
        }
        let params = RotateParams {
            count: count as u32,
            pairs: pairs as u32,
            heads: heads as u32,
            width: buffer.width as u32,
            first: x.first as u32,
            stride: x.stride as u32,
            interleaved: u32::from(rotation.pairs == Pairs::Interleaved),
            sign,
        };
        let bound = [&buffer.words, &rotation.angles];
        self.gpu.run(&ROTATE, dealt(count), &bound, &params);
    }

    pub(crate) fn pick(&mut self, x: Buffer, rows: &[u32], out: Buffer) {
        let width = self.buffer_of(x).width;
        let rows_at = self.gpu.send(rows);
        let (count, inbox) = (rows.len() * width, self.gpu.inbox());
        let bound = [&self.buffers[x.0].words, &inbox, &self.buffers[out.0].words];
        let params = GatherParams { count: count as u32, width: width as u32, rows_at };
        self.gpu.run(&GATHER, dealt(count), &bound, &params);
    }
}
