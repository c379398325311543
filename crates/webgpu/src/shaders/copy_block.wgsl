// Copies words within one run.
struct Params { count: u32, from_at: u32, to_at: u32 }
var<immediate> params: Params;
@group(0) @binding(0) var<storage, read_write> words: array<u32>;

fn each(i: u32) {
    words[params.to_at + i] = words[params.from_at + i];
}
