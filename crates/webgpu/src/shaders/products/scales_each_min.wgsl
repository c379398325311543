// An f16 scale and an f16 minimum for each block, both in one word.
const SCALE_WORDS = 8u;
const HALVES = false;
const MINIMA = true;

fn scales(at: u32, n: u32, block: u32) -> Scales {
    let both = unpack2x16float(weights[at + block * n]);
    return Scales(vec2(both.x), vec2(both.y));
}
