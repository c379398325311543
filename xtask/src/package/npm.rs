//! Packages for npm: `gannet`, and one for this platform with the binary.
//!
//! Invariant: `gannet` depends on the packages of all platforms at its own version, optionally.

use super::archive::Files;
use super::release::Release;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The folder of the package in the repository.
const FOLDER: &str = "npm";
/// The folder in every archive for npm.
const TOP: &str = "package";

/// A platform by the names that Node.js gives it.
struct Platform {
    /// The target of Rust.
    target: &'static str,
    os: &'static str,
    cpu: &'static str,
    /// The C library, where that is a choice.
    libc: Option<&'static str>,
}

/// The platforms that packages are made for.
const PLATFORMS: &[Platform] = &[
    Platform { target: "x86_64-unknown-linux-gnu", os: "linux", cpu: "x64", libc: Some("glibc") },
    Platform {
        target: "aarch64-unknown-linux-gnu",
        os: "linux",
        cpu: "arm64",
        libc: Some("glibc"),
    },
    Platform { target: "x86_64-apple-darwin", os: "darwin", cpu: "x64", libc: None },
    Platform { target: "aarch64-apple-darwin", os: "darwin", cpu: "arm64", libc: None },
];

impl Platform {
    fn of(target: &str) -> Result<&'static Self> {
        let known = || PLATFORMS.iter().map(|platform| platform.target).collect::<Vec<_>>();
        let found = PLATFORMS.iter().find(|platform| platform.target == target);
        found.with_context(|| format!("expected one of {}, found {target}", known().join(", ")))
    }

    /// The name of its package, which `platform.js` looks for.
    fn package(&self) -> String {
        format!("gannet-{}-{}", self.os, self.cpu)
    }
}

/// Writes both packages.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let platform = Platform::of(&release.target)?;
    let version = &release.version;
    let main = main(release)?.archive(TOP, release.epoch)?;
    let binary = of_platform(release, platform)?.archive(TOP, release.epoch)?;
    Ok(vec![
        release.write(&format!("gannet-{version}.tgz"), &main)?,
        release.write(&format!("{}-{version}.tgz", platform.package()), &binary)?,
    ])
}

/// What the repository's `package.json` says.
fn manifest(release: &Release) -> Result<Value> {
    let text = release.file(&format!("{FOLDER}/package.json"))?;
    let mut manifest: Value = serde_json::from_slice(&text).context("npm/package.json")?;
    manifest["version"] = release.version.clone().into();
    Ok(manifest)
}

fn main(release: &Release) -> Result<Files> {
    let mut manifest = manifest(release)?;
    let optional: Map<String, Value> = PLATFORMS
        .iter()
        .map(|platform| (platform.package(), release.version.clone().into()))
        .collect();
    manifest["optionalDependencies"] = optional.into();
    let mut files = with_licences(release)?;
    for name in ["README.md", "index.d.ts", "index.js", "platform.js"] {
        files.add(name, release.file(&format!("{FOLDER}/{name}"))?);
    }
    files.add_program("bin/gannet.js", release.file(&format!("{FOLDER}/bin/gannet.js"))?);
    files.add("package.json", text(&manifest)?);
    Ok(files)
}

fn of_platform(release: &Release, platform: &Platform) -> Result<Files> {
    let main = manifest(release)?;
    let Platform { target, os, cpu, libc } = platform;
    let mut manifest = json!({
        "name": platform.package(),
        "version": release.version,
        "description": format!("The program of the package gannet for {target}"),
        "license": main["license"],
        "os": [os],
        "cpu": [cpu],
    });
    if let Some(libc) = libc {
        manifest["libc"] = json!([libc]);
    }
    let mut files = with_licences(release)?;
    files.add_program("bin/gannet", release.binary_bytes()?);
    files.add(super::licences::FILE, super::licences::text(release)?);
    let about =
        format!("# {}\n\nThe program of the package `gannet` for {target}.\n", platform.package());
    files.add("README.md", about);
    files.add("package.json", text(&manifest)?);
    Ok(files)
}

fn with_licences(release: &Release) -> Result<Files> {
    let mut files = Files::default();
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.add(name, release.file(name)?);
    }
    Ok(files)
}

fn text(manifest: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(manifest)? + "\n")
}
