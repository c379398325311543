// x = x * factor; with a cap, x = cap * tanh(x / cap), which is 2 * cap * sigmoid(2 * x / cap) - cap.
struct Params { count: u32, factor: f32, cap: f32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;

fn each(i: u32) {
    if (params.cap > 0.0) {
        x[i] = 2.0 * params.cap * sigmoid(2.0 * x[i] / params.cap) - params.cap;
    } else {
        x[i] *= params.factor;
    }
}
