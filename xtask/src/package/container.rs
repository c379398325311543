//! The context that an image is built in: `Containerfile`, `compose.yaml` and what they copy.

use super::archive::Files;
use super::contents;
use super::release::Release;
use anyhow::Result;
use std::path::PathBuf;

/// The base of images of programs that are linked with glibc: it has that, and no shell.
const DISTROLESS: &str = "gcr.io/distroless/cc-debian12:nonroot";
/// The base of images of static programs: none.
const NONE: &str = "scratch";

/// Writes an archive of the context.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let is_static = release.target.ends_with("-musl");
    let base = if is_static { NONE } else { DISTROLESS };
    let values = [("BASE", base), ("VERSION", &release.version)];
    let mut files = Files::default();
    for name in ["Containerfile", "compose.yaml"] {
        files.add(name, release.filled(&format!("packaging/{name}"), &values)?);
    }
    for (path, content) in contents::files(release)?.iter() {
        // An image has no shell, and nobody reads manuals in it.
        if path.starts_with("bin/") {
            files.add_program(format!("root/usr/{path}"), content.bytes.clone());
        } else if path.starts_with("share/doc/") {
            files.add(format!("root/usr/{path}"), content.bytes.clone());
        }
    }
    for folder in ["models", "state"] {
        files.add_folder(format!("volumes/{folder}"));
    }
    let stem = format!("{}-container", release.stem());
    let archive = files.archive(&stem, release.epoch)?;
    Ok(vec![release.write(&format!("{stem}.tar.gz"), &archive)?])
}
