// Sums and maxima over the lanes of a workgroup, as trees. A kernel defines `LANES`. All lanes call
// them, and pass a barrier before the next call.
var<workgroup> lane_parts: array<f32, LANES>;

fn sum_of_lanes(own: f32, lane: u32) -> f32 {
    lane_parts[lane] = own;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if lane < half {
            lane_parts[lane] += lane_parts[lane + half];
        }
        workgroupBarrier();
    }
    return lane_parts[0];
}

fn largest_of_lanes(own: f32, lane: u32) -> f32 {
    lane_parts[lane] = own;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if lane < half {
            lane_parts[lane] = max(lane_parts[lane], lane_parts[lane + half]);
        }
        workgroupBarrier();
    }
    return lane_parts[0];
}
