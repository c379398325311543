// Scores of entries: q * entry * scale, channels in ascending order. A workgroup computes a tile of
// heads and entries of a row of the batch.
@group(0) @binding(5) var<storage, read_write> q: array<f32>;

var<workgroup> tile_entries: array<Entry, TILE>;

fn load(row: u32, first_head: u32, first_channel: u32, lane: u32) {
    let dim = params.window.dim;
    for (var i = lane; i < TILE * TILE; i += LANES) {
        let channel = first_channel + i % TILE;
        let head = first_head + i / TILE;
        var query = 0.0;
        var value = 0.0;
        if channel < dim {
            if head < params.heads {
                query = q[(row * params.heads + head) * dim + channel];
            }
            value = entry_value(tile_entries[i / TILE], channel);
        }
        left[i % TILE * STRIDE + i / TILE] = query;
        right[i % TILE * STRIDE + i / TILE] = value;
    }
}

fn put(row: u32, head: u32, first: u32, count: u32, sums: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if head < params.heads && first + i < count {
            scores[scores_at(row, head) + first + i] = sums[i] * params.scale;
        }
    }
}

fn score(entries: Entries, head: u32, first: u32, lane: u32) {
    if lane < TILE {
        // Behind the last entry are others in its place.
        tile_entries[lane] = entry_at(entries, min(first + lane, entries.count - 1u));
    }
    workgroupBarrier();
    var sums = no_sums();
    for (var channel = 0u; channel < params.window.dim; channel += TILE) {
        load(entries.row, head, channel, lane);
        workgroupBarrier();
        sums = add_products(lane, sums);
        workgroupBarrier();
    }
    let own = head + left_row(lane);
    let entry = first + right_row(lane);
    put(entries.row, own, entry, entries.count, sums.first);
    put(entries.row, own + 1u, entry, entries.count, sums.second);
    put(entries.row, own + 2u, entry, entries.count, sums.third);
    put(entries.row, own + 3u, entry, entries.count, sums.fourth);
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tiles = (params.stride + TILE - 1u) / TILE;
    let head_tiles = (params.heads + TILE - 1u) / TILE;
    let count = params.rows * head_tiles * tiles;
    for (var i = group.x; i < count; i += groups.x) {
        let entries = entries_of(params.first + i / tiles / head_tiles);
        let first = i % tiles * TILE;
        if first < entries.count {
            score(entries, i / tiles % head_tiles * TILE, first, lane);
        }
    }
}
