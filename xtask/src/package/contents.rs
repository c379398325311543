//! What every package of the program holds, by its place below the prefix of an installation.

use super::archive::Files;
use super::release::Release;
use super::tools::set_mode;
use super::{licences, sbom};
use anyhow::{Context, Result};
use std::path::Path;

/// The folder of documents.
const DOCUMENTS: &str = "share/doc/gannet";

/// Shells, and where they look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/gannet"),
    ("fish", "share/fish/vendor_completions.d/gannet.fish"),
    ("zsh", "share/zsh/site-functions/_gannet"),
];

/// Documents of the repository.
const COPIED: [&str; 4] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The files, from `bin/gannet` on.
pub(super) fn files(release: &Release) -> Result<Files> {
    let mut files = Files::default();
    files.add_program("bin/gannet", release.binary_bytes()?);
    for (shell, path) in COMPLETIONS {
        files.add(path, release.printed(&["completions", shell])?);
    }
    for name in COPIED {
        files.add(format!("{DOCUMENTS}/{name}"), release.file(name)?);
    }
    files.add(format!("{DOCUMENTS}/{}", licences::FILE), licences::text(release)?);
    files.add(format!("{DOCUMENTS}/{}", sbom::FILE), sbom::json(release)?);
    manual(release, &mut files)?;
    Ok(files)
}

/// Adds the manual pages.
fn manual(release: &Release, files: &mut Files) -> Result<()> {
    let folder = release.output().join("man.tmp");
    let _ = std::fs::remove_dir_all(&folder);
    let named = folder.to_str().context("expected a folder with a name in UTF-8")?;
    release.printed(&["man", named])?;
    for name in super::sums::files(&folder)? {
        let page = std::fs::read(folder.join(&name))?;
        files.add(format!("share/man/man1/{name}"), page);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Writes `files` into a new folder, for tools that pack folders.
pub(super) fn lay_out(files: &Files, folder: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    for (path, content) in files.iter() {
        let path = folder.join(path);
        let cannot = || format!("cannot write {}", path.display());
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).with_context(cannot)?;
        std::fs::write(&path, &content.bytes).with_context(cannot)?;
        set_mode(&path, if content.is_program { 0o755 } else { 0o644 }).with_context(cannot)?;
    }
    Ok(())
}
