//! Any bytes as tokenizer.json, or as a GGUF vocabulary where they start like one; what loads
//! must encode and decode.
#![no_main]

use formats::gguf::GgufFile;
use libfuzzer_sys::fuzz_target;
use text::{EncodeOptions, GgufOptions, Tokenizer};

fuzz_target!(|data: &[u8]| {
    let Some(tokenizer) = load(data) else { return };
    if let Ok(ids) = tokenizer.encode("Hello, wörld 123 <|x|>", EncodeOptions::default()) {
        let _ = tokenizer.decode(&ids, false);
    }
});

fn load(data: &[u8]) -> Option<Tokenizer> {
    if !data.starts_with(b"GGUF") {
        return Tokenizer::from_json_bytes(data, None).ok();
    }
    let path = std::env::temp_dir().join(format!("gannet-fuzz-{}.gguf", std::process::id()));
    std::fs::write(&path, data).expect("the temporary folder is writable");
    Tokenizer::from_gguf(&GgufFile::open(&path).ok()?, &GgufOptions::default()).ok()
}
