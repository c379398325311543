// gate = f(gate + bias, up + bias) of each slot, or f(gate, 1) where experts are plain. Weights of
// inputs are factors of both products.
@group(0) @binding(0) var<storage, read_write> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> plan: array<u32>;
@group(0) @binding(3) var<storage, read> gate_bias: array<f32>;
@group(0) @binding(4) var<storage, read> up_bias: array<f32>;

fn each(i: u32) {
    let slot = i / params.width;
    if slot >= plan[0] {
        return;
    }
    var both = vec2(gate[i], 0.0);
    if params.plain == 0u {
        both.y = up[i];
    }
    if params.weighed != 0u {
        both *= bitcast<f32>(plan[params.weights_at + slot]);
    }
    if params.biased != 0u {
        let at = plan[params.experts_at + slot] * params.width + i % params.width;
        both += vec2(gate_bias[at], up_bias[at]);
    }
    let other = select(both.y, 1.0, params.plain != 0u);
    gate[i] = gated(params.kind, params.alpha, params.limit, both.x, other);
}
