// E4M3 scales of halves of blocks under an f32 factor: the factor, then the scales.
const SCALE_WORDS = 5u;
const HALVES = true;
const MINIMA = false;

// The value of an E4M3 code.
fn e4m3(code: u32) -> f32 {
    let exponent = extractBits(code, 3u, 4u);
    let mantissa = code & 7u;
    var value = f32(mantissa) * 0.001953125;
    if exponent > 0u {
        value = bitcast<f32>(((exponent + 120u) << 23u) | (mantissa << 20u));
    }
    if (code & 127u) == 127u {
        value = bitcast<f32>(0x7f000000u | (code << 18u));
    }
    return select(value, -value, (code & 128u) != 0u);
}

fn scales(at: u32, n: u32, block: u32) -> Scales {
    let word = weights[at + (1u + block / 2u) * n];
    let factor = bitcast<f32>(weights[at]);
    let first = e4m3(extractBits(word, block % 2u * 16u, 8u));
    let second = e4m3(extractBits(word, block % 2u * 16u + 8u, 8u));
    return Scales(vec2(factor * first, factor * second), vec2(0.0));
}
