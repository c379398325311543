//! The bill of materials: the crates of the program in CycloneDX's JSON, version 1.5.
//!
//! Invariant: it has no serial number and no time, so that equal programs have equal bills.

use super::dependencies::{Dependency, dependencies};
use super::release::{PACKAGE, Release};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name of the file.
pub(super) const FILE: &str = "sbom.cdx.json";

/// The bill as a text.
pub(super) fn json(release: &Release) -> Result<String> {
    let all = dependencies(release)?;
    let lock = String::from_utf8(release.file("Cargo.lock")?)?;
    let sums = sums(&lock);
    let purls: BTreeMap<&str, String> = all.iter().map(|(id, it)| (*id, purl(it))).collect();
    let (program, others): (Vec<_>, Vec<_>) = all.values().partition(|it| it.name == PACKAGE);
    let mut components: Vec<Value> = others.iter().map(|it| component(it, &sums)).collect();
    components.sort_by_key(|it| it["bom-ref"].to_string());
    let mut edges: Vec<Value> = all
        .values()
        .map(|it| {
            let mut uses: Vec<&str> = it.uses.iter().map(|id| purls[id].as_str()).collect();
            uses.sort_unstable();
            json!({ "ref": purl(it), "dependsOn": uses })
        })
        .collect();
    edges.sort_by_key(|it| it["ref"].to_string());
    let root = program.first().map(|it| {
        let mut root = component(it, &sums);
        root["type"] = "application".into();
        root
    });
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": root },
        "components": components,
        "dependencies": edges,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn purl(dependency: &Dependency<'_>) -> String {
    // Build metadata of a version (`+`) is escaped in package URLs.
    let version = dependency.version.replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", dependency.name)
}

fn component(dependency: &Dependency<'_>, sums: &BTreeMap<(&str, &str), &str>) -> Value {
    let Dependency { name, version, licence, repository, .. } = dependency;
    // Older manifests separate alternatives by a slash.
    let licence = licence.replace(" / ", " OR ").replace('/', " OR ");
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(dependency),
        "name": name,
        "version": version,
        "licenses": [{ "expression": licence }],
        "purl": purl(dependency),
    });
    if let Some(sum) = sums.get(&(*name, *version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(url) = repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
    }
    component
}

/// The sums in a lock file, by name and version.
fn sums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    fn value<'a>(entry: &'a str, key: &str) -> Option<&'a str> {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line?.strip_suffix('"')
    }
    let entry = |entry| {
        let key = (value(entry, "name")?, value(entry, "version")?);
        Some((key, value(entry, "checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
                    source = \"registry\"\nchecksum = \"abc\"\n\n\
                    [[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        assert_eq!(sums(lock), BTreeMap::from([(("a", "1.0.0"), "abc")]));
    }
}
