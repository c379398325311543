// Copies slots of states, one pair (from, to) of the inbox after the other. An invocation copies
// the same value of all pairs, so that their order holds.
@group(0) @binding(0) var<storage, read_write> states: array<f32>;
@group(0) @binding(1) var<storage, read> inbox: array<u32>;

fn each(i: u32) {
    for (var pair = 0u; pair < params.pairs; pair++) {
        let at = params.pairs_at + 2u * pair;
        states[inbox[at + 1u] * params.count + i] = states[inbox[at] * params.count + i];
    }
}
