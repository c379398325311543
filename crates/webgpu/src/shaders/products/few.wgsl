// Few rows: an invocation for each output and span, for all rows of the tile.
const LANES = 128u;
var<workgroup> shared_tile: Tile;
var<workgroup> starts: array<u32, ROWS>;
// The sums of spans: [row][output][span].
var<workgroup> parts: array<f32, ROWS * LANES>;

@compute @workgroup_size(LANES)
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
        let outputs = LANES / params.span_lanes;
        for (var at = group.y * outputs; at < params.outputs; at += groups.y * outputs) {
            add_spans(tile, at, lane);
        }
        workgroupBarrier();
    }
}

// Computes outputs from `first` on. Then each lane adds up the spans of a row and an output.
fn add_spans(tile: Tile, first: u32, lane: u32) {
    let lanes = params.span_lanes;
    let outputs = LANES / lanes;
    let output = first + lane / lanes;
    let spans = span_count();
    var total = 0.0;
    for (var start = 0u; start < spans; start += lanes) {
        let span = start + lane % lanes;
        if tile.rows > 0u && output < params.outputs && span < spans {
            add_span(tile, output, span, lane);
        }
        workgroupBarrier();
        if lane < ROWS * outputs {
            for (var at = 0u; at < min(lanes, spans - start); at++) {
                total += parts[lane * lanes + at];
            }
        }
        workgroupBarrier();
    }
    if lane / outputs < tile.rows && first + lane % outputs < params.outputs {
        write(tile, lane / outputs, first + lane % outputs, total);
    }
}

// Leaves the sums of a span in `parts`.
fn add_span(tile: Tile, output: u32, span: u32, lane: u32) {
    let place = place_of(tile.weights_at + output * params.weights_row, span);
    var sums: array<Sum, ROWS>;
    for (var row = 0u; row < ROWS; row++) {
        sums[row] = Sum();
    }
    for (var piece = 0u; piece < PIECES * blocks_of(span); piece++) {
        let w = load_weights(place, piece);
        for (var row = 0u; row < ROWS; row++) {
            if row < tile.rows {
                sums[row] = add(sums[row], w, load_inputs(place_of(starts[row], span), piece));
            }
        }
    }
    for (var row = 0u; row < ROWS; row++) {
        parts[row * LANES + lane] = fold(sums[row]);
    }
}
