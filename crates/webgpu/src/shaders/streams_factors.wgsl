// Factors of streams from products z: of the streams that are read and, unless only these are
// wanted, of what is written, and a mixing matrix [streams, streams] that Sinkhorn's iterations
// normalise. A workgroup computes a row of the batch; a lane sums a row or a column of the matrix in
// ascending order.
@group(0) @binding(0) var<storage, read_write> z: array<f32>;
@group(0) @binding(1) var<storage, read> base: array<f32>;
@group(0) @binding(2) var<storage, read> scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const LANES = 32u;
// The square of the most streams.
const ENTRIES = 256u;
var<workgroup> matrix: array<f32, ENTRIES>;

fn logit(row: u32, at: u32, part: u32) -> f32 {
    return fma(z[row * params.width + at], scale[part], base[at]);
}

// A softmax of row `lane` of the matrix, plus eps.
fn soften(lane: u32) {
    let n = params.streams;
    let start = lane * n;
    var most = matrix[start];
    for (var i = 1u; i < n; i++) {
        most = max(most, matrix[start + i]);
    }
    var sum = 0.0;
    for (var i = 0u; i < n; i++) {
        let value = exp_to_one(matrix[start + i] - most);
        matrix[start + i] = value;
        sum += value;
    }
    for (var i = 0u; i < n; i++) {
        matrix[start + i] = matrix[start + i] / sum + params.eps;
    }
}

// Divides the values from `start` on, `stride` apart, by their sum plus eps.
fn divide(start: u32, stride: u32) {
    var sum = 0.0;
    for (var i = 0u; i < params.streams; i++) {
        sum += matrix[start + i * stride];
    }
    sum += params.eps;
    for (var i = 0u; i < params.streams; i++) {
        matrix[start + i * stride] /= sum;
    }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let n = params.streams;
    for (var row = group.x; row < params.rows; row += groups.x) {
        let start = row * params.out_width;
        if lane < n {
            out[start + lane] = sigmoid(logit(row, lane, 0u)) + params.eps;
        }
        if params.kind == FACTORS_HEAD {
            continue;
        }
        if params.kind == FACTORS_APART {
            if lane < n {
                out[start + n + lane] =
                    fma(params.magnitude, sigmoid(logit(row, n + lane, 1u)), params.eps);
            }
            for (var i = lane; i < n * n; i += LANES) {
                out[start + 2u * n + i] = select(0.0, 1.0, i % (n + 1u) == 0u);
            }
            continue;
        }
        if lane < n {
            out[start + n + lane] = 2.0 * sigmoid(logit(row, n + lane, 1u));
        }
        for (var i = lane; i < n * n; i += LANES) {
            matrix[i] = logit(row, 2u * n + i, 2u);
        }
        workgroupBarrier();
        if lane < n {
            soften(lane);
        }
        workgroupBarrier();
        for (var iteration = 0u; iteration < params.iterations; iteration++) {
            if iteration > 0u && lane < n {
                divide(lane * n, 1u);
            }
            workgroupBarrier();
            if lane < n {
                divide(lane, n);
            }
            workgroupBarrier();
        }
        for (var i = lane; i < n * n; i += LANES) {
            out[start + 2u * n + i] = matrix[i];
        }
        workgroupBarrier();
    }
}
