// Takes inputs as they are, zeros filling the last block.
fn each(i: u32) {
    let cols = 32u * params.blocks;
    let index = i / cols;
    let column = i % cols;
    if !is_row(index) {
        return;
    }
    let spans = (params.blocks + 7u) / 8u;
    let start = index * 256u * spans + column % 256u * spans + column / 256u;
    out[start] = bitcast<u32>(input(row_of(index), column));
}
