// Stores x, `[rows, heads * dim]`, as keys or values of F32, BF16 or F16.
// Word `i` of the heads of all rows.
fn each(i: u32) {
    let word = i % params.row_words;
    let unit = i / params.row_words;
    let to_at = unit_at(unit);
    let first = word * values_per_word(params.form);
    let start = unit * params.dim;
    var next = 0.0;
    if first + 1u < params.dim {
        next = x[start + first + 1u];
    }
    cached[to_at + word] = packed_word(params.form, x[start + first], next);
}
