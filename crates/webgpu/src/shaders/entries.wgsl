// What the rows of a batch attend to: compressed rows, then the rows of a window. Scores, which
// become weights, are `[rows, heads, stride]` from row `first` on.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
@group(0) @binding(1) var<storage, read_write> compressed: array<u32>;
@group(0) @binding(2) var<storage, read_write> window: array<u32>;
@group(0) @binding(3) var<storage, read_write> numbers: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;

// The entries of a row of the batch.
struct Entries {
    row: u32,
    sequence: u32,
    // The first compressed row, the number of these, and that of all entries.
    start: u32,
    compressed: u32,
    count: u32,
    // Whether runs of compressed rows are listed, and the first row after the last complete run,
    // counted from the first one.
    listed: bool,
    rest: u32,
    // The first position of the window.
    oldest: u32,
}

// Where an entry lies.
struct Entry {
    in_window: bool,
    offset: u32,
}

fn entries_of(row: u32) -> Entries {
    let position = row_position(row);
    let start = first_row(position, params.compressed.every, params.first_position);
    let present = (position + 1u) / params.compressed.every - start;
    let runs = (max(present, params.own) - params.own) / params.run;
    let rest = runs * params.run;
    let listed = runs > params.limit;
    var few = present;
    if params.limit == 0u {
        few = 0u;
    } else if listed {
        few = params.limit * params.run + present - rest;
    }
    // Without a window it is after all positions.
    let first = min(params.first_position, position);
    let oldest = max(position + 1u - min(position + 1u, params.seen), first);
    let seen = position + 1u - oldest;
    let sequence = row_sequence(row);
    return Entries(row, sequence, start, few, few + seen, listed, rest, oldest);
}

fn entry_at(entries: Entries, index: u32) -> Entry {
    if index >= entries.compressed {
        let position = entries.oldest + index - entries.compressed;
        let spot = row_place(params.window, position);
        let block = block_of(params.window.group, entries.sequence, spot.x);
        return Entry(true, row_at(params.window, block, spot.y));
    }
    var number = index;
    if entries.listed {
        let chosen = index / params.run;
        if chosen < params.limit {
            number = numbers[entries.row * params.limit + chosen] * params.run + index % params.run;
        } else {
            number = entries.rest + index - params.limit * params.run;
        }
    }
    let spot = row_place(params.compressed, entries.start + number);
    let block = block_of(params.compressed.group, entries.sequence, spot.x);
    return Entry(false, row_at(params.compressed, block, spot.y));
}

fn entry_value(entry: Entry, channel: u32) -> f32 {
    if entry.in_window {
        let word = row_word(params.window, entry.offset, channel);
        return row_value(params.window, window[word], channel);
    }
    let word = row_word(params.compressed, entry.offset, channel);
    return row_value(params.compressed, compressed[word], channel);
}

// The scores of a head.
fn scores_at(row: u32, head: u32) -> u32 {
    return ((row - params.first) * params.heads + head) * params.stride;
}
