// Byte scales of blocks, or of their halves, under an f16 factor; minima under another. The word of
// the factors, then the bytes of scales, then those of minima.
// A form defines HALVES, MINIMA, SCALE_WORDS, and STEP_WORDS, the words of the bytes of scales.
// Bytes of a block, or of its halves.
fn steps(at: u32, n: u32, block: u32) -> vec2<f32> {
    if HALVES {
        return vec2(byte_of(at, n, 2u * block), byte_of(at, n, 2u * block + 1u));
    }
    return vec2(byte_of(at, n, block));
}

fn scales(at: u32, n: u32, block: u32) -> Scales {
    let factors = unpack2x16float(weights[at]);
    var low = vec2(0.0);
    if MINIMA {
        low = factors.y * steps(at + (1u + STEP_WORDS) * n, n, block);
    }
    return Scales(factors.x * steps(at + n, n, block), low);
}
