// Gates of MLPs.

// The error function by a polynomial of t = 1 / (1 + x / 2), as on CPUs.
fn gelu(x: f32) -> f32 {
    let distance = min(abs(x), 14.0);
    let far = distance * 0.70710678;
    let t = 1.0 / fma(far, 0.5, 1.0);
    var sum = -0.15300614;
    sum = fma(sum, t, 1.0375311);
    sum = fma(sum, t, -2.9576526);
    sum = fma(sum, t, 4.492053);
    sum = fma(sum, t, -3.7949107);
    sum = fma(sum, t, 1.8217874);
    sum = fma(sum, t, -0.7776201);
    sum = fma(sum, t, 0.24408712);
    sum = fma(sum, t, 0.35131845);
    sum = fma(sum, t, 1.0019976);
    sum = fma(sum, t, -1.2655854);
    let less = 0.5 * distance * t * exp_to_one(min(fma(-far, far, sum), 0.0));
    return max(x, 0.0) - less;
}

fn gated(kind: u32, alpha: f32, limit: f32, gate: f32, up: f32) -> f32 {
    switch kind {
        case GATE_SILU: { return gate * sigmoid(gate) * up; }
        case GATE_CLAMPED: {
            let low = min(gate, limit);
            return low * sigmoid(alpha * low) * (clamp(up, -limit, limit) + 1.0);
        }
        case GATE_SILU_CLAMPED: {
            let low = min(gate, limit);
            return low * sigmoid(low) * clamp(up, -limit, limit);
        }
        case GATE_SILU_THEN_CLAMPED: {
            return min(gate * sigmoid(gate), limit) * clamp(up, -limit, limit);
        }
        case GATE_GELU_TANH: {
            // (1 + tanh(y)) / 2 is the sigmoid of 2 y.
            let slope = fma(gate * gate, 0.044715 * 1.5957691, 1.5957691);
            return gate * sigmoid(gate * slope) * up;
        }
        case GATE_PRODUCT: { return gate * up; }
        case GATE_RELU_SQUARED: {
            let positive = max(gate, 0.0);
            return positive * positive * up;
        }
        case GATE_GELU: { return gelu(gate) * up; }
        default: { return sigmoid(gate) * up; }
    }
}
