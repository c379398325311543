// out = sum of factors[s] * x[s] over the streams, ascending.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn each(i: u32) {
    let row = i / params.width;
    let start = row * params.width * params.streams + i % params.width;
    var sum = 0.0;
    for (var s = 0u; s < params.streams; s++) {
        let factor = factors[row * params.factors_width + s];
        sum = fma(factor, x[start + s * params.width], sum);
    }
    out[i] = sum;
}
