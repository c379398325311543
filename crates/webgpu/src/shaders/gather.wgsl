// out[i] = x[rows[i]], the rows being in the inbox from `rows_at` on.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> inbox: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let row = inbox[params.rows_at + i / params.width];
    out[i] = x[row * params.width + i % params.width];
}
