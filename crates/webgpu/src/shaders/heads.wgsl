// Copies the first `width` columns of each head.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let column = i % params.width;
    let head = i / params.width % params.heads;
    let row = i / params.width / params.heads;
    let from_at = row * params.from_width + params.from_first + head * params.from_stride + column;
    let to_at = row * params.to_width + params.to_first + head * params.to_stride + column;
    out[to_at] = x[from_at];
}
