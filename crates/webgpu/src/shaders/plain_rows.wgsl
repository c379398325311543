// Plain rows of the cache. A kernel that includes this part, behind stored.wgsl, has what
// `CachedRows::plain` gives as a field of type `PlainPlaces` in its parameters, the device memory of
// the rows as an `array<u32>` of its own name, and the batch where it looks blocks up.
//
//   let spot = row_place(rows, number);                    index in the block table, place
//   let block = block_of(rows.group, sequence, spot.x);    step.wgsl
//   let offset = row_at(rows, block, spot.y);
//   let value = row_value(rows, memory[row_word(rows, offset, i)], i);
//   memory[offset + w] = row_pack(rows, x[n * w], x[n * w + 1]) for word w of n values a word.

// Index of the block in the block table, and place in the block, of row `number` of a sequence.
fn row_place(rows: PlainPlaces, number: u32) -> vec2<u32> {
    let index = ((number + 1u) * rows.every - 1u) / rows.block;
    return vec2(index, number - index * rows.block / rows.every);
}

// The first word of the row in a block.
fn row_at(rows: PlainPlaces, block: u32, place: u32) -> u32 {
    return (block * rows.places + place) * rows.row_words;
}

// The word that holds value `i` of the row that begins at `offset`.
fn row_word(rows: PlainPlaces, offset: u32, i: u32) -> u32 {
    return offset + i / values_per_word(rows.form);
}

// Value `i` of a row, of the word that holds it.
fn row_value(rows: PlainPlaces, word: u32, i: u32) -> f32 {
    let values = unpacked_word(rows.form, word);
    return select(values.x, values.y, rows.form != 0u && (i & 1u) == 1u);
}

// The word of values `i` and `i + 1` of a row for even `i`, 0 in place of one behind the last; of
// value `i` alone for F32.
fn row_pack(rows: PlainPlaces, value: f32, next: f32) -> u32 {
    return packed_word(rows.form, value, next);
}
