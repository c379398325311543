// Scores of compressed rows for rows of the batch: sum of weights[h] * max(0, q[h] * row). A
// workgroup computes a tile of scores of one row of the batch. A product adds channels in ascending
// order; heads with the same remainder of their number over four, modulo eight, are added in
// ascending order, then these eight sums.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> cached: array<u32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;

// Where the rows of the tile lie.
var<workgroup> offsets: array<u32, TILE>;

fn load(row: u32, first_head: u32, first_channel: u32, lane: u32) {
    let dim = params.cached.dim;
    for (var i = lane; i < TILE * TILE; i += LANES) {
        let channel = first_channel + i % TILE;
        let head = first_head + i / TILE;
        var query = 0.0;
        var value = 0.0;
        if channel < dim {
            if head < params.heads {
                query = q[(row * params.heads + head) * dim + channel];
            }
            let word = row_word(params.cached, offsets[i / TILE], channel);
            value = row_value(params.cached, cached[word], channel);
        }
        left[i % TILE * STRIDE + i / TILE] = query;
        right[i % TILE * STRIDE + i / TILE] = value;
    }
}

fn weighted(row: u32, head: u32, products: vec4<f32>, before: vec4<f32>) -> vec4<f32> {
    if head >= params.heads {
        return before;
    }
    return fma(vec4(weights[row * params.heads + head]), max(products, vec4(0.0)), before);
}

// Computes the scores of the tile from score `first` on, of `count` rows from number `start` on.
fn score(row: u32, first: u32, start: u32, count: u32, lane: u32) {
    if lane < TILE {
        // After the last row are others in its place.
        let number = start + min(first + lane, count - 1u);
        let spot = row_place(params.cached, number);
        let block = block_of(params.cached.group, row_sequence(row), spot.x);
        offsets[lane] = row_at(params.cached, block, spot.y);
    }
    workgroupBarrier();
    var total = vec4(0.0);
    for (var head = 0u; head < params.heads; head += TILE) {
        var sums = no_sums();
        for (var channel = 0u; channel < params.cached.dim; channel += TILE) {
            load(row, head, channel, lane);
            workgroupBarrier();
            sums = add_products(lane, sums);
            workgroupBarrier();
        }
        let own = head + left_row(lane);
        total = weighted(row, own, sums.first, total);
        total = weighted(row, own + 1u, sums.second, total);
        total = weighted(row, own + 2u, sums.third, total);
        total = weighted(row, own + 3u, sums.fourth, total);
    }
    for (var i = 0u; i < 4u; i++) {
        left[lane / 8u * TILE + right_row(lane) + i] = total[i];
    }
    workgroupBarrier();
    if lane < TILE && first + lane < count {
        var sum = left[lane];
        for (var part = 1u; part < 8u; part++) {
            sum += left[part * TILE + lane];
        }
        scores[(row - params.first) * params.stride + first + lane] = sum;
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tiles = (params.stride + TILE - 1u) / TILE;
    for (var i = group.x; i < params.rows * tiles; i += groups.x) {
        let row = params.first + i / tiles;
        let first = i % tiles * TILE;
        let position = row_position(row);
        let start = first_row(position, params.cached.every, params.first_position);
        let count = (position + 1u) / params.cached.every - start;
        // Where all fit, all are chosen.
        if count > params.top && first < count {
            score(row, first, start, count, lane);
        }
    }
}
