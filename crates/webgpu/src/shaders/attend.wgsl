// Attention over one span of positions for the query vectors of a tile: the largest score, the sum
// of the weights under it, and the weighted values, of each vector.
//
// Vectors of a KV head are numbered by row and by query head of its group; those of a tile belong
// to one sequence. Positions are taken 32 at a time, at multiples of 32. Each step on a vector
// depends on its own row: positions that it does not see have weight 0 and change nothing.
//
// The variant says FORM (stored.wgsl), PER_WORD (values of a word), VECTORS (at most, of a tile)
// and COLUMNS (of each invocation).
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read> inbox: array<u32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;
// Largest score, sum of weights and weighted values of `[rows, heads, space]`.
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;

const LANES = 128u;
// Positions that are taken at once.
const TILE = 32u;
// Values of keys that are taken at once.
const CHUNK = 32u;
const CHUNK_WORDS = CHUNK / PER_WORD;
// Values between the keys of a chunk, so that banks of memory differ.
const APART = CHUNK + 1u;
const WIDTH = COLUMNS * LANES;
// Vectors that are scored at once, and vectors that each invocation scores.
const SCORED = LANES / TILE;
const OWN = VECTORS / SCORED;

var<workgroup> queries: array<f32, VECTORS * WIDTH>;
var<workgroup> chunk: array<f32, TILE * APART>;
// Scores, then weights.
var<workgroup> weights: array<f32, VECTORS * TILE>;
// Places of the positions: heads of blocks times positions of a block.
var<workgroup> slots: array<u32, TILE>;
var<workgroup> largest: array<f32, VECTORS>;
var<workgroup> totals: array<f32, VECTORS>;
// What earlier sums are multiplied with.
var<workgroup> factors: array<f32, VECTORS>;

// The tile: vectors, their sequence and the positions that they see in the span.
struct Work {
    first: u32,
    count: u32,
    kv_head: u32,
    sequence: u32,
    oldest: u32,
    end: u32,
}

fn row_of(work: Work, vector: u32) -> u32 {
    return (work.first + vector) / (params.heads / params.kv_heads);
}

fn head_of(work: Work, vector: u32) -> u32 {
    let ratio = params.heads / params.kv_heads;
    return work.kv_head * ratio + (work.first + vector) % ratio;
}

fn is_read(work: Work, position: u32) -> bool {
    return position >= work.oldest && position < work.end;
}

fn code_value(word: u32, place: u32, scales: u32, part: u32) -> f32 {
    let code = extractBits(bitcast<i32>(word), 8u * place, 8u);
    return f32(code) * bitcast<f32>(select(scales << 16u, scales & 0xffff0000u, part == 1u));
}

// Puts values `from_value..` of the keys of the tile at `at` into `chunk`.
fn load_chunk(work: Work, at: u32, from_value: u32, lane: u32) {
    for (var i = lane; i < TILE * CHUNK_WORDS; i += LANES) {
        let place = i / CHUNK_WORDS;
        let word_at = i % CHUNK_WORDS;
        let column = from_value + word_at * PER_WORD;
        if column < params.dim && is_read(work, at + place) {
            let start = slots[place] * params.row_words;
            let word = keys[start + from_value / PER_WORD + word_at];
            let to_at = place * APART + word_at * PER_WORD;
            if FORM == 3u {
                let scales = keys[start + (params.dim + 3u) / 4u + column / 64u];
                for (var k = 0u; k < 4u; k++) {
                    chunk[to_at + k] = code_value(word, k, scales, column / 32u % 2u);
                }
            } else {
                let both = unpacked_word(FORM, word);
                chunk[to_at] = both.x;
                if PER_WORD > 1u {
                    chunk[to_at + 1u] = both.y;
                }
            }
        }
    }
}

fn value_at(start: u32, column: u32) -> f32 {
    let word = values[start + column / PER_WORD];
    if FORM == 3u {
        let scales = values[start + (params.dim + 3u) / 4u + column / 64u];
        return code_value(word, column % 4u, scales, column / 32u % 2u);
    }
    let both = unpacked_word(FORM, word);
    return select(both.x, both.y, PER_WORD > 1u && column % 2u == 1u);
}

fn load_queries(work: Work, lane: u32) {
    for (var i = lane; i < work.count * params.dim; i += LANES) {
        let vector = i / params.dim;
        let column = i % params.dim;
        let unit = row_of(work, vector) * params.heads + head_of(work, vector);
        queries[vector * WIDTH + column] = q[unit * params.dim + column];
    }
    if lane < VECTORS {
        largest[lane] = NO_SCORE;
        totals[lane] = 0.0;
    }
}

fn find_slots(work: Work, at: u32, lane: u32) {
    if lane < TILE && is_read(work, at + lane) {
        let position = at + lane;
        let block = block_of(params.group, work.sequence, position / params.block);
        let head = block * params.kv_heads + work.kv_head;
        slots[lane] = head * params.block + position % params.block;
    }
}

