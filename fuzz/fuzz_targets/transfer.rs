//! Any bytes as a file of extents that `gannet cache import` reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::TransferReader;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = TransferReader::new(data) else { return };
    while let Ok(Some((header, bytes))) = reader.next_extent() {
        let blocks = header.outline.blocks as u64;
        assert_eq!(bytes.len() as u64, blocks * header.outline.block_bytes());
        assert_eq!(header.blocks.len() as u64, blocks);
    }
});
