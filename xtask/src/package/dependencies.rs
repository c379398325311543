//! The crates that the program is compiled from, by `cargo metadata`.

use super::release::{PACKAGE, Release};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A crate of the program.
#[derive(Debug)]
pub(super) struct Dependency<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// The SPDX expression of its licences.
    pub licence: &'a str,
    pub repository: Option<&'a str>,
    pub manifest: &'a str,
    /// Whether it is a crate of this workspace.
    pub is_own: bool,
    /// The identities of the crates that it depends on.
    pub uses: BTreeSet<&'a str>,
}

/// The crates of the program by their identities: what is compiled into it, or into the macros that
/// it is compiled with; nothing of tests and build scripts.
pub(super) fn dependencies(release: &Release) -> Result<BTreeMap<&str, Dependency<'_>>> {
    let metadata = release.metadata()?;
    let nodes = by_id(&metadata["resolve"]["nodes"])?;
    let packages = by_id(&metadata["packages"])?;
    let mut waiting = vec![release.member(PACKAGE)?["id"].as_str().context("cargo metadata")?];
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        if found.contains_key(id) {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("cargo metadata: no node {id}"))?;
        let package = packages.get(id).with_context(|| format!("cargo metadata: no {id}"))?;
        let uses = normal(node);
        waiting.extend(&uses);
        found.insert(id, dependency(package, uses)?);
    }
    Ok(found)
}

fn by_id(list: &Value) -> Result<BTreeMap<&str, &Value>> {
    let list = list.as_array().context("cargo metadata: expected a list")?;
    Ok(list.iter().filter_map(|it| Some((it["id"].as_str()?, it))).collect())
}

/// The dependencies of a crate that are not of its tests or build script.
fn normal(node: &Value) -> BTreeSet<&str> {
    let is_normal = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let all = node["deps"].as_array().into_iter().flatten();
    all.filter(is_normal).filter_map(|it| it["pkg"].as_str()).collect()
}

fn dependency<'a>(package: &'a Value, uses: BTreeSet<&'a str>) -> Result<Dependency<'a>> {
    let text =
        |key: &str| package[key].as_str().with_context(|| format!("{}: no {key}", package["id"]));
    Ok(Dependency {
        name: text("name")?,
        version: text("version")?,
        licence: text("license")?,
        repository: package["repository"].as_str(),
        manifest: text("manifest_path")?,
        is_own: package["source"].is_null(),
        uses,
    })
}
