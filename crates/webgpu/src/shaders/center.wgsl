// Rows without their mean: out = x - mean(x).
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

const LANES = 64u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var row = group.x; row < params.rows; row += groups.x) {
        let start = row * params.width;
        var sum = 0.0;
        for (var i = lane; i < params.width; i += LANES) {
            sum += x[start + i];
        }
        let mean = sum_of_lanes(sum, lane) / f32(params.width);
        for (var i = lane; i < params.width; i += LANES) {
            out[start + i] = x[start + i] - mean;
        }
        workgroupBarrier();
    }
}
