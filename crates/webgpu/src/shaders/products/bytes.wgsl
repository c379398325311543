// Codes of weights and inputs rounded to bytes, a piece being a block of 32. A form defines
// `codes`, `scales` and their constants.
const PIECES = 1u;
// Words of the inputs of a block: eight of bytes, the scale, the sums of both halves.
const INPUT_WORDS = 10u;

alias Sum = f32;

// Four bytes a word, in order.
struct Codes {
    a: vec4<u32>,
    b: vec4<u32>,
}

// Scales and minima of both halves of a block.
struct Scales {
    scale: vec2<f32>,
    low: vec2<f32>,
}

struct Weights {
    codes: Codes,
    scales: Scales,
}

struct Inputs {
    a: vec4<u32>,
    b: vec4<u32>,
    unit: f32,
    first: i32,
    second: i32,
}

fn load_weights(place: Place, block: u32) -> Weights {
    let at = block_place(place, block, CODE_WORDS);
    let codes_at = place.start + SCALE_WORDS * place.spans + at.x + place.span;
    let scales_at = place.start + place.span;
    return Weights(codes(codes_at, at.y), scales(scales_at, place.spans, block));
}

fn load_inputs(place: Place, block: u32) -> Inputs {
    let n = place.spans;
    let at = place.start + block * INPUT_WORDS * n + place.span;
    let a = vec4(inputs[at], inputs[at + n], inputs[at + 2u * n], inputs[at + 3u * n]);
    let b = vec4(
        inputs[at + 4u * n],
        inputs[at + 5u * n],
        inputs[at + 6u * n],
        inputs[at + 7u * n],
    );
    let sums = inputs[at + 9u * n];
    let first = extractBits(bitcast<i32>(sums), 0u, 16u);
    let second = extractBits(bitcast<i32>(sums), 16u, 16u);
    return Inputs(a, b, bitcast<f32>(inputs[at + 8u * n]), first, second);
}

fn dot_bytes(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)
        + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

// Adds a block: integers times the scale of the weights, times that of the inputs; then minima.
fn add(sum: f32, w: Weights, x: Inputs) -> f32 {
    let first = dot_bytes(w.codes.a, x.a) - OFFSET * x.first;
    let second = dot_bytes(w.codes.b, x.b) - OFFSET * x.second;
    var total = sum;
    if HALVES {
        let scaled = fma(f32(second), w.scales.scale.y, f32(first) * w.scales.scale.x);
        total = fma(scaled, x.unit, total);
        if MINIMA {
            total = fma(w.scales.low.x, x.unit * f32(-x.first), total);
            total = fma(w.scales.low.y, x.unit * f32(-x.second), total);
        }
    } else {
        total = fma(f32(first + second) * w.scales.scale.x, x.unit, total);
        if MINIMA {
            total = fma(w.scales.low.x, x.unit * f32(-(x.first + x.second)), total);
        }
    }
    return total;
}

fn fold(sum: f32) -> f32 {
    return sum;
}

// Signed byte `index` of consecutive words from `at` on, `stride` apart.
fn byte_of(at: u32, stride: u32, index: u32) -> f32 {
    let word = bitcast<i32>(weights[at + index / 4u * stride]);
    return f32(extractBits(word, index % 4u * 8u, 8u));
}
