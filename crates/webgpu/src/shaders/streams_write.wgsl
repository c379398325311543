// x[d] = post[d] * y + sum of C[s][d] * x[s] over the streams, ascending. An invocation owns a
// column of all streams of a row.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// The most streams.
const MAX_STREAMS = 16u;

fn each(i: u32) {
    let n = params.streams;
    let row = i / params.width;
    let start = row * params.width * n + i % params.width;
    let post = row * params.factors_width + n;
    let mixing = post + n;
    var before: array<f32, MAX_STREAMS>;
    for (var s = 0u; s < n; s++) {
        before[s] = x[start + s * params.width];
    }
    let value = y[i];
    for (var d = 0u; d < n; d++) {
        var sum = factors[post + d] * value;
        for (var s = 0u; s < n; s++) {
            sum = fma(factors[mixing + s * n + d], before[s], sum);
        }
        x[start + d * params.width] = sum;
    }
}
