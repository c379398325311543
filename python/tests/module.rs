//! The library that Python loads. All else is tested from Python, in `tests/python`.

use std::path::PathBuf;

/// The library next to this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let name = format!("{}_gannet{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    test.with_file_name(name)
}

#[test]
fn the_library_is_a_module_of_python() {
    let path = library();
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let entry = b"PyInit__gannet\0";
    assert!(bytes.windows(entry.len()).any(|part| part == entry), "{}", path.display());
}
