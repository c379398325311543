// Stores x, `[rows, heads * dim]`, as keys or values of Q8_0: signed bytes, four to a word, then a
// BF16 scale for every 32 of them, two to a word.
const GROUP = 32u;

// The bits of the smallest BF16 value that is no smaller than `largest / 127`.
fn scale_bits(largest: u32) -> u32 {
    if largest >= 0x7f800000u {
        return 0x7fc0u;
    }
    let most = bitcast<f32>(largest);
    let near = most / 127.0;
    // Division may be inexact: the remainder tells the nearest quotient.
    let quotient = fma(fma(-near, 127.0, most), 1.0 / 127.0, near);
    return (bitcast<u32>(quotient) + 0xffffu) >> 16u;
}

// The nearest value to the inverse of a BF16 scale; 0 for NaN and below the normal numbers.
fn inverse_of(scale: u32) -> f32 {
    let exponent = scale >> 7u;
    if exponent == 0u || exponent > 252u {
        return 0.0;
    }
    let digits = 0x80u | (scale & 0x7fu);
    if digits == 0x80u {
        return bitcast<f32>((254u - exponent) << 23u);
    }
    let quotient = (0x80000000u + digits / 2u) / digits;
    return bitcast<f32>(((253u - exponent) << 23u) | (quotient & 0x7fffffu));
}

// Stores the group of values from `from_at` on as words from `to_at` on; the bits of its scale.
fn store_group(from_at: u32, len: u32, to_at: u32) -> u32 {
    var largest = 0u;
    for (var i = 0u; i < len; i++) {
        largest = max(largest, bitcast<u32>(x[from_at + i]) & 0x7fffffffu);
    }
    let scale = scale_bits(largest);
    let inverse = inverse_of(scale);
    for (var word = 0u; 4u * word < len; word++) {
        var codes = 0u;
        for (var i = 4u * word; i < min(len, 4u * word + 4u); i++) {
            // Codes of a group that is not finite are of no account.
            let code = i32(round(clamp(x[from_at + i] * inverse, -127.0, 127.0)));
            codes |= (bitcast<u32>(code) & 0xffu) << (8u * (i % 4u));
        }
        cached[to_at + word] = codes;
    }
    return scale;
}

// Two groups of a head, whose scales share a word.
fn each(i: u32) {
    let pairs = (params.dim + 2u * GROUP - 1u) / (2u * GROUP);
    let pair = i % pairs;
    let unit = i / pairs;
    let to_at = unit_at(unit);
    var scales = 0u;
    for (var part = 0u; part < 2u; part++) {
        let first = (2u * pair + part) * GROUP;
        if first < params.dim {
            let len = min(GROUP, params.dim - first);
            let scale = store_group(unit * params.dim + first, len, to_at + first / 4u);
            scales |= scale << (16u * part);
        }
    }
    cached[to_at + (params.dim + 3u) / 4u + pair] = scales;
}
