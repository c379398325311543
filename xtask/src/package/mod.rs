//! `cargo xtask package KIND`: packages of the program, each from one release build.
//!
//! Invariant: the same commit, binary and tools give the same bytes. Archives hold sorted entries
//! with the time of the last commit and without owners; nothing of the machine is in them.

mod archive;
mod archives;
mod brew;
mod container;
mod contents;
mod dependencies;
mod kube;
mod licences;
mod linux;
mod nix;
mod npm;
mod release;
mod sbom;
mod sums;
mod tar;
mod tools;

use anyhow::{Context, Result, bail};
use release::{Options, Release};
use std::path::{Path, PathBuf};

/// A kind of package.
struct Kind {
    name: &'static str,
    about: &'static str,
    /// Makes the package in the folder of the release, and returns its files.
    make: fn(&Release) -> Result<Vec<PathBuf>>,
}

/// All kinds, in an order in which each finds what it needs of the others.
const KINDS: &[Kind] = &[
    Kind { name: "tar", about: "archive of the program with its documents", make: tar::make },
    Kind { name: "deb", about: "package for Debian and Ubuntu", make: linux::deb },
    Kind { name: "rpm", about: "package for Fedora, openSUSE and others", make: linux::rpm },
    Kind { name: "container", about: "context of a container image", make: container::make },
    Kind { name: "npm", about: "packages for Node.js", make: npm::make },
    Kind { name: "brew", about: "formula, from the archives", make: brew::make },
    Kind { name: "nix", about: "flake, from the archives", make: nix::make },
    Kind { name: "kube", about: "base for kustomize", make: kube::make },
];

/// Makes the packages that `args` name; returns lines to print.
///
/// # Errors
///
/// If an argument is wrong, a tool is missing, or a package cannot be made.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<Vec<String>> {
    let (names, options) = parse(args)?;
    let kinds = chosen(&names)?;
    let release = Release::new(root, options)?;
    let mut made = Vec::new();
    for kind in kinds {
        let files = (kind.make)(&release).with_context(|| format!("package {}", kind.name))?;
        made.extend(files.iter().map(|file| file.display().to_string()));
    }
    made.push(sums::write(release.output())?.display().to_string());
    Ok(made)
}

/// The lines of the usage.
pub(crate) fn usage() -> Vec<String> {
    let mut lines = vec![
        "usage: cargo xtask package KIND... [--binary PATH] [--target TRIPLE] [--output FOLDER]"
            .to_owned(),
        "                           [--base-url URL]".to_owned(),
    ];
    let all = Kind { name: "all", about: "all of these", make: |_| Ok(Vec::new()) };
    let kinds = KINDS.iter().chain([&all]);
    lines.extend(kinds.map(|kind| format!("  {:10} {}", kind.name, kind.about)));
    lines
}

fn chosen(names: &[String]) -> Result<Vec<&'static Kind>> {
    let known = |name: &str| name == "all" || KINDS.iter().any(|kind| kind.name == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        bail!("{name}: no such kind\n{}", usage().join("\n"));
    }
    if names.is_empty() {
        bail!("expected a kind of package\n{}", usage().join("\n"));
    }
    let is_asked = |kind: &&Kind| names.iter().any(|name| name == "all" || name == kind.name);
    Ok(KINDS.iter().filter(is_asked).collect())
}

/// The kinds and the options.
fn parse(args: &[String]) -> Result<(Vec<String>, Options)> {
    let (mut names, mut options) = (Vec::new(), Options::default());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{arg}: expected a value"));
        match arg.as_str() {
            "--binary" => options.binary = Some(value()?.into()),
            "--target" => options.target = Some(value()?),
            "--output" => options.output = Some(value()?.into()),
            "--base-url" => options.base_url = Some(value()?),
            flag if flag.starts_with('-') => {
                bail!("{flag}: no such option\n{}", usage().join("\n"));
            }
            name => names.push(name.to_owned()),
        }
    }
    Ok((names, options))
}

#[cfg(test)]
mod tests;
