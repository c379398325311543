// Stores x, `[rows, heads * dim]`, as keys or values of F32, BF16 or F16.
struct Params {
    places: Places,
    count: u32,
    group: u32,
    block: u32,
    heads: u32,
    dim: u32,
    row_words: u32,
    form: u32,
}
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> cached: array<u32>;

// Word `i` of the heads of all rows.
fn each(i: u32) {
    let word = i % params.row_words;
    let unit = i / params.row_words;
    let row = unit / params.heads;
    let position = row_position(row);
    let block = block_of(params.group, row_sequence(row), position / params.block);
    let head = block * params.heads + unit % params.heads;
    let to_at = (head * params.block + position % params.block) * params.row_words;
    let first = word * values_per_word(params.form);
    let start = unit * params.dim;
    var next = 0.0;
    if first + 1u < params.dim {
        next = x[start + first + 1u];
    }
    cached[to_at + word] = packed_word(params.form, x[start + first], next);
}
