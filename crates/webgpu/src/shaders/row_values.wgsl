// out = sum of weights[e] * e over the entries of a row, ascending. A workgroup computes a tile of
// heads and channels of a row of the batch.
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

var<workgroup> tile_entries: array<Entry, TILE>;

fn load(entries: Entries, head_tile: u32, channel_tile: u32, first: u32, lane: u32) {
    for (var i = lane; i < TILE * TILE; i += LANES) {
        let head = head_tile + i / TILE;
        var weight = 0.0;
        if head < params.heads && first + i % TILE < entries.count {
            weight = scores[scores_at(entries.row, head) + first + i % TILE];
        }
        left[i % TILE * STRIDE + i / TILE] = weight;
        let channel = channel_tile + i % TILE;
        var value = 0.0;
        if channel < params.window.dim && first + i / TILE < entries.count {
            value = entry_value(tile_entries[i / TILE], channel);
        }
        right[i / TILE * STRIDE + i % TILE] = value;
    }
}

fn put(row: u32, head: u32, first: u32, sums: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if head < params.heads && first + i < params.window.dim {
            out[(row * params.heads + head) * params.window.dim + first + i] = sums[i];
        }
    }
}

fn weigh(entries: Entries, head: u32, channel: u32, lane: u32) {
    var sums = no_sums();
    for (var first = 0u; first < entries.count; first += TILE) {
        if lane < TILE {
            tile_entries[lane] = entry_at(entries, min(first + lane, entries.count - 1u));
        }
        workgroupBarrier();
        load(entries, head, channel, first, lane);
        workgroupBarrier();
        sums = add_products(lane, sums);
        workgroupBarrier();
    }
    let own = head + left_row(lane);
    put(entries.row, own, channel + right_row(lane), sums.first);
    put(entries.row, own + 1u, channel + right_row(lane), sums.second);
    put(entries.row, own + 2u, channel + right_row(lane), sums.third);
    put(entries.row, own + 3u, channel + right_row(lane), sums.fourth);
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tiles = (params.window.dim + TILE - 1u) / TILE;
    let head_tiles = (params.heads + TILE - 1u) / TILE;
    let count = params.rows * head_tiles * tiles;
    for (var i = group.x; i < count; i += groups.x) {
        let entries = entries_of(params.first + i / tiles / head_tiles);
        weigh(entries, i / tiles % head_tiles * TILE, i % tiles * TILE, lane);
    }
}
