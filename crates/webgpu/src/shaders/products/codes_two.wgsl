// Two bits, half of the codes in each of two words, and HIGH bits above them.
const CODE_WORDS = 2u + HIGH;

fn codes(at: u32, n: u32) -> Codes {
    let shifts = vec4(0u, 2u, 4u, 6u);
    let a = vec4(weights[at]) >> shifts;
    let b = vec4(weights[at + n]) >> shifts;
    var codes = Codes(a & vec4(0x03030303u), b & vec4(0x03030303u));
    if HIGH == 1u {
        let high = vec4(weights[at + 2u * n]);
        codes.a |= ((high >> vec4(0u, 1u, 2u, 3u)) & vec4(0x01010101u)) << vec4(2u);
        codes.b |= ((high >> vec4(4u, 5u, 6u, 7u)) & vec4(0x01010101u)) << vec4(2u);
    }
    return codes;
}
