//! The arguments that name low-rank adapters.

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use engine::{AdapterSource, check_scale};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Outputs that an adapter comes with, for `gannet verify`.
const REFERENCE: &str = "reference.json";

/// The adapters of a model.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct AdapterArgs {
    /// Apply the low-rank adapter (LoRA) at PATH, a folder of PEFT or a .gguf file, by a factor of
    /// SCALE beside its own; may be repeated
    #[arg(long, value_name = "PATH[=SCALE]")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| source(&text)))]
    lora: Vec<AdapterSource>,
}

impl AdapterArgs {
    /// The adapters, in the order in which they are applied.
    pub fn sources(&self) -> Vec<AdapterSource> {
        self.lora.clone()
    }

    /// The file reference.json of the only adapter.
    pub fn reference(&self) -> Option<PathBuf> {
        let [AdapterSource { path, .. }] = &self.lora[..] else { return None };
        reference_of(path)
    }
}

/// The file reference.json of a model or an adapter, a folder or a file.
pub(crate) fn reference_of(path: &Path) -> Option<PathBuf> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    Some(folder.join(REFERENCE)).filter(|file| file.is_file())
}

/// Parses a path, and a scale after the last `=` where a number follows.
fn source(text: &OsStr) -> Result<AdapterSource> {
    let bytes = text.as_bytes();
    let scaled = bytes
        .iter()
        .rposition(|&byte| byte == b'=')
        .and_then(|at| Some((&bytes[..at], str::from_utf8(&bytes[at + 1..]).ok()?.parse().ok()?)));
    let (path, scale) = scaled.unwrap_or((bytes, 1.0));
    check_scale(scale).map_err(anyhow::Error::msg)?;
    Some(path).filter(|path| !path.is_empty()).context("expected a path")?;
    Ok(AdapterSource::new(OsStr::from_bytes(path), scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: impl AsRef<OsStr>, path: impl AsRef<OsStr>, scale: f32) {
        assert_eq!(source(text.as_ref()).unwrap(), AdapterSource::new(path.as_ref(), scale));
    }

    #[test]
    fn a_number_after_the_last_equals_sign_is_the_scale() {
        check("a/b", "a/b", 1.0);
        check("a/b=0.5", "a/b", 0.5);
        check("a=b/c=-2", "a=b/c", -2.0);
        check("a=b", "a=b", 1.0);
        check(OsStr::from_bytes(b"\xff=0.5"), OsStr::from_bytes(b"\xff"), 0.5);
        check(OsStr::from_bytes(b"a=\xff"), OsStr::from_bytes(b"a=\xff"), 1.0);
    }

    #[test]
    fn a_scale_that_is_no_finite_number_and_an_empty_path_are_refused() {
        for text in ["a=inf", "a=NaN", "a=1e9", "=1", ""] {
            assert!(source(text.as_ref()).is_err(), "{text}");
        }
    }
}
