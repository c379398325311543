// Rounds the first `rounded` of `width` columns of each head in blocks, behind a Walsh-Hadamard
// transform where `transform` is not 0.
@group(0) @binding(0) var<storage, read_write> x: array<u32>;

const LANES = 64u;
// Most values of a head that are transformed.
const MAX_WIDTH = 2048u;
var<workgroup> head: array<f32, MAX_WIDTH>;
// Exponents of the scales of blocks that are rounded at once.
var<workgroup> exponents: array<u32, LANES>;

// Transforms the head at `start` in place, in natural order.
fn transform(start: u32, lane: u32) {
    for (var i = lane; i < params.rounded; i += LANES) {
        head[i] = bitcast<f32>(x[start + i]);
    }
    workgroupBarrier();
    for (var half = 1u; half < params.rounded; half *= 2u) {
        for (var pair = lane; pair < params.rounded / 2u; pair += LANES) {
            let low_at = pair / half * 2u * half + pair % half;
            let low = head[low_at];
            let high = head[low_at + half];
            head[low_at] = low + high;
            head[low_at + half] = low - high;
        }
        workgroupBarrier();
    }
    for (var i = lane; i < params.rounded; i += LANES) {
        x[start + i] = bitcast<u32>(head[i] * params.factor);
    }
    storageBarrier();
}

// Rounds the blocks of the head at `start`, as many as there are invocations at once.
fn round_blocks(start: u32, lane: u32) {
    let block = code_block(params.kind);
    for (var from_value = 0u; from_value < params.rounded; from_value += LANES * block) {
        let mine = from_value + lane * block;
        var largest = 0u;
        for (var i = mine; i < min(mine + block, params.rounded); i++) {
            largest = max(largest, x[start + i] & 0x7fffffffu);
        }
        exponents[lane] = scale_exponent(params.kind, largest);
        workgroupBarrier();
        let end = min(from_value + LANES * block, params.rounded);
        for (var i = from_value + lane; i < end; i += LANES) {
            let exponent = exponents[(i - from_value) / block];
            x[start + i] = rounded_bits(params.kind, bitcast<f32>(x[start + i]), exponent);
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var unit = group.x; unit < params.units; unit += groups.x) {
        let start = unit / params.heads * params.row_width
            + params.first
            + unit % params.heads * params.stride;
        if params.transform != 0u {
            transform(start, lane);
        }
        round_blocks(start, lane);
    }
}
