//! The archives of this version that the folder of packages holds, for kinds that refer to them.

use super::release::Release;
use super::sums::{files, sha256};
use anyhow::{Result, ensure};

/// An archive of `cargo xtask package tar`.
#[derive(Debug)]
pub(super) struct TargetArchive {
    pub target: String,
    pub url: String,
    pub sha256: String,
}

/// All archives of this version, by target.
pub(super) fn archives(release: &Release) -> Result<Vec<TargetArchive>> {
    let start = format!("gannet-{}-", release.version);
    let mut found = Vec::new();
    for name in files(release.output())? {
        let target = name.strip_prefix(&start).and_then(|rest| rest.strip_suffix(".tar.gz"));
        // Other archives, such as that of a container, have more after the target.
        let Some(target) = target.filter(|target| SYSTEMS.iter().any(|it| it.target == *target))
        else {
            continue;
        };
        found.push(TargetArchive {
            target: target.to_owned(),
            url: format!("{}/{name}", release.base_url()),
            sha256: sha256(&std::fs::read(release.output().join(&name))?),
        });
    }
    let folder = release.output().display();
    ensure!(!found.is_empty(), "{folder}: expected an archive of `cargo xtask package tar`");
    Ok(found)
}

/// A target by the names that others give it.
#[derive(Debug)]
pub(super) struct System {
    target: &'static str,
    /// Homebrew's blocks.
    pub brew: (&'static str, &'static str),
    pub nix: &'static str,
}

const SYSTEMS: &[System] = &[
    System { target: "aarch64-apple-darwin", brew: ("on_macos", "on_arm"), nix: "aarch64-darwin" },
    System {
        target: "aarch64-unknown-linux-gnu",
        brew: ("on_linux", "on_arm"),
        nix: "aarch64-linux",
    },
    System { target: "x86_64-apple-darwin", brew: ("on_macos", "on_intel"), nix: "x86_64-darwin" },
    System {
        target: "x86_64-unknown-linux-gnu",
        brew: ("on_linux", "on_intel"),
        nix: "x86_64-linux",
    },
];

impl TargetArchive {
    /// What others call its target.
    pub fn system(&self) -> &'static System {
        let found = SYSTEMS.iter().find(|system| system.target == self.target);
        found.expect("`archives` takes those of known targets")
    }
}

/// The page of the project, or else where its files are.
pub(super) fn homepage(release: &Release) -> Result<String> {
    let repository = release.member(super::release::PACKAGE)?["repository"].as_str();
    Ok(repository.map_or_else(|| release.base_url(), str::to_owned))
}
