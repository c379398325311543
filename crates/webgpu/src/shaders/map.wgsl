// x = f(x), or f(x, y) where y is of the same shape, of each row, or the same for all rows.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
// x itself where the operation has no other operand.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
// Slopes and bases of lines; x itself likewise.
@group(0) @binding(2) var<storage, read_write> lines: array<f32>;

fn each(i: u32) {
    switch params.op {
        case MAP_ACTIVATE: { x[i] = gated(params.gate, params.a, params.b, x[i], 1.0); }
        case MAP_GATE: { x[i] = gated(params.gate, params.a, params.b, x[i], y[i]); }
        case MAP_ADD: { x[i] += y[i]; }
        case MAP_ADD_BIAS: { x[i] += y[i % params.width]; }
        case MAP_SCALE_BY_SIGMOID: { x[i] *= sigmoid(y[i / params.width]); }
        case MAP_SCALE_BY_SOFTPLUS: { x[i] *= softplus(y[i / params.width]); }
        case MAP_SCALE_BY_LINES: {
            let part = i / params.width;
            let at = y[part / params.parts * params.stride];
            let line = part % params.parts;
            x[i] *= lines[line] * at + lines[params.parts + line];
        }
        // cap * tanh(x / cap)
        case MAP_SOFT_CAP: { x[i] = 2.0 * params.a * sigmoid(2.0 * x[i] / params.a) - params.a; }
        default: { x[i] *= params.a; }
    }
}
