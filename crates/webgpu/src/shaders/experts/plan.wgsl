// The plan of a layer's experts: choices of held experts become slots, in order of experts and then
// of rows, and slots become tiles.
struct Params {
    // Choices of all rows, and choices of a row.
    choices: u32,
    chosen: u32,
    // First expert held, and how many are.
    first: u32,
    held: u32,
    // Rows of a tile, and most tiles.
    tile_rows: u32,
    tiles: u32,
    // Where parts of the plan begin: slots of each expert, the first slot of each, tiles (expert,
    // first slot, slots), the row, the expert and the weight of each slot. Word 0 is the number of
    // slots.
    counts_at: u32,
    starts_at: u32,
    tiles_at: u32,
    rows_at: u32,
    experts_at: u32,
    weights_at: u32,
}
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> choices: array<u32>;
@group(0) @binding(1) var<storage, read_write> plan: array<u32>;
