//! Residual streams of hyper-connections.

use crate::gpu::{Access, Kernel};
use crate::parts::{EACH, EXP_TO_ONE, LANES, SIGMOID, dealt, workgroups};
use crate::webgpu::held::device::WebGpu;
use crate::wgsl::{numbers, params};
use backend::{Buffer, Error, HyperSpec, StreamFactors};

/// Most streams that the kernels mix.
const MAX_STREAMS: usize = 16;

static SPREAD: Kernel = Kernel {
    name: "streams_spread",
    source: &[SpreadParams::WGSL, include_str!("../shaders/streams_spread.wgsl"), EACH],
    bindings: &[Access::Write, Access::Write],
};
static FACTORS: Kernel = Kernel {
    name: "streams_factors",
    source: &[
        FactorParams::WGSL,
        kinds::WGSL,
        include_str!("../shaders/streams_factors.wgsl"),
        SIGMOID,
        EXP_TO_ONE,
    ],
    bindings: &[Access::Write, Access::Read, Access::Read, Access::Write],
};
static READ: Kernel = Kernel {
    name: "streams_read",
    source: &[MixParams::WGSL, include_str!("../shaders/streams_read.wgsl"), EACH],
    bindings: &[Access::Write, Access::Write, Access::Write],
};
static WRITE: Kernel = Kernel {
    name: "streams_write",
    source: &[MixParams::WGSL, include_str!("../shaders/streams_write.wgsl"), EACH],
    bindings: &[Access::Write, Access::Write, Access::Write],
};

static GATE: Kernel = Kernel {
    name: "streams_gate",
    source: &[
        GateParams::WGSL,
        include_str!("../shaders/streams_gate.wgsl"),
        SIGMOID,
        EXP_TO_ONE,
        LANES,
    ],
    bindings: &[Access::Write, Access::Write, Access::Write, Access::Write],
};

params! {
    struct GateParams {
        /// Streams of all rows, and of each.
        count: u32,
        streams: u32,
        width: u32,
    }
}

params! {
    struct SpreadParams {
        count: u32,
        width: u32,
        streams: u32,
    }
}

numbers! {
    /// Numbers of what factors are of.
    mod kinds, "FACTORS_": ALL = 0, APART = 1, HEAD = 2
}

params! {
    struct FactorParams {
        rows: u32,
        streams: u32,
        iterations: u32,
        kind: u32,
        magnitude: f32,
        width: u32,
        out_width: u32,
        eps: f32,
    }
}

params! {
    struct MixParams {
        count: u32,
        width: u32,
        streams: u32,
        factors_width: u32,
    }
}

/// Checks a number of streams.
fn check(streams: usize) -> Result<(), Error> {
    if (1..=MAX_STREAMS).contains(&streams) {
        return Ok(());
    }
    Err(Error::Device(format!("device wgpu: {streams} residual streams are not supported")))
}

impl WebGpu {
    /// Copies each row of `x`, `[rows, width]`, into every stream of `out`,
    /// `[rows, streams * width]`.
    pub(crate) fn spread(&mut self, x: Buffer, out: Buffer, rows: usize) {
        let (from, to) = (&self.buffers[x.0], &self.buffers[out.0]);
        let count = rows * to.width;
        let params = SpreadParams {
            count: count as u32,
            width: from.width as u32,
            streams: (to.width / from.width) as u32,
        };
        let bound = [&from.words, &to.words];
        self.gpu.run(&SPREAD, dealt(count), &bound, &params);
    }

    /// Computes the factors of each row: `z` and `out` are `[rows, (2 + streams) * streams]`, or
    /// `[rows, streams]` for the head.
    pub(crate) fn factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize) {
        if let Err(error) = check(spec.streams) {
            return self.note(Err(error));
        }
        let (from, to) = (&self.buffers[z.0], &self.buffers[out.0]);
        let (kind, magnitude) = match spec.kind {
            StreamFactors::All => (kinds::ALL, 2.0),
            StreamFactors::Apart { magnitude } => (kinds::APART, magnitude),
            StreamFactors::Head => (kinds::HEAD, 0.0),
        };
        let params = FactorParams {
            rows: rows as u32,
            streams: spec.streams as u32,
            // The first pass over the columns is always made.
            iterations: spec.iterations.max(1) as u32,
            kind,
            magnitude,
            width: from.width as u32,
            out_width: to.width as u32,
            eps: spec.eps,
        };
        let (base, scale) = (&self.vectors[spec.base.0], &self.vectors[spec.scale.0]);
        let bound = [&from.words, base, scale, &to.words];
        self.gpu.run(&FACTORS, workgroups(rows), &bound, &params);
    }

    /// `out = sum of factors[s] * x[s]`: `x` is `[rows, streams * width]`, `out` `[rows, width]`.
    pub(crate) fn mix_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize) {
        let params = self.stream_params([x, factors, out], rows);
        let bound = [x, factors, out].map(|buffer| &self.buffers[buffer.0].words);
        self.gpu.run(&READ, dealt(params.count as usize), &bound, &params);
    }

    /// `x[d] = post[d] * y + sum of C[s][d] * x[s]`: `x` is `[rows, streams * width]`, `y`
    /// `[rows, width]`.
    pub(crate) fn update_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize) {
        let params = self.stream_params([x, factors, y], rows);
        if let Err(error) = check(params.streams as usize) {
            return self.note(Err(error));
        }
        let bound = [x, factors, y].map(|buffer| &self.buffers[buffer.0].words);
        self.gpu.run(&WRITE, dealt(params.count as usize), &bound, &params);
    }

    /// Gates `values`, `[rows, width]`, for each stream by its key and query.
    pub(crate) fn gate(&mut self, [keys, queries, values]: [Buffer; 3], out: Buffer, rows: usize) {
        let (width, all) = (self.buffer_of(values).width, self.buffer_of(out).width);
        let streams = all / width;
        let params = GateParams {
            count: (rows * streams) as u32,
            streams: streams as u32,
            width: width as u32,
        };
        let bound = [keys, queries, values, out].map(|buffer| &self.buffers[buffer.0].words);
        self.gpu.run(&GATE, workgroups(rows * streams), &bound, &params);
    }

    /// Values of `y`, its width, the number of streams, and the width of the factors.
    fn stream_params(&self, [x, factors, y]: [Buffer; 3], rows: usize) -> MixParams {
        let width = |buffer: Buffer| self.buffer_of(buffer).width;
        MixParams {
            count: (rows * width(y)) as u32,
            width: width(y) as u32,
            streams: (width(x) / width(y)) as u32,
            factors_width: width(factors) as u32,
        }
    }
}
