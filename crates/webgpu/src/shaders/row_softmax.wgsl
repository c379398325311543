// Turns the scores of each row and head into weights. A workgroup has one head of a row.
@group(0) @binding(5) var<storage, read> sinks: array<f32>;

const LANES = 64u;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = group.x; i < params.rows * params.heads; i += groups.x) {
        let row = params.first + i / params.heads;
        let head = i % params.heads;
        let count = entries_of(row).count;
        let start = scores_at(row, head);
        // Lanes without entries take the first, for there is one.
        var most = scores[start];
        for (var at = lane; at < count; at += LANES) {
            most = max(most, scores[start + at]);
        }
        most = largest_of_lanes(most, lane);
        if params.sinks != 0u {
            most = max(most, sinks[head]);
        }
        workgroupBarrier();
        var sum = 0.0;
        for (var at = lane; at < count; at += LANES) {
            let weight = exp_to_one(scores[start + at] - most);
            scores[start + at] = weight;
            sum += weight;
        }
        sum = sum_of_lanes(sum, lane);
        if params.sinks != 0u {
            sum += exp_to_one(sinks[head] - most);
        }
        for (var at = lane; at < count; at += LANES) {
            scores[start + at] /= sum;
        }
        workgroupBarrier();
    }
}
