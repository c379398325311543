//! The error type of this crate.
//!
//! Invariant: every message names the file, the field or tensor, what was expected and what was
//! found.

use std::io;
use std::path::{Path, PathBuf};

/// Why a checkpoint, or one of its files, could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// `read`, `write`, `list`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file as a whole is invalid.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was expected and found.
        problem: String,
    },
    /// One field of a configuration or one metadata key.
    #[error("{}: {field}: {problem}", path.display())]
    Field {
        /// The file that holds the field.
        path: PathBuf,
        /// The field, with dots between levels.
        field: String,
        /// What was expected and found.
        problem: String,
    },
    /// One tensor.
    #[error("{}: tensor {tensor}: {problem}", path.display())]
    Tensor {
        /// The file that holds the tensor, or should hold it.
        path: PathBuf,
        /// The tensor as the file names it.
        tensor: String,
        /// What was expected and found.
        problem: String,
    },
    /// A model family that is not supported.
    #[error("{}: architecture {found} is not supported (supported: {supported})", path.display())]
    Architecture {
        /// The file that names the architecture.
        path: PathBuf,
        /// The name found.
        found: String,
        /// All supported names.
        supported: String,
    },
}

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "read", path: path.to_owned(), source }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "write", path: path.to_owned(), source }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn field(path: &Path, field: &str, problem: impl Into<String>) -> Self {
        Self::Field { path: path.to_owned(), field: shown(field), problem: problem.into() }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_owned(), tensor: shown(tensor), problem: problem.into() }
    }
}

/// A name from a file in printable form: control characters are escaped, the length is bounded.
pub(crate) fn shown(name: &str) -> String {
    const MAX_CHARACTERS: usize = 200;
    let mut out: String = name.chars().take(MAX_CHARACTERS).flat_map(escaped).collect();
    if name.chars().nth(MAX_CHARACTERS).is_some() {
        out.push('…');
    }
    out
}

fn escaped(c: char) -> Box<dyn Iterator<Item = char>> {
    if c.is_control() { Box::new(c.escape_default()) } else { Box::new(std::iter::once(c)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_are_printed_without_control_characters_and_bounded() {
        assert_eq!(shown("a.b\n\u{1b}[1m"), "a.b\\n\\u{1b}[1m");
        assert_eq!(shown(&"x".repeat(5000)).chars().count(), 201);
    }
}