// Puts the scores of the tile's vectors and positions into `weights`, NO_SCORE for positions that
// a vector does not see.
fn score(work: Work, at: u32, lane: u32) {
    let place = lane % TILE;
    var scores: array<f32, OWN>;
    for (var own = 0u; own < OWN; own++) {
        scores[own] = 0.0;
    }
    for (var from_value = 0u; from_value < params.dim; from_value += CHUNK) {
        load_chunk(work, at, from_value, lane);
        workgroupBarrier();
        for (var i = 0u; i < min(CHUNK, params.dim - from_value); i++) {
            let key = chunk[place * APART + i];
            for (var own = 0u; own < OWN; own++) {
                let vector = own * SCORED + lane / TILE;
                let factor = queries[vector * WIDTH + from_value + i];
                scores[own] = fma(factor, key, scores[own]);
            }
        }
        workgroupBarrier();
    }
    for (var own = 0u; own < OWN; own++) {
        let vector = own * SCORED + lane / TILE;
        var kept = NO_SCORE;
        if vector < work.count {
            let position = row_position(row_of(work, vector));
            if at + place >= first_seen(position) && at + place <= position {
                kept = scores[own] * params.scale;
            }
        }
        weights[vector * TILE + place] = kept;
    }
}

// Turns scores into weights under the largest score so far.
fn soften(lane: u32) {
    if lane < VECTORS {
        let before = largest[lane];
        var most = before;
        for (var place = 0u; place < TILE; place++) {
            most = max(most, weights[lane * TILE + place]);
        }
        largest[lane] = most;
        factors[lane] = exp_to_one(before - most);
    }
    workgroupBarrier();
    for (var i = lane; i < VECTORS * TILE; i += LANES) {
        let kept = weights[i];
        var weight = 0.0;
        if kept != NO_SCORE {
            weight = exp_to_one(kept - largest[i / TILE]);
        }
        weights[i] = weight;
    }
    workgroupBarrier();
    if lane < VECTORS {
        var sum = 0.0;
        for (var place = 0u; place < TILE; place++) {
            sum += weights[lane * TILE + place];
        }
        totals[lane] = fma(totals[lane], factors[lane], sum);
    }
}

// Writes the results of vectors that see something of the span.
fn put(work: Work, span: u32, lane: u32, sums: ptr<function, array<f32, COLUMNS * VECTORS>>) {
    let len = params.value_dim + 2u;
    for (var vector = 0u; vector < work.count; vector++) {
        let row = row_of(work, vector);
        let position = row_position(row);
        let first = first_seen(position) / SPAN;
        let from_span = first + params.first_span;
        let is_wanted = span >= from_span && span < first + params.last_span;
        if is_wanted && span * SPAN <= position {
            let unit = (row - params.first_row) * params.heads + head_of(work, vector);
            let start = (unit * params.space + span - from_span) * len;
            if lane == 0u {
                partials[start] = largest[vector];
                partials[start + 1u] = totals[vector];
            }
            for (var own = 0u; own < COLUMNS; own++) {
                let column = own * LANES + lane;
                if column < params.value_dim {
                    partials[start + 2u + column] = (*sums)[own * VECTORS + vector];
                }
            }
        }
    }
}

fn attend(work: Work, span: u32, lane: u32) {
    load_queries(work, lane);
    var sums: array<f32, COLUMNS * VECTORS>;
    for (var i = 0u; i < COLUMNS * VECTORS; i++) {
        sums[i] = 0.0;
    }
    let start = max(work.oldest, span * SPAN) / TILE * TILE;
    for (var at = start; at < work.end; at += TILE) {
        find_slots(work, at, lane);
        workgroupBarrier();
        score(work, at, lane);
        workgroupBarrier();
        soften(lane);
        for (var own = 0u; own < COLUMNS; own++) {
            for (var vector = 0u; vector < VECTORS; vector++) {
                sums[own * VECTORS + vector] *= factors[vector];
            }
        }
        for (var place = 0u; place < TILE; place++) {
            if is_read(work, at + place) {
                let row_at = slots[place] * params.row_words;
                for (var own = 0u; own < COLUMNS; own++) {
                    let column = own * LANES + lane;
                    if column < params.value_dim {
                        let value = value_at(row_at, column);
                        for (var vector = 0u; vector < VECTORS; vector++) {
                            let weight = weights[vector * TILE + place];
                            let sum = sums[own * VECTORS + vector];
                            let more = fma(weight, value, sum);
                            sums[own * VECTORS + vector] = select(sum, more, weight != 0.0);
                        }
                    }
                }
            }
        }
        workgroupBarrier();
    }
    put(work, span, lane, &sums);
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var tile = group.x; tile < params.tiles; tile += groups.x) {
        var work: Work;
        work.first = inbox[params.tiles_at + 2u * tile];
        work.count = inbox[params.tiles_at + 2u * tile + 1u];
        work.kv_head = group.y;
        work.sequence = row_sequence(row_of(work, 0u));
        work.oldest = first_seen(row_position(row_of(work, 0u)));
        let span = work.oldest / SPAN + params.first_span + group.z;
        let newest = row_position(row_of(work, work.count - 1u));
        work.end = min(newest + 1u, (span + 1u) * SPAN);
        if span * SPAN < work.end {
            attend(work, span, lane);
        }
    }
}
