//! The seeds and finds of the fuzzer of requests, replayed: nothing panics, good seeds work.

use std::path::Path;

#[test]
fn request_seeds_load_or_give_errors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/request");
    let mut good = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap();
        let is_body = server::check_body(&bytes);
        let has_keys = server::check_key_file(&String::from_utf8_lossy(&bytes)).is_ok();
        match () {
            () if name.starts_with("good_body") => assert!(is_body, "{name}"),
            () if name.starts_with("good_keys") => assert!(has_keys, "{name}"),
            () if name.starts_with("keys") => assert!(!has_keys, "{name}"),
            () => assert!(!is_body, "{name}"),
        }
        good += usize::from(name.starts_with("good"));
    }
    assert!(good >= 3, "too few good seeds in {}", folder.display());
}
