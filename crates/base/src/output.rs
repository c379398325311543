//! Names of files that are written.

use std::io;
use std::path::Path;

/// Checks that `path` names a file: `-` means standard output elsewhere, where no file is written.
///
/// # Errors
///
/// If it is `-`.
pub fn check_output(path: &Path) -> io::Result<()> {
    if path == Path::new("-") {
        let problem = "-: expected the name of a file, not standard output; ./- names a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(())
}
