// Nibbles, the first half of the codes in the low ones, that index the signed bytes of LEVELS.
const CODE_WORDS = 4u;
const OFFSET = 0;

// The levels of the four nibbles in the low halves of the bytes of a word.
fn levels(nibbles: u32) -> u32 {
    var word = 0u;
    for (var at = 0u; at < 32u; at += 8u) {
        let nibble = (nibbles >> at) & 15u;
        word |= ((LEVELS[nibble / 4u] >> (nibble % 4u * 8u)) & 255u) << at;
    }
    return word;
}

fn codes(at: u32, n: u32) -> Codes {
    let low = vec4(weights[at], weights[at + n], weights[at + 2u * n], weights[at + 3u * n]);
    let high = low >> vec4(4u);
    return Codes(
        vec4(levels(low.x), levels(low.y), levels(low.z), levels(low.w)),
        vec4(levels(high.x), levels(high.y), levels(high.z), levels(high.w)),
    );
}
