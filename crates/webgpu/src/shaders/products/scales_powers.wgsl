// A BF16 scale for each block, two to a word.
const SCALE_WORDS = 4u;
const HALVES = false;
const MINIMA = false;

fn scales(at: u32, n: u32, block: u32) -> Scales {
    let word = weights[at + block / 2u * n];
    let scale = bitcast<f32>(select(word << 16u, word & 0xffff0000u, block % 2u == 1u));
    return Scales(vec2(scale), vec2(0.0));
}
