// Nibbles, the first half of the codes in the low ones, and HIGH bits above them.
const CODE_WORDS = 4u + HIGH;

fn codes(at: u32, n: u32) -> Codes {
    let low = vec4(weights[at], weights[at + n], weights[at + 2u * n], weights[at + 3u * n]);
    var codes = Codes(low & vec4(0x0f0f0f0fu), (low >> vec4(4u)) & vec4(0x0f0f0f0fu));
    if HIGH == 1u {
        let high = vec4(weights[at + 4u * n]);
        codes.a |= ((high >> vec4(0u, 1u, 2u, 3u)) & vec4(0x01010101u)) << vec4(4u);
        codes.b |= ((high >> vec4(4u, 5u, 6u, 7u)) & vec4(0x01010101u)) << vec4(4u);
    }
    if HIGH == 2u {
        let a = vec4(weights[at + 4u * n]);
        let b = vec4(weights[at + 5u * n]);
        codes.a |= ((a >> vec4(0u, 2u, 4u, 6u)) & vec4(0x03030303u)) << vec4(4u);
        codes.b |= ((b >> vec4(0u, 2u, 4u, 6u)) & vec4(0x03030303u)) << vec4(4u);
    }
    return codes;
}
