//! Packages for Debian's and for RPM's package managers, by `cargo deb` and `cargo generate-rpm`.
//!
//! What they hold is laid out in `target/package/tree`, where the metadata in
//! `crates/cli/Cargo.toml` finds it: the contents of every package below `/usr`, the units of
//! systemd and the settings of the service.

use super::archive::Files;
use super::contents;
use super::release::{PACKAGE, Release};
use super::tools::{installed, output_of};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the metadata finds the files, from the root of the workspace.
const TREE: &str = "target/package/tree";
/// The unit of the service.
const UNIT: &str = "packaging/gannet.service";
/// Where units are installed.
const UNITS: &str = "usr/lib/systemd/system";

/// Writes the package for Debian.
pub(super) fn deb(release: &Release) -> Result<Vec<PathBuf>> {
    let cargo_deb = installed(release.root(), "cargo-deb", "3.8.0")?;
    lay_out(release)?;
    let cpu = cpu(release, ("amd64", "arm64"))?;
    let path = release.output().join(format!("gannet_{}-1_{cpu}.deb", release.version));
    let mut command = command(release, &cargo_deb);
    command.args(["--no-build", "--no-strip", "--quiet", "--package", PACKAGE]);
    command.args(["--target", &release.target, "--output"]).arg(&path);
    output_of(&mut command)?;
    Ok(vec![path])
}

/// Writes the package for RPM.
pub(super) fn rpm(release: &Release) -> Result<Vec<PathBuf>> {
    let generate = installed(release.root(), "cargo-generate-rpm", "0.21.1")?;
    lay_out(release)?;
    let cpu = cpu(release, ("x86_64", "aarch64"))?;
    let path = release.output().join(format!("gannet-{}-1.{cpu}.rpm", release.version));
    let mut command = command(release, &generate);
    command.args(["--package", "crates/cli", "--target", &release.target]);
    command.args(["--payload-compress", "zstd", "--output"]).arg(&path);
    output_of(&mut command)?;
    Ok(vec![path])
}

fn command(release: &Release, tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(release.root()).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command
}

/// The name of the CPU, of two.
fn cpu(release: &Release, (x86, arm): (&'static str, &'static str)) -> Result<&'static str> {
    let target = &release.target;
    ensure!(target.contains("-linux-"), "expected a target with Linux, found {target}");
    match target.split('-').next() {
        Some("x86_64") => Ok(x86),
        Some("aarch64") => Ok(arm),
        _ => anyhow::bail!("expected an x86_64 or aarch64 target, found {target}"),
    }
}

fn lay_out(release: &Release) -> Result<()> {
    let mut files = Files::default();
    for (path, content) in contents::files(release)?.iter() {
        let path = format!("usr/{path}");
        match content.is_program {
            true => files.add_program(path, content.bytes.clone()),
            false => files.add(path, content.bytes.clone()),
        }
    }
    let unit = release.filled(UNIT, &[])?;
    files.add(format!("{UNITS}/gannet@.service"), of_instances(&unit)?);
    files.add(format!("{UNITS}/gannet.service"), unit);
    files.add("etc/gannet/gannet.yaml", release.file("packaging/gannet.yaml")?);
    contents::lay_out(&files, &release.root().join(TREE))
}

/// What of the unit differs between instances, each of which has its settings and folders.
const OF_INSTANCES: [(&str, &str); 6] = [
    ("language models\n", "language models (%i)\n"),
    ("/etc/gannet/gannet.yaml", "/etc/gannet/%i.yaml"),
    ("RuntimeDirectory=gannet\n", "RuntimeDirectory=gannet-%i\n"),
    ("StateDirectory=gannet\n", "StateDirectory=gannet-%i\n"),
    ("CacheDirectory=gannet\n", "CacheDirectory=gannet-%i\n"),
    (
        "XDG_STATE_HOME=%S XDG_CACHE_HOME=%C HF_HOME=%C/gannet/huggingface",
        "XDG_STATE_HOME=%S/gannet-%i XDG_CACHE_HOME=%C/gannet-%i HF_HOME=%C/gannet-%i/huggingface",
    ),
];

/// The unit `gannet@.service`: `gannet@NAME` is a service with `/etc/gannet/NAME.yaml`.
pub(super) fn of_instances(unit: &str) -> Result<String> {
    let mut text = unit.to_owned();
    for (one, each) in OF_INSTANCES {
        ensure!(text.matches(one).count() == 1, "{UNIT}: expected {one:?} once");
        text = text.replace(one, each);
    }
    Ok(text)
}
