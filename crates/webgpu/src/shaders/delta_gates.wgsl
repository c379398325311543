// decay = exp(rate * softplus(a + dt)) and beta = sigmoid(b), for each row and head.
struct Params { count: u32, heads: u32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read> dt: array<f32>;
@group(0) @binding(3) var<storage, read> rate: array<f32>;
@group(0) @binding(4) var<storage, read_write> decay: array<f32>;
@group(0) @binding(5) var<storage, read_write> beta: array<f32>;

// The logarithm of 1 + exp(x): the larger of x and 0, plus twice the inverse hyperbolic tangent of
// e / (2 + e), where e = exp(-|x|), by its series. Logarithms of devices are coarse near 1.
fn softplus(x: f32) -> f32 {
    let e = exp_to_one(-abs(x));
    let s = e / (2.0 + e);
    let square = s * s;
    var sum = 1.0 / 17.0;
    sum = fma(sum, square, 1.0 / 15.0);
    sum = fma(sum, square, 1.0 / 13.0);
    sum = fma(sum, square, 1.0 / 11.0);
    sum = fma(sum, square, 1.0 / 9.0);
    sum = fma(sum, square, 1.0 / 7.0);
    sum = fma(sum, square, 1.0 / 5.0);
    sum = fma(sum, square, 1.0 / 3.0);
    sum = fma(sum, square, 1.0);
    return fma(2.0 * s, sum, max(x, 0.0));
}

fn each(i: u32) {
    let head = i % params.heads;
    decay[i] = exp_to_one(rate[head] * softplus(a[i] + dt[head]));
    beta[i] = sigmoid(b[i]);
}
