//! Guarded files, and what commands may do to them.

use crate::support::assert_has;
use agent::{Guard, GuardedChange};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A repository with a submodule, a working tree and repositories in it, settings of an editor, and
/// links.
fn repository() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for (name, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n"),
        (".git/hooks/pre-commit", "#!/bin/sh\n"),
        (".git/hooks/post-commit.sample", "example\n"),
        (".git/modules/lib/a/config", "[core]\n"),
        (".gitmodules", "[submodule \"a\"]\n\tpath = lib/a\n\tpath = ../outside\n"),
        ("lib/a/.git", "gitdir: ../../.git/modules/lib/a\n"),
        (".git/worktrees/wt/gitdir", "/else/.git\n"),
        (".vscode/settings.json", "{}\n"),
        ("nested/.git/config", "[core] hooksPath = \"own\"\n[include]\n\tpath = ../shared # x\n"),
        ("nested/own/pre-push", "#!/bin/sh\n"),
        ("nested/shared", "[core]\n"),
        ("apart/.git", "gitdir: ../meta\n"),
        ("meta/config", "[core]\n"),
        ("bare/HEAD", "ref: refs/heads/main\n"),
        ("bare/objects/x", ""),
        ("bare/refs/x", ""),
        ("conf/settings.json", "{}\n"),
        ("source.rs", "fn main() {}\n"),
    ] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }
    symlink("source.rs", root.join(".envrc")).unwrap();
    symlink("conf", root.join(".zed")).unwrap();
    symlink("conf/absent", root.join(".kiro")).unwrap();
    fs::set_permissions(root.join(".git/hooks/pre-commit"), Permissions::from_mode(0o755)).unwrap();
    (folder, root)
}

