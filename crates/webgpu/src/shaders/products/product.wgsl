// Products of rows of inputs with rows of weights: what both ways through them share.
//
// Groups are weights by themselves with rows of inputs of their own: heads, experts, or one matrix.
// A tile is some rows of a group. Weights and inputs are cut into spans of eight blocks of 32
// inputs. A word of a span lies beside the same word of the next span, so that neighbouring
// invocations, which have neighbouring spans, read neighbouring words.
//
// One order for every output: the pieces of a span are added in ascending order, then the sums of
// the spans.
@group(0) @binding(0) var<storage, read_write> inputs: array<u32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read_write> plan: array<u32>;

const NONE = 0xffffffffu;
const SPAN = 8u;

// Rows of a group whose weights begin at a word.
struct Tile {
    group: u32,
    first: u32,
    rows: u32,
    weights_at: u32,
}

// Where a span of a row lies: its first word, words from one to the next, and what blocks of the
// last span lack.
struct Place {
    start: u32,
    span: u32,
    spans: u32,
    // Blocks of the last span, which alone may have fewer than eight.
    last: u32,
}

fn span_count() -> u32 {
    return (params.blocks + SPAN - 1u) / SPAN;
}

// Blocks of a span.
fn blocks_of(span: u32) -> u32 {
    return min(SPAN, params.blocks - span * SPAN);
}

fn place_of(start: u32, span: u32) -> Place {
    let spans = span_count();
    return Place(start, span, spans, params.blocks - (spans - 1u) * SPAN);
}

// Words before those of block `block` of all spans, with `words` words each, and the words from one
// of this span to the next.
fn block_place(place: Place, block: u32, words: u32) -> vec2<u32> {
    let whole = min(block, place.last) * place.spans;
    let less = (max(block, place.last) - place.last) * (place.spans - 1u);
    let stride = select(place.spans - 1u, place.spans, block < place.last);
    return vec2(words * (whole + less), stride);
}

// Tile `index`; without rows if its weights are not in the chunk that is bound.
fn tile_of(index: u32) -> Tile {
    var tile: Tile;
    if params.tiles_at == NONE {
        let each = (params.rows + ROWS - 1u) / ROWS;
        tile.group = index / each;
        tile.first = index % each * ROWS;
        tile.rows = min(ROWS, params.rows - tile.first);
    } else {
        let at = params.tiles_at + 3u * index;
        tile.group = plan[at];
        tile.first = plan[at + 1u];
        tile.rows = plan[at + 2u];
    }
    let entry = params.table_at + 2u * tile.group;
    if tile.rows > 0u && table[entry] != params.chunk {
        tile.rows = 0u;
    }
    tile.weights_at = table[entry + 1u];
    return tile;
}

// The first word of the inputs of row `row` of a tile.
fn inputs_at(tile: Tile, row: u32) -> u32 {
    var place = tile.first + row;
    if params.rows_at != NONE {
        place = plan[params.rows_at + place];
    }
    return (place * params.row_step + tile.group * params.group_step) * params.inputs_row;
}

fn write(tile: Tile, row: u32, output: u32, value: f32) {
    let at = (tile.first + row) * params.out_row + params.out_first + tile.group * params.out_group;
    out[at + output] = value;
}
