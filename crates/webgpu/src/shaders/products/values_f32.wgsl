// f32.
const FLOAT_WORDS = 8u;

fn values(at: u32, n: u32) -> Weights {
    let a = vec4(weights[at], weights[at + n], weights[at + 2u * n], weights[at + 3u * n]);
    let b = vec4(
        weights[at + 4u * n],
        weights[at + 5u * n],
        weights[at + 6u * n],
        weights[at + 7u * n],
    );
    return Weights(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(b));
}
