// The length of the step, softplus(a + dt) within limits, for each row and head.
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read> dt: array<f32>;
@group(0) @binding(2) var<storage, read_write> times: array<f32>;

fn each(i: u32) {
    times[i] = clamp(softplus(a[i] + dt[i % params.decays]), params.least, params.most);
}
