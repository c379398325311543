// F16, two to a word.
const FLOAT_WORDS = 4u;

fn values(at: u32, n: u32) -> Weights {
    let first = unpack2x16float(weights[at]);
    let second = unpack2x16float(weights[at + n]);
    let third = unpack2x16float(weights[at + 2u * n]);
    let fourth = unpack2x16float(weights[at + 3u * n]);
    return Weights(vec4(first, second), vec4(third, fourth));
}
