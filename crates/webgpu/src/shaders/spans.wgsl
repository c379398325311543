// Positions that rows attend to, in spans that are aligned to absolute positions. A kernel that
// includes this part has `window`, `is_chunk` and `first_position` in its parameters.
const SPAN = 512u;
// In place of the largest score where there is none.
const NO_SCORE = -3.4028234e38;

// The first position that a row at `position` sees.
fn first_seen(position: u32) -> u32 {
    let first = min(params.first_position, position);
    if params.is_chunk != 0u {
        return max(position - position % params.window, first);
    }
    return max(position - min(position, params.window - 1u), first);
}
