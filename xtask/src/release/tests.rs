use super::*;
use std::fs;
use tempfile::TempDir;

const MANIFEST: &str = "[workspace]\nmembers = [\"crates/*\"]\nexclude = [\"fuzz\"]\n\n\
    [workspace.package]\nversion = \"0.1.0\"\n\n\
    [workspace.dependencies]\nbelow = { version = \"=0.1.0\", path = \"crates/below\" }\n";
const BELOW: &str = "[package]\nname = \"below\"\nversion.workspace = true\n";
const ABOVE: &str = "[package]\nname = \"above\"\nversion.workspace = true\n\n\
    [dependencies]\nbelow.workspace = true\n";
const FUZZ: &str = "[package]\nname = \"fuzz\"\nversion = \"0.0.0\"\n[workspace]\n\n\
    [dependencies]\nbelow = { path = \"../crates/below\" }\n";
const CHANGES: &str = "# Changelog\n\n## Unreleased\n\n- A change.\n\n## 0.1.0\n\n- Another.\n";

/// A project of two workspaces, all of it committed.
fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("Cargo.toml", MANIFEST),
        ("crates/below/Cargo.toml", BELOW),
        ("crates/above/Cargo.toml", ABOVE),
        ("crates/below/src/lib.rs", ""),
        ("crates/above/src/lib.rs", ""),
        ("fuzz/Cargo.toml", FUZZ),
        ("fuzz/src/lib.rs", ""),
        ("python/pyproject.toml", "[project]\nname = \"above\"\nversion = \"0.1.0\"\n"),
        (CHANGELOG, CHANGES),
    ];
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for workspace in ["", "fuzz"] {
        let cargo = std::env::var("CARGO").unwrap();
        let args = ["generate-lockfile", "--offline", "--quiet"];
        output(&folder.path().join(workspace), &cargo, &args).unwrap();
    }
    git(&folder, &["init", "--quiet"]);
    commit(&folder);
    folder
}

fn git(folder: &TempDir, args: &[&str]) -> String {
    output(folder.path(), "git", args).unwrap()
}

fn commit(folder: &TempDir) {
    git(folder, &["add", "--all"]);
    let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let rest = ["-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "all"];
    git(folder, &[&author[..], &rest].concat());
}

fn text(folder: &TempDir, path: &str) -> String {
    fs::read_to_string(folder.path().join(path)).unwrap()
}

#[test]
fn a_release_sets_the_version_wherever_it_stands() {
    let folder = project();
    let report = release(folder.path(), "0.2.0", false).unwrap();
    assert!(report.ends_with("git commit -am 'release: 0.2.0' && git tag v0.2.0\n"), "{report}");
    assert_eq!(text(&folder, "Cargo.toml"), MANIFEST.replace("0.1.0", "0.2.0"));
    assert!(text(&folder, "python/pyproject.toml").ends_with("version = \"0.2.0\"\n"));
    let changes = CHANGES.replace("## Unreleased", "## Unreleased\n\n## 0.2.0");
    assert_eq!(text(&folder, CHANGELOG), changes);
    let locks = [text(&folder, "Cargo.lock"), text(&folder, "fuzz/Cargo.lock")];
    assert_eq!(locks.each_ref().map(|lock| lock.matches("\"0.2.0\"").count()), [2, 1]);
    assert!(locks.iter().all(|lock| !lock.contains("\"0.1.0\"")), "{locks:?}");
    let changed = "CHANGELOG.md Cargo.lock Cargo.toml fuzz/Cargo.lock python/pyproject.toml";
    let found = git(&folder, &["diff", "--name-only"]);
    assert_eq!(found.lines().collect::<Vec<_>>().join(" "), changed);
    commit(&folder);
    let again = release(folder.path(), "0.2.1", false).unwrap_err();
    assert_eq!(again, "CHANGELOG.md: expected changes below `## Unreleased`, found none");
}

#[test]
fn a_dry_run_prints_every_edit_and_writes_nothing() {
    let folder = project();
    let expected = "\
CHANGELOG.md:3
- ## Unreleased
+ ## Unreleased
+
+ ## 1.0.0
Cargo.lock: cargo update --workspace
";
    let report = release(folder.path(), "1.0.0", true).unwrap();
    assert!(report.starts_with("Cargo.toml:6\n- version = \"0.1.0\"\n+ version = \"1.0.0\"\n"));
    assert!(report.contains(expected), "{report}");
    assert!(report.ends_with("fuzz/Cargo.lock: cargo update --workspace\nnothing was written\n"));
    assert_eq!(git(&folder, &["status", "--porcelain"]), "");
}

#[test]
fn a_version_that_is_not_greater_or_a_tree_with_changes_is_refused() {
    let folder = project();
    let refused = |new: &str| release(folder.path(), new, false).unwrap_err();
    assert_eq!(refused("0.1.0"), "expected a version after 0.1.0, found 0.1.0");
    assert_eq!(refused("0.0.9"), "expected a version after 0.1.0, found 0.0.9");
    assert_eq!(refused("two"), "expected a version such as 1.2.3, found two");
    assert_eq!(git(&folder, &["status", "--porcelain"]), "");
    fs::write(folder.path().join("new.txt"), "").unwrap();
    assert_eq!(refused("0.2.0"), "expected a tree without changes, found\n?? new.txt");
    assert_eq!(text(&folder, "Cargo.toml"), MANIFEST);
}
