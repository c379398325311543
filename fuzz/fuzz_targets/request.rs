//! Any bytes as the body of a request, and as a file of API keys.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    server::check_body(data);
    let _ = server::check_key_file(&String::from_utf8_lossy(data));
});
