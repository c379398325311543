// An f16 scale for each block, two to a word.
const SCALE_WORDS = 4u;
const HALVES = false;
const MINIMA = false;

fn scales(at: u32, n: u32, block: u32) -> Scales {
    let scale = unpack2x16float(weights[at + block / 2u * n])[block % 2u];
    return Scales(vec2(scale), vec2(0.0));
}
