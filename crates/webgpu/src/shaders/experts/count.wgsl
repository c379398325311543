// Counts the slots of each expert.
fn each(expert: u32, range: vec2<u32>, lane: u32) {
    if lane == 0u {
        plan[params.counts_at + expert] = count_before(LANES);
    }
}
