//! Any bytes as a file of importance, of the older form or GGUF.
#![no_main]

use formats::imatrix::Imatrix;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = std::env::temp_dir().join(format!("gannet-fuzz-{}.imatrix", std::process::id()));
    std::fs::write(&path, data).expect("the temporary folder is writable");
    let Ok(imatrix) = Imatrix::open(&path) else { return };
    for entry in imatrix.entries.values() {
        assert_eq!(entry.means().len(), entry.sums.len());
    }
});
