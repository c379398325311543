// Kernels of a workgroup for each expert, whose lanes have consecutive choices each.
const LANES = 64u;
var<workgroup> counts: array<u32, LANES>;

// The choices of a lane: from, to.
fn range_of(lane: u32) -> vec2<u32> {
    let each = (params.choices + LANES - 1u) / LANES;
    return min(vec2(lane * each, (lane + 1u) * each), vec2(params.choices));
}

// Choices of an expert, by its number among the held ones, within a range.
fn count_in(range: vec2<u32>, expert: u32) -> u32 {
    var count = 0u;
    for (var at = range.x; at < range.y; at++) {
        count += select(0u, 1u, choices[3u * at] == params.first + expert);
    }
    return count;
}

// The choices of the first `lanes` lanes.
fn count_before(lanes: u32) -> u32 {
    var count = 0u;
    for (var at = 0u; at < lanes; at++) {
        count += counts[at];
    }
    return count;
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var expert = group.x; expert < params.held; expert += groups.x) {
        let range = range_of(lane);
        counts[lane] = count_in(range, expert);
        workgroupBarrier();
        each(expert, range, lane);
        workgroupBarrier();
    }
}
