// The batch of a step. A kernel that includes this part has it as `batch: array<u32>`, and the
// fields of `Places` as `places` in its parameters.

fn row_position(row: u32) -> u32 {
    return batch[2u * row];
}

fn row_sequence(row: u32) -> u32 {
    return batch[2u * row + 1u];
}

// Word `field` of a sequence: 0 first row, 1 rows, 2 first position, 3 state slot, 4 right guesses,
// 5 guesses, 6 place of its saves (row and slot each), 7 number of saves.
fn sequence_word(sequence: u32, field: u32) -> u32 {
    return batch[params.places.sequences_at + 8u * sequence + field];
}

// The first row that a query at `position` may attend to, of rows of `every` positions each, where
// positions before `first` have no rows.
fn first_row(position: u32, every: u32, first: u32) -> u32 {
    let complete = (position + 1u) / every;
    return min((first + every - 1u) / every, max(complete, 1u) - 1u);
}

// The block with index `index` in the table of a sequence in a group of rows.
fn block_of(group: u32, sequence: u32, index: u32) -> u32 {
    let start = batch[params.places.tables_at + group * params.places.sequences + sequence];
    return batch[start + index];
}
