// Copies words within one run.
@group(0) @binding(0) var<storage, read_write> words: array<u32>;

fn each(i: u32) {
    words[params.to_at + i] = words[params.from_at + i];
}
