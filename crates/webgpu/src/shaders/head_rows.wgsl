// Rows of x, `[rows, heads * dim]`, and their places as keys or values in the cache.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> cached: array<u32>;

// The first word of unit `unit` of all rows, a head of a row each.
fn unit_at(unit: u32) -> u32 {
    let row = unit / params.heads;
    let position = row_position(row);
    let block = block_of(params.group, row_sequence(row), position / params.block);
    let head = block * params.heads + unit % params.heads;
    return (head * params.block + position % params.block) * params.row_words;
}
