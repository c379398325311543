// Positions that rows attend to, in spans that are aligned to absolute positions. A kernel that
// includes this part has `window` and `is_chunk` in its parameters.
const SPAN = 512u;
// In place of the largest score where there is none.
const NO_SCORE = -3.4028234e38;

// The first position that a row at `position` sees.
fn first_seen(position: u32) -> u32 {
    if params.is_chunk != 0u {
        return position - position % params.window;
    }
    return position - min(position, params.window - 1u);
}
