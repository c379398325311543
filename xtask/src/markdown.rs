//! Links of Markdown files to other files of the project.

use std::path::Path;

/// A link to a file that is not there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeadLink {
    /// From 1.
    pub line: usize,
    pub target: String,
}

/// The relative links of `text`, a file in `folder`, that lead nowhere.
pub(crate) fn dead_links(text: &str, folder: &Path) -> Vec<DeadLink> {
    let mut fenced = false;
    let mut dead = Vec::new();
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for target in targets(line).filter(|target| !reachable(target, folder)) {
            dead.push(DeadLink { line: index + 1, target: target.to_owned() });
        }
    }
    dead
}

/// The text in the parentheses of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn reachable(target: &str, folder: &Path) -> bool {
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().unwrap_or_default();
    elsewhere || path.is_empty() || folder.join(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_are_found_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("here.md"), "").unwrap();
        let text = "[a](here.md#part) [b](gone.md)\n[c](https://x.org) [d](#part)\n\
                    ```\n[e](gone.md)\n```\n";
        let dead = DeadLink { line: 1, target: "gone.md".to_owned() };
        assert_eq!(dead_links(text, folder.path()), [dead]);
    }
}
