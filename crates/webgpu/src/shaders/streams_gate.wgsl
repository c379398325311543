// out = sigmoid(root(keys . queries / sqrt(width))) * values of each stream, where
// root(g) = sign(g) sqrt(max(|g|, 1e-6)). A workgroup computes one stream of a row.
@group(0) @binding(0) var<storage, read_write> keys: array<f32>;
@group(0) @binding(1) var<storage, read_write> queries: array<f32>;
@group(0) @binding(2) var<storage, read_write> values: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const LANES = 64u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var at = group.x; at < params.count; at += groups.x) {
        let start = at * params.width;
        var sum = 0.0;
        for (var i = lane; i < params.width; i += LANES) {
            sum = fma(keys[start + i], queries[start + i], sum);
        }
        let product = sum_of_lanes(sum, lane) / sqrt(f32(params.width));
        let root = sqrt(max(abs(product), 1e-6));
        let factor = sigmoid(select(root, -root, product < 0.0));
        let row = at / params.streams * params.width;
        for (var i = lane; i < params.width; i += LANES) {
            out[start + i] = factor * values[row + i];
        }
        workgroupBarrier();
    }
}
