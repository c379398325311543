// out = sigmoid(x).
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    out[i] = sigmoid(x[i]);
}
