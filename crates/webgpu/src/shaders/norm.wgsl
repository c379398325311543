// RMS norm of units: out = x * inverse root of (mean of squares + eps) * weight.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

const LANES = 64u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var unit = group.x; unit < params.units; unit += groups.x) {
        let row = unit / params.row_units;
        let column = unit % params.row_units * params.len;
        let start = row * params.x_row + column;
        let out_start = row * params.out_row + column;
        var sum = 0.0;
        for (var i = lane; i < params.len; i += LANES) {
            let value = x[start + i];
            sum = fma(value, value, sum);
        }
        let scale = 1.0 / sqrt(sum_of_lanes(sum, lane) / f32(params.len) + params.eps);
        for (var i = lane; i < params.len; i += LANES) {
            out[out_start + i] = x[start + i] * scale * weight[(column + i) % params.weights];
        }
        workgroupBarrier();
    }
}
