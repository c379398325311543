// Products of two tiles in workgroup memory, for workgroups of LANES invocations: 32 rows on each
// side and a step of 32 of what is summed. Each invocation has four rows of either side.
const LANES = 64u;
const TILE = 32u;
// Rows lie one word apart from whole banks of memory.
const STRIDE = 33u;
// `[step][row]`.
var<workgroup> left: array<f32, TILE * STRIDE>;
var<workgroup> right: array<f32, TILE * STRIDE>;

// Sums of four rows of the left side, with four rows of the right side each.
struct Sums {
    first: vec4<f32>,
    second: vec4<f32>,
    third: vec4<f32>,
    fourth: vec4<f32>,
}

// The first row of an invocation on the left side.
fn left_row(lane: u32) -> u32 {
    return lane / 8u * 4u;
}

// The first row of an invocation on the right side.
fn right_row(lane: u32) -> u32 {
    return lane % 8u * 4u;
}

// The sums with the products of both tiles added in ascending order.
fn add_products(lane: u32, before: Sums) -> Sums {
    var sums = before;
    for (var step = 0u; step < TILE; step++) {
        let a = step * STRIDE + left_row(lane);
        let b = step * STRIDE + right_row(lane);
        let values = vec4(right[b], right[b + 1u], right[b + 2u], right[b + 3u]);
        sums.first = fma(vec4(left[a]), values, sums.first);
        sums.second = fma(vec4(left[a + 1u]), values, sums.second);
        sums.third = fma(vec4(left[a + 2u]), values, sums.third);
        sums.fourth = fma(vec4(left[a + 3u]), values, sums.fourth);
    }
    return sums;
}

fn no_sums() -> Sums {
    return Sums(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
}
