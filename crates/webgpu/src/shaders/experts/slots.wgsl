// Gives the choices of an expert their slots.
fn each(expert: u32, range: vec2<u32>, lane: u32) {
    var slot = plan[params.starts_at + expert] + count_before(lane);
    for (var at = range.x; at < range.y; at++) {
        if choices[3u * at] == params.first + expert {
            choices[3u * at + 2u] = slot;
            plan[params.rows_at + slot] = at / params.chosen;
            plan[params.experts_at + slot] = expert;
            plan[params.weights_at + slot] = choices[3u * at + 1u];
            slot += 1u;
        }
    }
}
