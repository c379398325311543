// Copies each row of x into every stream of out.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let row = i / (params.width * params.streams);
    out[i] = x[row * params.width + i % params.width];
}
