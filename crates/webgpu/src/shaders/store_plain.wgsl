// Stores x, `[rows, dim]`, as plain rows, one for each position of the batch.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> cached: array<u32>;

// Word `i` of all rows.
fn each(i: u32) {
    let rows = params.cached;
    let row = i / rows.row_words;
    let word = i % rows.row_words;
    let spot = row_place(rows, row_position(row));
    let block = block_of(rows.group, row_sequence(row), spot.x);
    let first = word * values_per_word(rows.form);
    let start = row * rows.dim;
    var next = 0.0;
    if first + 1u < rows.dim {
        next = x[start + first + 1u];
    }
    cached[row_at(rows, block, spot.y) + word] = row_pack(rows, x[start + first], next);
}
