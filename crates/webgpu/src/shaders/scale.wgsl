// x = x * sigmoid(gate of the row).
struct Params { count: u32, width: u32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> gate: array<f32>;

fn each(i: u32) {
    x[i] *= sigmoid(gate[i / params.width]);
}
