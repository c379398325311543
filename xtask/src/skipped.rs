//! The tests that were skipped for want of fixtures, as `crates/fixtures` records them.

use std::io::{ErrorKind, Result};
use std::path::Path;

/// The recorded tests in order; the records are removed, so that the next run counts afresh.
///
/// # Errors
///
/// Where the folder exists and cannot be read or removed.
pub fn take(records: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(records) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.sort();
    std::fs::remove_dir_all(records)?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("skipped");
        std::fs::create_dir(&records).unwrap();
        for name in ["vocab.b", "vocab.a"] {
            std::fs::write(records.join(name), "").unwrap();
        }
        assert_eq!(take(&records).unwrap(), ["vocab.a", "vocab.b"]);
        assert!(take(&records).unwrap().is_empty());
    }
}
