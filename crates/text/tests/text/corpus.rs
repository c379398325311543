//! The seeds and finds of the tokenizer's fuzzer, replayed: nothing panics, valid seeds work.

use formats::gguf::GgufFile;
use std::path::Path;
use text::{EncodeOptions, GgufOptions, Tokenizer};

fn load(path: &Path) -> Result<Tokenizer, String> {
    if path.extension().is_some_and(|extension| extension == "gguf") {
        let file = GgufFile::open(path).map_err(|e| e.to_string())?;
        return Tokenizer::from_gguf(&file, &GgufOptions::default()).map_err(|e| e.to_string());
    }
    Tokenizer::from_json_bytes(&std::fs::read(path).unwrap(), None).map_err(|e| e.to_string())
}

#[test]
fn tokenizer_seeds_load_or_give_errors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tokenizer");
    let mut valid = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let loaded = load(&path);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(loaded.is_ok(), name.starts_with("good"), "{name}: {:?}", loaded.err());
        if let Ok(tokenizer) = loaded {
            let text = "Hello, w\u{f6}rld 123 <|x|>";
            let encoded = tokenizer.encode(text, EncodeOptions::default());
            let _ = encoded.map(|ids| tokenizer.decode(&ids, false));
            valid += 1;
        }
    }
    assert!(valid >= 3, "too few valid seeds in {}", folder.display());
}
