// x = f(x, 1); kinds are those of `gate_kind` in rows.rs.
struct Params { count: u32, kind: u32, alpha: f32, limit: f32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;

fn each(i: u32) {
    x[i] = gated(params.kind, params.alpha, params.limit, x[i], 1.0);
}
