// Weights and inputs in floating point, a piece being eight of them. A form defines `values` and
// FLOAT_WORDS, the words of a piece.
const PIECES = 4u;
// Words of the inputs of a piece.
const INPUT_WORDS = 8u;

// Sums of the inputs at equal places modulo four.
alias Sum = vec4<f32>;

struct Weights {
    a: vec4<f32>,
    b: vec4<f32>,
}

struct Inputs {
    a: vec4<f32>,
    b: vec4<f32>,
}

fn load_weights(place: Place, piece: u32) -> Weights {
    let at = block_place(place, piece / PIECES, PIECES * FLOAT_WORDS);
    let start = place.start + at.x + place.span;
    return values(start + piece % PIECES * FLOAT_WORDS * at.y, at.y);
}

fn load_inputs(place: Place, piece: u32) -> Inputs {
    let n = place.spans;
    let at = place.start + piece * INPUT_WORDS * n + place.span;
    let a = vec4(inputs[at], inputs[at + n], inputs[at + 2u * n], inputs[at + 3u * n]);
    let b = vec4(
        inputs[at + 4u * n],
        inputs[at + 5u * n],
        inputs[at + 6u * n],
        inputs[at + 7u * n],
    );
    return Inputs(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(b));
}

fn add(sum: vec4<f32>, w: Weights, x: Inputs) -> vec4<f32> {
    return fma(w.b, x.b, fma(w.a, x.a, sum));
}

fn fold(sum: vec4<f32>) -> f32 {
    return (sum.x + sum.y) + (sum.z + sum.w);
}
