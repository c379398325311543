//! Any bytes as the header of an extent, with the length that the header names and with its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::Header;

fuzz_target!(|data: &[u8]| {
    for length in [data.len() as u64, u64::MAX] {
        let Ok(bytes) = Header::bytes_of(data, length) else { continue };
        let Some(header) = data.get(..bytes) else { continue };
        if let Ok(header) = Header::decode(header, length) {
            assert_eq!(header.file_bytes(), length);
            assert_eq!(header.encode(), &data[..bytes]);
        }
    }
});
