// BF16, two to a word.
const FLOAT_WORDS = 4u;

fn values(at: u32, n: u32) -> Weights {
    let words = vec4(weights[at], weights[at + n], weights[at + 2u * n], weights[at + 3u * n]);
    let even = bitcast<vec4<f32>>(words << vec4(16u));
    let odd = bitcast<vec4<f32>>(words & vec4(0xffff0000u));
    return Weights(vec4(even.x, odd.x, even.y, odd.y), vec4(even.z, odd.z, even.w, odd.w));
}
