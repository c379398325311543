//! Operations on each value by itself.

use crate::handles::{Buffer, Gate, Vector};

/// An elementwise operation on rows `x`, `[rows, width]`, in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MapOp {
    /// `x = f(x, 1)` with the function of a gate.
    Activate(Gate),
    /// `x = f(x, y)` with the function of a gate; `y` is `[rows, width]`.
    Gate(Gate, Buffer),
    /// `x += y`; `y` is `[rows, width]`.
    Add(Buffer),
    /// `x += bias` for each row; the bias is `[width]`.
    AddBias(Vector),
    /// `x = x * factor`.
    Scale(f32),
    /// `x[i] = x[i] * sigmoid(gate[i / len])`; the gate is `[rows, parts]`, of which each gates
    /// `len = width / parts` values.
    ScaleBySigmoid(Buffer),
    /// `x[i] = x[i] * ln(1 + exp(gate[i / len]))`, of the same gate.
    ScaleBySoftplus(Buffer),
    /// `x[i] = x[i] * (lines[part] * at + lines[parts + part])`, where `part = i / len`: `at` is
    /// the first value of a row of the buffer, and the vector, `[2 * parts]`, has the slopes and
    /// then the bases of lines, of which each is of `len = width / parts` values.
    ScaleByLines(Buffer, Vector),
    /// `x = cap * tanh(x / cap)`.
    SoftCap(f32),
}

impl MapOp {
    /// Name in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Activate(_) => "activate",
            Self::Gate(..) => "apply_gate",
            Self::Add(_) => "add",
            Self::AddBias(_) => "add_bias",
            Self::Scale(_) => "scale",
            Self::ScaleBySigmoid(_) => "scale_by_sigmoid",
            Self::ScaleBySoftplus(_) => "scale_by_softplus",
            Self::ScaleByLines(..) => "scale_by_lines",
            Self::SoftCap(_) => "soft_cap",
        }
    }
}
