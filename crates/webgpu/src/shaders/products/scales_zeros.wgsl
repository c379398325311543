// An f32 scale for each block, then the zero points, 16 bits each.
const SCALE_WORDS = 12u;
const HALVES = false;
const MINIMA = true;

fn scales(at: u32, n: u32, block: u32) -> Scales {
    let scale = bitcast<f32>(weights[at + block * n]);
    let word = bitcast<i32>(weights[at + (8u + block / 2u) * n]);
    let zero = extractBits(word, block % 2u * 16u, 16u);
    return Scales(vec2(scale), vec2(scale * f32(zero)));
}
