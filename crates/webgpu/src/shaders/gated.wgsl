// Gates of MLPs.
fn sigmoid(x: f32) -> f32 {
    let small = exp_to_one(-abs(x));
    return select(small, 1.0, x >= 0.0) / (1.0 + small);
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
        default: { return sigmoid(gate) * up; }
    }
}
