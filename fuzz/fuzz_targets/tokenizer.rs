//! Any bytes as tokenizer.json; what loads must encode and decode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use text::{EncodeOptions, Tokenizer};

fuzz_target!(|data: &[u8]| {
    let Ok(tokenizer) = Tokenizer::from_json_bytes(data, None) else { return };
    if let Ok(ids) = tokenizer.encode("Hello, wörld 123 <|x|>", EncodeOptions::default()) {
        let _ = tokenizer.decode(&ids, false);
    }
});
