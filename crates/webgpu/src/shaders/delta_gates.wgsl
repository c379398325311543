// decay = exp(rate * softplus(a + dt)) and beta = sigmoid(b), for each row and head.
struct Params { count: u32, heads: u32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read> dt: array<f32>;
@group(0) @binding(3) var<storage, read> rate: array<f32>;
@group(0) @binding(4) var<storage, read_write> decay: array<f32>;
@group(0) @binding(5) var<storage, read_write> beta: array<f32>;

fn each(i: u32) {
    let head = i % params.heads;
    decay[i] = exp_to_one(rate[head] * softplus(a[i] + dt[head]));
    beta[i] = sigmoid(b[i]);
}
