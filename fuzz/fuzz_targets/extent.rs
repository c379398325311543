//! Any bytes as the header of an extent, sealed or not, with the length that the header names and
//! with its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use store::{Header, Outline, StoreKey};

fuzz_target!(|data: &[u8]| {
    let key = StoreKey::new(&[7; StoreKey::BYTES]);
    for (length, key) in
        [(data.len() as u64, None), (u64::MAX, None), (data.len() as u64, Some(&key))]
    {
        let Ok(bytes) = Outline::bytes_of(data, length) else { continue };
        let Some(header) = data.get(..bytes) else { continue };
        if let Ok(header) = Header::decode(header, length, key) {
            assert_eq!(header.outline.file_bytes(), length);
            assert_eq!(header.encode(key), &data[..bytes]);
        }
    }
});
