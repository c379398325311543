// The best `top` runs of each row of the batch by their greatest scores, of equal ones the earlier,
// in ascending order of their numbers. A workgroup chooses for one row: it counts ranks by eight bits at a time until it
// knows the lowest chosen one, then lists what lies above it and as many of its equals as are
// missing.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> scores: array<f32>;
@group(0) @binding(2) var<storage, read_write> numbers: array<u32>;

const LANES = 256u;
// Sums of whole numbers are the same in any order.
var<workgroup> counts: array<atomic<u32>, LANES>;
// The digit that the lowest chosen rank has next, and how many ranks with it are chosen.
var<workgroup> found: vec2<u32>;
// Scores above the lowest chosen rank, and equal to it, up to each lane.
var<workgroup> running: array<vec2<u32>, LANES>;

// Numbers in the order of scores: zeros are equal, NaN is lowest.
fn rank(score: f32) -> u32 {
    let bits = bitcast<u32>(score);
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return 0u;
    }
    if magnitude == 0u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits != magnitude);
}

// The rank of a run of `runs`, whose rows' scores begin at `start`.
fn rank_of(start: u32, run: u32, runs: u32) -> u32 {
    if run + params.last >= runs {
        return 0xffffffffu;
    }
    var best = 0u;
    for (var i = 0u; i < params.run; i++) {
        best = max(best, rank(scores[start + run * params.run + i]));
    }
    return best;
}

// The rank of the lowest chosen score, and how many scores of that rank are chosen.
fn lowest(start: u32, complete: u32, lane: u32) -> vec2<u32> {
    var prefix = 0u;
    var missing = params.top;
    for (var shift = 32u; shift > 0u;) {
        shift -= 8u;
        atomicStore(&counts[lane], 0u);
        workgroupBarrier();
        for (var i = lane; i < complete; i += LANES) {
            let rank = rank_of(start, i, complete);
            if ((rank >> shift) >> 8u) == prefix {
                atomicAdd(&counts[(rank >> shift) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if lane == 0u {
            var left = missing;
            var digit = 255u;
            for (; digit > 0u; digit--) {
                let count = atomicLoad(&counts[digit]);
                if count >= left {
                    break;
                }
                left -= count;
            }
            found = vec2(digit, left);
        }
        workgroupBarrier();
        prefix = (prefix << 8u) | found.x;
        missing = found.y;
    }
    return vec2(prefix, missing);
}

fn choose(row: u32, complete: u32, lane: u32) {
    let start = (row - params.first) * params.stride;
    let least = lowest(start, complete, lane);
    var before = vec2(0u, 0u);
    for (var first = 0u; first < complete; first += LANES) {
        let number = first + lane;
        var own = vec2(0u, 0u);
        if number < complete {
            let rank = rank_of(start, number, complete);
            own = vec2(u32(rank > least.x), u32(rank == least.x));
        }
        running[lane] = own;
        workgroupBarrier();
        for (var distance = 1u; distance < LANES; distance *= 2u) {
            var more = vec2(0u, 0u);
            if lane >= distance {
                more = running[lane - distance];
            }
            workgroupBarrier();
            running[lane] += more;
            workgroupBarrier();
        }
        let here = before + running[lane] - own;
        if own.x > 0u || (own.y > 0u && here.y < least.y) {
            numbers[row * params.top + here.x + min(here.y, least.y)] = number;
        }
        before += running[LANES - 1u];
        workgroupBarrier();
    }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = group.x; i < params.rows; i += groups.x) {
        let row = params.first + i;
        let position = row_position(row);
        let start = first_row(position, params.every, params.first_position);
        let present = (position + 1u) / params.every - start;
        let runs = (max(present, params.own) - params.own) / params.run;
        if runs > params.top && params.top > 0u {
            choose(row, runs, lane);
        }
    }
}
