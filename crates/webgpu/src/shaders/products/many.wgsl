// Many rows: tiles of outputs and rows, whose weights and inputs pass through workgroup memory.
// Each invocation computes four outputs of four rows.
const OUTPUTS = 64u;
const INVOCATIONS = 128u;
// Pieces between barriers.
const STEP = 2u;
var<workgroup> shared_tile: Tile;
var<workgroup> starts: array<u32, ROWS>;
var<workgroup> some_weights: array<Weights, STEP * OUTPUTS>;
var<workgroup> some_inputs: array<Inputs, STEP * ROWS>;

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var index = group.x; index < params.tiles; index += groups.x) {
        if lane == 0u {
            shared_tile = tile_of(index);
        }
        let tile = workgroupUniformLoad(&shared_tile);
        if lane < tile.rows {
            starts[lane] = inputs_at(tile, lane);
        }
        workgroupBarrier();
        if tile.rows > 0u {
            for (var at = group.y * OUTPUTS; at < params.outputs; at += groups.y * OUTPUTS) {
                add_tile(tile, at, lane);
            }
        }
        workgroupBarrier();
    }
}

// Computes outputs from `first` on.
fn add_tile(tile: Tile, first: u32, lane: u32) {
    let spans = span_count();
    var totals: array<f32, 16>;
    for (var at = 0u; at < 16u; at++) {
        totals[at] = 0.0;
    }
    for (var span = 0u; span < spans; span++) {
        var sums: array<Sum, 16>;
        for (var at = 0u; at < 16u; at++) {
            sums[at] = Sum();
        }
        let pieces = PIECES * blocks_of(span);
        for (var piece = 0u; piece < pieces; piece += STEP) {
            let count = min(STEP, pieces - piece);
            load_pieces(tile, first, span, vec2(piece, count), lane);
            workgroupBarrier();
            for (var step = 0u; step < count; step++) {
                let w0 = some_weights[step * OUTPUTS + lane % 16u];
                let w1 = some_weights[step * OUTPUTS + lane % 16u + 16u];
                let w2 = some_weights[step * OUTPUTS + lane % 16u + 32u];
                let w3 = some_weights[step * OUTPUTS + lane % 16u + 48u];
                for (var at = 0u; at < 16u; at += 4u) {
                    let x = some_inputs[step * ROWS + lane / 16u * 4u + at / 4u];
                    sums[at] = add(sums[at], w0, x);
                    sums[at + 1u] = add(sums[at + 1u], w1, x);
                    sums[at + 2u] = add(sums[at + 2u], w2, x);
                    sums[at + 3u] = add(sums[at + 3u], w3, x);
                }
            }
            workgroupBarrier();
        }
        for (var at = 0u; at < 16u; at++) {
            totals[at] += fold(sums[at]);
        }
    }
    for (var at = 0u; at < 16u; at++) {
        let output = first + lane % 16u + 16u * (at % 4u);
        let row = lane / 16u * 4u + at / 4u;
        if row < tile.rows && output < params.outputs {
            write(tile, row, output, totals[at]);
        }
    }
}

// Brings `pieces.y` pieces from `pieces.x` on; past the ends those of the last output and row.
fn load_pieces(tile: Tile, first: u32, span: u32, pieces: vec2<u32>, lane: u32) {
    let step = lane / OUTPUTS;
    if step < pieces.y {
        let output = min(first + lane % OUTPUTS, params.outputs - 1u);
        let place = place_of(tile.weights_at + output * params.weights_row, span);
        some_weights[lane] = load_weights(place, pieces.x + step);
    }
    if lane < ROWS * pieces.y {
        let row = min(lane % ROWS, tile.rows - 1u);
        some_inputs[lane] = load_inputs(place_of(starts[row], span), pieces.x + lane / ROWS);
    }
}
