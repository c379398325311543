// Combines spans of each row and head in ascending order, and at the end its sink.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;
// Largest score, sum of weights and weighted values of `[rows, heads, space]`.
@group(0) @binding(2) var<storage, read_write> partials: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

// Column `i` of the heads of all rows.
fn each(i: u32) {
    let column = i % params.value_dim;
    let unit = i / params.value_dim;
    let position = row_position(params.first_row + unit / params.heads);
    let spans = position / SPAN - first_seen(position) / SPAN + 1u;
    let len = params.value_dim + 2u;
    let end = unit * params.space + params.space;
    let at_once = params.space - 2u;
    var most = NO_SCORE;
    var total = 0.0;
    var sum = 0.0;
    if params.first_span > 0u {
        let carried = (end - 1u - params.first_span / at_once % 2u) * len;
        most = partials[carried];
        total = partials[carried + 1u];
        sum = partials[carried + 2u + column];
    }
    for (var span = params.first_span; span < min(spans, params.last_span); span++) {
        let start = (unit * params.space + span - params.first_span) * len;
        let larger = max(most, partials[start]);
        let before = exp_to_one(most - larger);
        let here = exp_to_one(partials[start] - larger);
        most = larger;
        total = fma(partials[start + 1u], here, total * before);
        sum = fma(partials[start + 2u + column], here, sum * before);
    }
    if spans > params.last_span {
        let carried = (end - 1u - params.last_span / at_once % 2u) * len;
        partials[carried] = most;
        partials[carried + 1u] = total;
        partials[carried + 2u + column] = sum;
        return;
    }
    if params.has_sinks != 0u {
        let sink = sinks[unit % params.heads];
        let larger = max(most, sink);
        let before = exp_to_one(most - larger);
        total = fma(total, before, exp_to_one(sink - larger));
        sum *= before;
    }
    out[params.first_row * params.heads * params.value_dim + i] = sum / total;
}
