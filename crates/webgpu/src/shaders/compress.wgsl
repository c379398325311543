// Compressed rows: per channel a softmax over the gates of positions weighs their values; then a
// norm, a rotation of some values, rounding, and storing. Without gates it is the mean. A workgroup computes one row. Sums
// over positions are in ascending order.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> values: array<u32>;
@group(0) @binding(2) var<storage, read_write> gates: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;
@group(0) @binding(4) var<storage, read> inbox: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> norm: array<f32>;

const LANES = 128u;
// Most values of a row.
const MAX_WIDTH = 2048u;
var<workgroup> row: array<f32, MAX_WIDTH>;
// Exponents of the scales of blocks: one for every 32 values.
var<workgroup> exponents: array<u32, MAX_WIDTH / 32u>;

// A value or gate of a position: word and column.
struct Input {
    word: u32,
    column: u32,
    bias: u32,
}

fn input_at(sequence: u32, number: u32, position: u32, channel: u32) -> Input {
    let every = params.out.every;
    var column = channel;
    if params.overlap != 0u && position >= number * every {
        column += params.out.dim;
    }
    let spot = row_place(params.pooled, position);
    let block = block_of(params.pooled.group, sequence, spot.x);
    let offset = row_at(params.pooled, block, spot.y);
    let bias = position % every * params.pooled.dim + column;
    return Input(row_word(params.pooled, offset, column), column, bias);
}

fn gate(input: Input) -> f32 {
    if params.gated == 0u {
        return 0.0;
    }
    return row_value(params.pooled, gates[input.word], input.column) + bias[input.bias];
}

// The pooled value of a channel.
fn pool(sequence: u32, number: u32, channel: u32) -> f32 {
    let every = params.out.every;
    var first = number * every;
    if params.overlap != 0u && number > 0u {
        first -= every;
    }
    let end = (number + 1u) * every;
    var most = gate(input_at(sequence, number, first, channel));
    for (var position = first + 1u; position < end; position++) {
        most = max(most, gate(input_at(sequence, number, position, channel)));
    }
    var weights = 0.0;
    var sum = 0.0;
    for (var position = first; position < end; position++) {
        let input = input_at(sequence, number, position, channel);
        let weight = exp_to_one(gate(input) - most);
        weights += weight;
        sum = fma(weight, row_value(params.pooled, values[input.word], input.column), sum);
    }
    return sum / weights;
}

fn normalise(lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < params.out.dim; i += LANES) {
        sum = fma(row[i], row[i], sum);
    }
    let scale = 1.0 / sqrt(sum_of_lanes(sum, lane) / f32(params.out.dim) + params.eps);
    for (var i = lane; i < params.out.dim; i += LANES) {
        row[i] *= scale * norm[i];
    }
    workgroupBarrier();
}

fn rotate(angles: u32, lane: u32) {
    let start = params.rotated;
    for (var pair = lane; pair < params.pairs; pair += LANES) {
        var at = vec2(start + pair, start + pair + params.pairs);
        if params.interleaved != 0u {
            at = vec2(start + 2u * pair, start + 2u * pair + 1u);
        }
        let cosine = bitcast<f32>(inbox[angles + pair]);
        let sine = bitcast<f32>(inbox[angles + params.pairs + pair]);
        let a = row[at.x];
        let b = row[at.y];
        row[at.x] = fma(a, cosine, -(b * sine));
        row[at.y] = fma(b, cosine, a * sine);
    }
    workgroupBarrier();
}

// The Walsh-Hadamard transform of the row, in natural order.
fn transform(lane: u32) {
    for (var half = 1u; half < params.out.dim; half *= 2u) {
        for (var pair = lane; pair < params.out.dim / 2u; pair += LANES) {
            let at = pair / half * 2u * half + pair % half;
            let low = row[at];
            let high = row[at + half];
            row[at] = low + high;
            row[at + half] = low - high;
        }
        workgroupBarrier();
    }
    for (var i = lane; i < params.out.dim; i += LANES) {
        row[i] *= params.factor;
    }
    workgroupBarrier();
}

fn round_blocks(lane: u32) {
    let block = code_block(params.kind);
    for (var i = lane; i * block < params.rounded; i += LANES) {
        var largest = 0u;
        for (var at = i * block; at < min((i + 1u) * block, params.rounded); at++) {
            largest = max(largest, bitcast<u32>(row[at]) & 0x7fffffffu);
        }
        exponents[i] = scale_exponent(params.kind, largest);
    }
    workgroupBarrier();
    for (var i = lane; i < params.rounded; i += LANES) {
        row[i] = bitcast<f32>(rounded_bits(params.kind, row[i], exponents[i / block]));
    }
    workgroupBarrier();
}

fn store(sequence: u32, number: u32, lane: u32) {
    let rows = params.out;
    let spot = row_place(rows, number);
    let offset = row_at(rows, block_of(rows.group, sequence, spot.x), spot.y);
    for (var word = lane; word < rows.row_words; word += LANES) {
        let first = word * values_per_word(rows.form);
        var next = 0.0;
        if first + 1u < rows.dim {
            next = row[first + 1u];
        }
        out[offset + word] = row_pack(rows, row[first], next);
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = group.x; i < params.count; i += groups.x) {
        let listed = params.list_at + i * (2u + 2u * params.pairs);
        let sequence = inbox[listed];
        let number = inbox[listed + 1u];
        for (var channel = lane; channel < params.out.dim; channel += LANES) {
            row[channel] = pool(sequence, number, channel);
        }
        workgroupBarrier();
        if params.normed != 0u {
            normalise(lane);
        }
        rotate(listed + 2u, lane);
        if params.transform != 0u {
            transform(lane);
        }
        round_blocks(lane);
        store(sequence, number, lane);
    }
}
