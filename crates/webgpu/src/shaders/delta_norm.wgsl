// x = x * scale / root of (sum of squares + eps), for each head of x.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;

const LANES = 64u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var unit = group.x; unit < params.units; unit += groups.x) {
        let start = unit * params.len;
        var sum = 0.0;
        for (var i = lane; i < params.len; i += LANES) {
            let value = x[start + i];
            sum = fma(value, value, sum);
        }
        let factor = params.scale / sqrt(sum_of_lanes(sum, lane) + params.eps);
        for (var i = lane; i < params.len; i += LANES) {
            x[start + i] *= factor;
        }
        workgroupBarrier();
    }
}