/// All files, links and folders of `root` with their modes and contents.
fn listing(root: &Path) -> String {
    let script = "find . -printf '%p %m %y %l\\n' | sort; find . -type f | sort | xargs cat";
    let output = Command::new("sh").args(["-c", script]).current_dir(root).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn shell(root: &Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(root).status().unwrap();
    assert!(status.success(), "{script}");
}

/// What commands may do, and the changes that are reported.
const ATTEMPTS: &[(&str, &[&str])] = &[
    ("echo x >>.git/config", &["changed .git/config"]),
    ("rm .git/config", &["removed .git/config"]),
    ("mv .git/config c; ln -s ../c .git/config; rm c", &["changed .git/config"]),
    (
        "rm .git/config; mkdir -p .git/config/a; echo >.git/config/a/b",
        &["changed .git/config", "created .git/config/a"],
    ),
    ("echo x >.git/config.worktree", &["created .git/config.worktree"]),
    ("echo x >.git/hooks/pre-push", &["created .git/hooks/pre-push"]),
    ("chmod -x .git/hooks/pre-commit", &["changed .git/hooks/pre-commit"]),
    ("rm -r .git/hooks", &["removed .git/hooks/pre-commit"]),
    (
        "mv .git/hooks h; ln -s ../h .git/hooks; rm -r h",
        &["changed .git/hooks", "removed .git/hooks/pre-commit"],
    ),
    ("sed -i s/core/evil/ .git/modules/lib/a/config", &["changed .git/modules/lib/a/config"]),
    ("mkdir .git/modules/b; echo x >.git/modules/b/config", &["created .git/modules/b/config"]),
    (
        "mkdir .git/modules/lib/a/hooks; echo >.git/modules/lib/a/hooks/update",
        &["created .git/modules/lib/a/hooks"],
    ),
    ("echo ../evil >.git/commondir", &["created .git/commondir"]),
    (
        "cd .git/worktrees/wt; echo x >gitdir; echo x >commondir; echo x >config.worktree",
        &[
            "changed .git/worktrees/wt/gitdir",
            "created .git/worktrees/wt/commondir",
            "created .git/worktrees/wt/config.worktree",
        ],
    ),
    ("echo x >>nested/.git/config", &["changed nested/.git/config"]),
    (
        "echo x >>nested/own/pre-push; echo x >>nested/shared",
        &["changed nested/own/pre-push", "changed nested/shared"],
    ),
    (
        "mkdir -p deep/a/.GIT/hooks; cd deep/a/.GIT; echo x >config; echo x >hooks/update",
        &["created deep/a/.GIT/config", "created deep/a/.GIT/hooks"],
    ),
    ("mkdir deep; echo gitdir: ../meta >deep/.git", &["created deep/.git"]),
    (
        "echo x >>meta/config; echo x >meta/commondir",
        &["changed meta/config", "created meta/commondir"],
    ),
    ("echo x >bare/config", &["created bare/config"]),
    ("mkdir deep; touch deep/HEAD; echo ../bare >deep/commondir", &["created deep/commondir"]),
    ("mkdir -p deep/a; echo x >deep/a/.envrc", &["created deep/a/.envrc"]),
    ("echo x >>conf/settings.json", &["changed conf/settings.json"]),
    ("echo x >conf/absent", &["created conf/absent"]),
    ("echo gitdir: /tmp/x >lib/a/.git", &["changed lib/a/.git"]),
    (
        "rm lib/a/.git .gitmodules; mkdir lib/a/.git; echo >lib/a/.git/config",
        &["changed lib/a/.git", "created lib/a/.git/config"],
    ),
    ("echo x >.vscode/tasks.json", &["created .vscode/tasks.json"]),
    ("mkdir .idea .claude; echo >.idea/a; echo >.claude/b", &["created .claude", "created .idea"]),
    ("ln -sf /etc/passwd .envrc", &["changed .envrc"]),
    ("echo x >gannet.yaml; echo {} >.mcp.json", &["created .mcp.json", "created gannet.yaml"]),
    ("mkfifo .envrc2; mv .envrc2 .envrc", &["changed .envrc"]),
];

fn kinds(changes: &[GuardedChange]) -> Vec<String> {
    let mut kinds: Vec<String> = changes
        .iter()
        .map(|change| format!("{} {}", change.kind(), change.path.display()))
        .collect();
    kinds.sort();
    kinds
}

#[test]
fn guarded_files_come_back() {
    for (script, expected) in ATTEMPTS {
        let (_folder, root) = repository();
        let mut guard = Guard::new(&root);
        let before = listing(&root);
        shell(&root, script);
        assert_ne!(listing(&root), before, "{script}");
        let changes = guard.check();
        assert_eq!(kinds(&changes), *expected, "{script}");
        assert!(changes.iter().all(|change| change.is_undone), "{script}");
        // What is not guarded stays changed.
        let plain = |text: &str| {
            let other = ["modules", "ample", "submodule", "path =", "deep"];
            let is_kept = |row: &&str| !other.iter().any(|part| row.contains(part));
            text.lines().filter(is_kept).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(plain(&listing(&root)), plain(&before), "{script}");
        assert!(guard.check().is_empty(), "{script}");
    }
}

#[test]
fn accepted_changes_are_made_and_stay() {
    for (script, expected) in &ATTEMPTS[..ATTEMPTS.len() - 1] {
        let (_folder, root) = repository();
        let mut guard = Guard::new(&root);
        shell(&root, script);
        let after = listing(&root);
        let changes = guard.check();
        assert_eq!(changes.len(), expected.len());
        // A file that is a folder after the change goes before what the folder has.
        for change in &changes {
            assert!(!change.difference().is_empty(), "{script}");
            // What depends on a change of kind may be made by it.
            let _ = guard.apply(change);
        }
        assert!(guard.check().is_empty(), "{script}");
        if *script == "rm -r .git/hooks" {
            assert!(!root.join(".git/hooks/pre-commit").exists());
        } else {
            assert_eq!(listing(&root), after, "{script}");
        }
    }
}

#[test]
fn a_change_is_not_made_over_one_of_the_user() {
    let (_folder, root) = repository();
    let mut guard = Guard::new(&root);
    shell(&root, "echo agent >>.git/config");
    let changes = guard.check();
    assert_has(&changes[0].difference(), &["+agent"]);
    shell(&root, "echo user >>.git/config");
    let text = guard.apply(&changes[0]).unwrap_err().to_string();
    assert_has(&text, &[".git/config has changed since"]);
    guard.refresh();
    assert!(guard.check().is_empty());
    assert_eq!(fs::read_to_string(root.join(".git/config")).unwrap(), "[core]\nuser\n");
}

#[test]
fn large_trees_do_not_hide_changes_of_others() {
    let (_folder, root) = repository();
    shell(&root, "mkdir .claude; cd .claude; seq 1500 | xargs touch; head -c 9000000 /dev/zero >0");
    let mut guard = Guard::new(&root);
    shell(&root, "echo x >>.git/config; echo x >>.claude/1; echo x >>.claude/0; rm .claude/999");
    let changes = guard.check();
    let find = |path: &str| changes.iter().find(|change| change.path == Path::new(path)).unwrap();
    assert!(find(".git/config").is_undone && find(".claude/1").is_undone);
    // Its contents do not fit.
    assert!(!find(".claude/0").is_undone);
    // Reported once.
    assert!(guard.check().is_empty());
}

#[test]
fn trees_with_many_new_files_are_left_with_none() {
    let (_folder, root) = repository();
    let mut guard = Guard::new(&root);
    let before = listing(&root);
    shell(&root, "mkdir -p .idea/a; seq 25000 | (cd .idea/a; xargs touch); echo x >.idea/z");
    let changes = guard.check();
    assert_eq!(kinds(&changes), ["created .idea"]);
    assert_has(&guard.apply(&changes[0]).unwrap_err().to_string(), &["cannot change .idea"]);
    shell(&root, "seq 25000 | (cd .vscode; xargs touch); echo x >.vscode/tasks.json");
    assert_eq!(guard.check().len(), 25001);
    assert!(guard.problems().is_empty());
    guard.refresh();
    assert_eq!(listing(&root), before);
}

#[test]
fn what_cannot_be_undone_is_said_once_and_never_accepted() {
    let (_folder, root) = repository();
    let mut guard = Guard::new(&root);
    shell(&root, "mv nested n; echo x >nested");
    let changes = guard.check();
    let change = changes.iter().find(|it| it.path.ends_with("nested/.git/config")).unwrap();
    assert!(!change.is_undone && guard.has_reported());
    assert!(guard.check().is_empty());
    guard.refresh();
    assert!(guard.check().is_empty());
    // It is tried again, and succeeds where it can.
    shell(&root, "rm nested");
    let changes = guard.check();
    assert!(changes.iter().all(|it| it.is_undone) && !changes.is_empty());
    assert!(root.join("nested/.git/config").exists() && !guard.has_reported());
    // What was accepted stays, though it could not have been undone.
    shell(&root, "rm -r nested n; echo x >nested");
    for change in guard.check() {
        guard.apply(&change).unwrap();
    }
    assert!(guard.check().is_empty() && !guard.has_reported());
}

#[test]
fn modes_of_folders_do_not_keep_changes() {
    let (_folder, root) = repository();
    let mut guard = Guard::new(&root);
    let config = fs::read(root.join(".git/config")).unwrap();
    shell(
        &root,
        "mkdir .idea; echo x >.idea/x; chmod 555 .idea; echo x >>.git/config; chmod 0 .git; \
         chmod 0 .vscode; echo x >gannet.yaml; chmod 555 .",
    );
    let changes = guard.check();
    assert_eq!(kinds(&changes), ["changed .git/config", "created .idea", "created gannet.yaml"]);
    assert!(changes.iter().all(|change| change.is_undone));
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("."), mode(".git")), (0o555, 0));
    assert_ne!(mode(".vscode"), 0);
    guard.refresh();
    shell(&root, "chmod 755 . .git");
    assert!(guard.check().is_empty());
    assert_eq!(fs::read(root.join(".git/config")).unwrap(), config);
}

