// Signed bytes.
const CODE_WORDS = 8u;
const OFFSET = 0;

fn codes(at: u32, n: u32) -> Codes {
    let a = vec4(weights[at], weights[at + n], weights[at + 2u * n], weights[at + 3u * n]);
    let b = vec4(
        weights[at + 4u * n],
        weights[at + 5u * n],
        weights[at + 6u * n],
        weights[at + 7u * n],
    );
    return Codes(a, b);
}
