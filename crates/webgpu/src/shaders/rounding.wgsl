// Rounding to E4M3 or E2M1 codes under a power of two for each block of values, as
// kernels/src/kv/rounding.rs defines it. All of it is exact, and magnitudes are compared as their
// bits, for a device may flush what is below the normal numbers.

// Kinds of codes.
const E4M3 = 0u;
const E2M1 = 1u;
// In place of the exponent of a scale that is NaN.
const NAN_SCALE = 255u;

// Values that share a scale.
fn code_block(kind: u32) -> u32 {
    return select(32u, 64u, kind == E4M3);
}

// The exponent, with a bias of 127, of the scale of a block whose largest magnitude has these bits:
// the smallest power of two under which the largest code is not below it.
fn scale_exponent(kind: u32, largest: u32) -> u32 {
    if largest >= 0x7f800000u {
        return NAN_SCALE;
    }
    // 448 is 1.75 * 2^8 and 6 is 1.5 * 2^2; 0x38d1b717 is 1e-4.
    let most = select(vec2(0x400000u, 2u), vec2(0x600000u, 8u), kind == E4M3);
    let magnitude = max(largest, select(0u, 0x38d1b717u, kind == E4M3));
    let exponent = (magnitude >> 23u) + select(0u, 1u, (magnitude & 0x7fffffu) > most.x);
    return max(exponent, most.y + 1u) - most.y;
}

// The E4M3 value nearest to `magnitude`, no larger than 448.
fn nearest_e4m3(magnitude: f32) -> f32 {
    if magnitude < 0.015625 {
        // Steps of 2^-9.
        return round(magnitude * 512.0) * 0.001953125;
    }
    let bits = bitcast<u32>(magnitude);
    return bitcast<f32>((bits + 0x7ffffu + ((bits >> 20u) & 1u)) & 0xfff00000u);
}

// The E2M1 value nearest to `magnitude`, no larger than 6.
fn nearest_e2m1(magnitude: f32) -> f32 {
    if magnitude < 2.0 {
        return round(magnitude * 2.0) * 0.5;
    }
    if magnitude < 4.0 {
        return round(magnitude);
    }
    return round(magnitude * 0.5) * 2.0;
}

// The bits of a value that is rounded under the scale of its block.
fn rounded_bits(kind: u32, value: f32, exponent: u32) -> u32 {
    if exponent == NAN_SCALE {
        return 0x7fc00000u;
    }
    let scale = bitcast<f32>(exponent << 23u);
    // Exponents of scales are at most 253: the inverse is a normal number.
    let inverse = bitcast<f32>((254u - exponent) << 23u);
    // The largest codes, and the largest ones that no scale takes beyond f32.
    let most = select(vec2(6.0, 3.0), vec2(448.0, 240.0), kind == E4M3);
    let overflow = select(253u, 247u, kind == E4M3);
    let magnitude = min(abs(value) * inverse, select(most.x, most.y, exponent >= overflow));
    var code = 0.0;
    if kind == E4M3 {
        code = nearest_e4m3(magnitude);
    } else {
        code = nearest_e2m1(magnitude);
    }
    let bits = bitcast<u32>(code * scale);
    // Zero is positive.
    return select(bits | (bitcast<u32>(value) & 0x80000000u), 0u, bits == 0u);
}
