// out = sum of weight[j] * x[t - kernel + 1 + j] + bias of each channel, or the silu of that, over
// the stored rows of a sequence. Positions before the first count as zero.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> cached: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let rows = params.cached;
    let channel = i % rows.dim;
    let row = i / rows.dim;
    let position = row_position(row);
    let sequence = row_sequence(row);
    var sum = 0.0;
    for (var tap = 0u; tap < params.kernel; tap++) {
        let back = params.kernel - 1u - tap;
        if back <= position {
            let spot = row_place(rows, position - back);
            let offset = row_at(rows, block_of(rows.group, sequence, spot.x), spot.y);
            let value = row_value(rows, cached[row_word(rows, offset, channel)], channel);
            sum = fma(weight[tap * rows.dim + channel], value, sum);
        }
    }
    if params.biased != 0u {
        sum += bias[channel];
    }
    out[i] = select(sum, sum * sigmoid(sum), params.silu != 0u);
}
