//! Elementwise operations.

use crate::gpu::{Access, Kernel};
use crate::parts::{EACH, EXP_TO_ONE, SIGMOID, dealt};
use crate::webgpu::held::device::WebGpu;
use crate::wgsl::{numbers, params};
use backend::{Buffer, Gate, MapOp};

/// Gates of MLPs, on [`SIGMOID`] and the numbers of [`gate`].
pub(crate) const GATED: &str = include_str!("../shaders/gated.wgsl");

static MAP: Kernel = Kernel {
    name: "map",
    source: &[
        MapParams::WGSL,
        op::WGSL,
        gate::WGSL,
        include_str!("../shaders/map.wgsl"),
        GATED,
        SIGMOID,
        EXP_TO_ONE,
        EACH,
    ],
    bindings: &[Access::Write, Access::Write, Access::Write],
};

numbers! {
    /// Numbers of the operations.
    mod op, "MAP_": ACTIVATE = 0, GATE = 1, ADD = 2, ADD_BIAS = 3, SCALE = 4, SCALE_BY_SIGMOID = 5,
    SOFT_CAP = 6, SCALE_BY_SOFTPLUS = 7, SCALE_BY_LINES = 8
}

numbers! {
    /// Numbers of gates.
    mod gate, "GATE_": SILU = 0, CLAMPED = 1, SILU_CLAMPED = 2, SIGMOID = 3, GELU_TANH = 4,
    PRODUCT = 5, RELU_SQUARED = 6, GELU = 7, SILU_THEN_CLAMPED = 8
}

params! {
    struct MapParams {
        count: u32,
        /// Values to a row of the other operand, or to one of its values.
        width: u32,
        op: u32,
        gate: u32,
        /// Slope of the gate, factor or cap.
        a: f32,
        /// Limit of the gate.
        b: f32,
        /// Lines, and values to a row of what they are of.
        parts: u32,
        stride: u32,
    }
}

/// Number, slope and limit of a gate.
pub(crate) fn gate_kind(gate: Gate) -> (u32, f32, f32) {
    match gate {
        Gate::Silu => (gate::SILU, 0.0, 0.0),
        Gate::Clamped { alpha, limit } => (gate::CLAMPED, alpha, limit),
        Gate::SiluClamped { limit } => (gate::SILU_CLAMPED, 0.0, limit),
        Gate::SiluThenClamped { limit } => (gate::SILU_THEN_CLAMPED, 0.0, limit),
        Gate::Sigmoid => (gate::SIGMOID, 0.0, 0.0),
        Gate::GeluTanh => (gate::GELU_TANH, 0.0, 0.0),
        Gate::Product => (gate::PRODUCT, 0.0, 0.0),
        Gate::ReluSquared => (gate::RELU_SQUARED, 0.0, 0.0),
        Gate::Gelu => (gate::GELU, 0.0, 0.0),
    }
}

impl WebGpu {
    pub(crate) fn map_values(&mut self, map: MapOp, x: Buffer, rows: usize) {
        let operand = &self.buffers[x.0];
        let count = rows * operand.width;
        let of = |buffer: Buffer| &self.buffers[buffer.0].words;
        let plain = |op, a| (op, (0, a, 0.0));
        let ((op, (gate, a, b)), y) = match map {
            MapOp::Activate(gate) => ((op::ACTIVATE, gate_kind(gate)), &operand.words),
            MapOp::Gate(gate, y) => ((op::GATE, gate_kind(gate)), of(y)),
            MapOp::Add(y) => (plain(op::ADD, 0.0), of(y)),
            MapOp::AddBias(bias) => (plain(op::ADD_BIAS, 0.0), &self.vectors[bias.0]),
            MapOp::Scale(factor) => (plain(op::SCALE, factor), &operand.words),
            MapOp::ScaleBySigmoid(gate) => (plain(op::SCALE_BY_SIGMOID, 0.0), of(gate)),
            MapOp::ScaleBySoftplus(gate) => (plain(op::SCALE_BY_SOFTPLUS, 0.0), of(gate)),
            MapOp::ScaleByLines(y, _) => (plain(op::SCALE_BY_LINES, 0.0), of(y)),
            MapOp::SoftCap(cap) => (plain(op::SOFT_CAP, cap), &operand.words),
        };
        let (lines, parts, stride) = match map {
            MapOp::ScaleByLines(y, lines) => {
                let lines = &self.vectors[lines.0];
                (lines, lines.len() / 2, self.buffers[y.0].width)
            }
            _ => (&operand.words, 1, 1),
        };
        let width = match map {
            MapOp::ScaleBySigmoid(gate) | MapOp::ScaleBySoftplus(gate) => {
                operand.width / self.buffers[gate.0].width
            }
            _ => operand.width / parts,
        };
        let [width, parts, stride] = [width, parts, stride].map(|count| count as u32);
        let params = MapParams { count: count as u32, width, op, gate, a, b, parts, stride };
        self.gpu.run(&MAP, dealt(count), &[&operand.words, y, lines], &params);
    }
}