#[test]
fn folders_beside_the_workspace_are_guarded_too() {
    let (_folder, root) = repository();
    let beside = tempfile::tempdir().unwrap();
    let other = beside.path().canonicalize().unwrap();
    let mut guard = Guard::with_folders(&root, &[other.clone(), root.join("deep")]);
    shell(&other, "mkdir -p a/.git; echo x >a/.git/config; echo x >gannet.yaml; echo x >b");
    let paths: Vec<PathBuf> = guard.check().into_iter().map(|change| change.path).collect();
    assert_eq!(paths, [other.join("a/.git/config"), other.join("gannet.yaml")]);
    assert!(!paths.iter().any(|path| path.exists()) && other.join("b").exists());
}

/// A shared mapping of a file in memory changes neither its size nor its times.
#[test]
fn contents_are_compared_whatever_the_times_say() {
    let (shared, python) = (Path::new("/dev/shm"), Path::new("/usr/bin/python3"));
    if !shared.exists() || !python.exists() {
        let skipped = "skipped: contents_are_compared_whatever_the_times_say";
        writeln!(std::io::stderr(), "{skipped}").unwrap();
        return;
    }
    let folder = tempfile::tempdir_in(shared).unwrap();
    fs::write(folder.path().join(".envrc"), "good").unwrap();
    let mut guard = Guard::new(folder.path());
    shell(
        folder.path(),
        "/usr/bin/python3 -c 'import mmap
f = open(\".envrc\", \"r+b\")
m = mmap.mmap(f.fileno(), 0)
m[:] = b\"evil\"'; grep -q evil .envrc",
    );
    assert_eq!(kinds(&guard.check()), ["changed .envrc"]);
    assert_eq!(fs::read(folder.path().join(".envrc")).unwrap(), b"good");
}
