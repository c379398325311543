// Gates of MLPs, and the functions that they are made of.
fn sigmoid(x: f32) -> f32 {
    let small = exp_to_one(-abs(x));
    return select(small, 1.0, x >= 0.0) / (1.0 + small);
}

// The logarithm of 1 + exp(x): the larger of x and 0, plus twice the inverse hyperbolic tangent of
// e / (2 + e), where e = exp(-|x|), by its series. Logarithms of devices are coarse near 1.
fn softplus(x: f32) -> f32 {
    let e = exp_to_one(-abs(x));
    let s = e / (2.0 + e);
    let square = s * s;
    var sum = 1.0 / 17.0;
    sum = fma(sum, square, 1.0 / 15.0);
    sum = fma(sum, square, 1.0 / 13.0);
    sum = fma(sum, square, 1.0 / 11.0);
    sum = fma(sum, square, 1.0 / 9.0);
    sum = fma(sum, square, 1.0 / 7.0);
    sum = fma(sum, square, 1.0 / 5.0);
    sum = fma(sum, square, 1.0 / 3.0);
    sum = fma(sum, square, 1.0);
    return fma(2.0 * s, sum, max(x, 0.0));
}

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
        case 0u: { return gate * sigmoid(gate) * up; }
        case 1u: {
            let low = min(gate, limit);
            return low * sigmoid(alpha * low) * (clamp(up, -limit, limit) + 1.0);
        }
        case 2u: {
            let low = min(gate, limit);
            return low * sigmoid(low) * clamp(up, -limit, limit);
        }
        case 4u: {
            // (1 + tanh(y)) / 2 is the sigmoid of 2 y.
            let slope = fma(gate * gate, 0.044715 * 1.5957691, 1.5957691);
            return gate * sigmoid(gate * slope) * up;
        }
        case 5u: { return gate * up; }
        case 6u: {
            let positive = max(gate, 0.0);
            return positive * positive * up;
        }
        case 7u: { return gelu(gate) * up; }
        default: { return sigmoid(gate) * up; }
    }
}
