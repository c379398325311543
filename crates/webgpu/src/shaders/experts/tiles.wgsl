// Adds up the slots of experts and cuts them into tiles. One workgroup, whose lanes have
// consecutive experts each.
const LANES = 256u;
// Slots and tiles of each lane.
var<workgroup> counts: array<vec2<u32>, LANES>;

fn count_of(expert: u32) -> vec2<u32> {
    let slots = plan[params.counts_at + expert];
    return vec2(slots, (slots + params.tile_rows - 1u) / params.tile_rows);
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    let each = (params.held + LANES - 1u) / LANES;
    let range = min(vec2(lane * each, (lane + 1u) * each), vec2(params.held));
    var own = vec2(0u);
    for (var expert = range.x; expert < range.y; expert++) {
        own += count_of(expert);
    }
    counts[lane] = own;
    workgroupBarrier();
    var next = vec2(0u);
    var total = vec2(0u);
    for (var at = 0u; at < LANES; at++) {
        next += select(vec2(0u), counts[at], at < lane);
        total += counts[at];
    }
    for (var expert = range.x; expert < range.y; expert++) {
        let count = count_of(expert);
        plan[params.starts_at + expert] = next.x;
        for (var tile = 0u; tile < count.y; tile++) {
            let at = params.tiles_at + 3u * (next.y + tile);
            let before = tile * params.tile_rows;
            plan[at] = expert;
            plan[at + 1u] = next.x + before;
            plan[at + 2u] = min(params.tile_rows, count.x - before);
        }
        next += count;
    }
    for (var tile = total.y + lane; tile < params.tiles; tile += LANES) {
        plan[params.tiles_at + 3u * tile] = 0u;
        plan[params.tiles_at + 3u * tile + 1u] = 0u;
        plan[params.tiles_at + 3u * tile + 2u] = 0u;
    }
    if lane == 0u {
        plan[0] = total.x;
    }
}
