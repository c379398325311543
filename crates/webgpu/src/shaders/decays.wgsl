// decay = exp(rate * the length of the step), for each row and decay, or exp(bound * sigmoid(-rate *
// (a + dt))) where there is a bound.
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read> dt: array<f32>;
@group(0) @binding(2) var<storage, read> rate: array<f32>;
@group(0) @binding(3) var<storage, read_write> decay: array<f32>;

fn each(i: u32) {
    let at = i % params.decays;
    if params.bound < 0.0 {
        decay[i] = exp_to_one(params.bound * sigmoid(-rate[at] * (a[i] + dt[at])));
        return;
    }
    let time = clamp(softplus(a[i] + dt[at]), params.least, params.most);
    decay[i] = exp_to_one(rate[at] * time);
}
