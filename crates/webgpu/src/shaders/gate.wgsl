// gate = f(gate, up); kinds are those of `gate_kind` in rows.rs.
struct Params { count: u32, kind: u32, alpha: f32, limit: f32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> gate: array<f32>;
@group(0) @binding(1) var<storage, read_write> up: array<f32>;

fn each(i: u32) {
    gate[i] = gated(params.kind, params.alpha, params.limit, gate[i], up[i]);
}
