// Sums the outputs of the experts of each row, in ascending order of their numbers, with their
// weights unless these are those of the inputs.
@group(0) @binding(0) var<storage, read_write> choices: array<u32>;
@group(0) @binding(1) var<storage, read_write> down: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const NONE = 0xffffffffu;

fn each(i: u32) {
    let row = i / params.width;
    let column = i % params.width;
    var sum = 0.0;
    for (var at = row * params.chosen; at < (row + 1u) * params.chosen; at++) {
        let slot = choices[3u * at + 2u];
        if slot != NONE {
            var value = down[slot * params.width + column];
            if params.biased != 0u {
                value += bias[(choices[3u * at] - params.first) * params.width + column];
            }
            let weight = select(bitcast<f32>(choices[3u * at + 1u]), 1.0, params.weighed != 0u);
            sum = fma(weight, value, sum);
        }
    }
    out[i] = sum;
}
