//! Other programs, and permissions of files.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a program prints; what it says on standard error is shown.
pub(super) fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name}: expected UTF-8"))
}

/// A program that `cargo install` has put into `target/tools`, or on the path.
pub(super) fn installed(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let own = root.join("target/tools/bin").join(name);
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .map(|folder| folder.join(name));
    let found = std::iter::once(own).chain(on_path).find(|path| path.is_file());
    found.with_context(|| {
        format!("no {name}: cargo install --locked --root target/tools {name} --version {version}")
    })
}

/// Sets the permissions of a file.
#[cfg(unix)]
pub(super) fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
pub(super) fn set_mode(_: &Path, _: u32) -> std::io::Result<()> {
    Ok(())
}
