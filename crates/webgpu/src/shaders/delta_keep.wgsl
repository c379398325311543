// Keeps the inputs of guessed rows beside their slot: keys, values, decays and betas.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> waiting: array<f32>;
@group(0) @binding(2) var<storage, read_write> k: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read_write> decays: array<f32>;
@group(0) @binding(5) var<storage, read_write> betas: array<f32>;

fn each(i: u32) {
    let at = i % params.waiting_row;
    let guess = i / params.waiting_row % params.most;
    let sequence = i / params.waiting_row / params.most;
    let guesses = sequence_word(sequence, 5u);
    if guess >= guesses {
        return;
    }
    let row = sequence_word(sequence, 0u) + sequence_word(sequence, 1u) - guesses + guess;
    let slot = sequence_word(sequence, 3u);
    var value: f32;
    if at < params.keys {
        value = k[row * params.keys + at];
    } else if at < params.keys + params.values {
        value = v[row * params.values + at - params.keys];
    } else {
        let gate = at - params.keys - params.values;
        if gate < params.decays {
            value = decays[row * params.decays + gate];
        } else {
            value = betas[row * params.heads + gate - params.decays];
        }
    }
    waiting[(slot * params.guesses + guess) * params.waiting_row + at] = value;
}
