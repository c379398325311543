//! The licence texts of all crates that the program is compiled from.
//!
//! The texts are the files of the crates themselves, with their lines of copyright, which the
//! licences ask for; a collection of standard texts would lack them. A crate without such a file
//! is an error.

use super::dependencies::{Dependency, dependencies};
use super::release::Release;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the file.
pub(super) const FILE: &str = "THIRD-PARTY-LICENSES.txt";

/// How the names of licence files begin, in capitals.
const NAMES: [&str; 6] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE", "UNLICENSE"];

/// A line between texts.
const RULE: &str =
    "--------------------------------------------------------------------------------";

/// Every text once, after the crates that have it.
pub(super) fn text(release: &Release) -> Result<String> {
    let all = dependencies(release)?;
    let foreign: Vec<_> = all.values().filter(|it| !it.is_own).collect();
    let mut crates_of = BTreeMap::<String, Vec<String>>::new();
    let mut list = Vec::new();
    for dependency in foreign {
        let Dependency { name, version, licence, repository, .. } = dependency;
        let at = repository.map_or_else(String::new, |url| format!(", {url}"));
        list.push(format!("{name} {version}: {licence}{at}\n"));
        for text in texts(dependency)? {
            crates_of.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    list.sort();
    let mut texts: Vec<_> = crates_of.into_iter().collect();
    // By their first crates, as the list is.
    for (_, crates) in &mut texts {
        crates.sort();
        crates.dedup();
    }
    texts.sort_by(|(one, a), (other, b)| (a, one).cmp(&(b, other)));
    let mut file = format!(
        "Gannet is compiled from these crates of others. Their licences follow.\n\n{}",
        list.concat()
    );
    for (text, crates) in texts {
        file += &format!("\n{RULE}\n{}:\n\n{text}\n", crates.join(", "));
    }
    Ok(file)
}

/// The licence texts of a crate.
fn texts(dependency: &Dependency<'_>) -> Result<Vec<String>> {
    let folder = Path::new(dependency.manifest).parent().context("a manifest without a folder")?;
    let mut texts = Vec::new();
    for name in super::sums::files(folder)? {
        if NAMES.iter().any(|begin| name.to_ascii_uppercase().starts_with(begin)) {
            let bytes = std::fs::read(folder.join(&name))?;
            let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
            texts.push(text.trim_matches('\n').trim_end().to_owned());
        }
    }
    if texts.is_empty() {
        bail!("{}: expected a file with a licence, found none", folder.display());
    }
    Ok(texts)
}
