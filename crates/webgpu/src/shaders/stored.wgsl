// Storage types of cached rows, numbered as `Form` in held/cache.rs: 0 F32, 1 BF16, 2 F16, 3 Q8_0.
// A word holds one value of F32, two of BF16 and F16, four codes of Q8_0, the first in its low
// bits.

// The nearest BF16 value, of two as near the even one; NaN stays NaN.
fn bf16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits | 0x400000u) >> 16u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// The nearest F16 value, of two as near the even one; NaN stays NaN.
fn f16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u;
    }
    if magnitude >= 0x47800000u {
        return sign | 0x7c00u;
    }
    if magnitude >= 0x38800000u {
        // The exponent has another bias.
        let moved = magnitude - 0x38000000u;
        return sign | ((moved + 0xfffu + ((moved >> 13u) & 1u)) >> 13u);
    }
    // Below the normal numbers, in steps of 2^-24.
    let shift = 126u - (magnitude >> 23u);
    if shift > 24u {
        return sign;
    }
    let digits = (magnitude & 0x7fffffu) | 0x800000u;
    let half = (1u << (shift - 1u)) - 1u + ((digits >> shift) & 1u);
    return sign | ((digits + half) >> shift);
}

// Values that a word of F32, BF16 or F16 holds.
fn values_per_word(form: u32) -> u32 {
    return select(2u, 1u, form == 0u);
}

// The word of two values of BF16 or F16, or of the first of F32.
fn packed_word(form: u32, low: f32, high: f32) -> u32 {
    switch form {
        case 0u: { return bitcast<u32>(low); }
        case 1u: { return bf16_bits(low) | (bf16_bits(high) << 16u); }
        default: { return f16_bits(low) | (f16_bits(high) << 16u); }
    }
}

// Both values of a word of BF16 or F16; the value of a word of F32 and nothing.
fn unpacked_word(form: u32, word: u32) -> vec2<f32> {
    switch form {
        case 0u: { return vec2(bitcast<f32>(word), 0.0); }
        case 1u: { return vec2(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u)); }
        default: { return unpack2x16float(word); }
    }
}
