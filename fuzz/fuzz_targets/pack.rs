//! Any bytes as a file of packed weights.
#![no_main]

use std::collections::HashSet;
use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok((_, parts)) = formats::pack::parse(data, Path::new("input.gpack")) else { return };
    assert!(parts.iter().all(|part| part.range.end <= data.len()));
    assert!(parts.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    let names: HashSet<_> = parts.iter().map(|part| (&part.name, part.index)).collect();
    assert_eq!(names.len(), parts.len());
});
