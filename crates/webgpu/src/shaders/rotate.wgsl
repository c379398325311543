// Rotates pairs of columns of each head by the angles of the row, times `sign`.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
// Cosines of each row, then its sines.
@group(0) @binding(1) var<storage, read> angles: array<f32>;

fn each(i: u32) {
    let pair = i % params.pairs;
    let head = i / params.pairs % params.heads;
    let row = i / params.pairs / params.heads;
    let start = row * params.width + params.first + head * params.stride;
    var at = vec2(start + pair, start + pair + params.pairs);
    if params.interleaved != 0u {
        at = vec2(start + 2u * pair, start + 2u * pair + 1u);
    }
    let angle = 2u * row * params.pairs + pair;
    let cosine = angles[angle];
    let sine = params.sign * angles[angle + params.pairs];
    let a = x[at.x];
    let b = x[at.y];
    x[at.x] = fma(a, cosine, -(b * sine));
    x[at.y] = fma(b, cosine, a * sine);
}
