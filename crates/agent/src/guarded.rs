//! Guarded files: programs of the user run them later, and no difference shows them. Changes of
//! them are undone, and made again if the user accepts them.
//!
//! Guarded are, in the workspace and in other folders that are written: what git runs in each
//! repository that is found there, the settings of editors, shells and agents, and what these name
//! by links, `gitdir:` and the configuration of git, where it lies in the folders.
//!
//! Of each tree the first 20,000 entries, 16 levels and 8 MiB of contents are held. Changes of what
//! is not held are reported where they are seen, and not undone.

use crate::error::ToolError;
use crate::guarded_change::GuardedChange;
use crate::guarded_links::add_named;
use crate::guarded_trees::{GuardedFolders, GuardedTrees, MAX_WALKED};
use crate::open_folders::{CHANGE, LOOK_INTO, OpenFolders};
use crate::tree_state::{FileState, MAX_BYTES, TreeState};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Times that changes are undone in one check, while others make new ones.
const MAX_ROUNDS: usize = 16;

/// Files that name files that name files.
const MAX_NAMED: usize = 8;

/// The guarded files of a workspace as they shall be.
pub struct Guard {
    folders: GuardedFolders,
    trees: GuardedTrees,
    kept: TreeState,
    /// Changes that were reported and could not be undone: what the files were after them.
    reported: BTreeMap<PathBuf, Option<FileState>>,
    /// Whether the last check has not seen everything that was seen before: the files are not taken
    /// for what they shall be until one does.
    is_unclear: bool,
    problems: Vec<String>,
    said: BTreeSet<String>,
}

impl Guard {
    /// Guards the files of the folder `root`, which has no links, as they are now.
    pub fn new(root: &Path) -> Self {
        Self::with_folders(root, &[])
    }

    /// As [`new`](Self::new), with those of other folders.
    pub fn with_folders(root: &Path, others: &[PathBuf]) -> Self {
        let others = others.iter().filter_map(|folder| folder.canonicalize().ok());
        let others = others.filter(|folder| !folder.starts_with(root)).collect();
        let mut guard = Self {
            folders: GuardedFolders { root: root.to_owned(), others, max_walked: MAX_WALKED },
            trees: GuardedTrees::default(),
            kept: TreeState::default(),
            reported: BTreeMap::new(),
            is_unclear: false,
            problems: Vec::new(),
            said: BTreeSet::new(),
        };
        guard.refresh();
        guard
    }

    /// Takes the files as they are now for what they shall be, except those whose change was
    /// reported and not accepted. To be called before a call that may write, while no process of
    /// an earlier call runs. After a check that has not seen everything, nothing is taken.
    pub fn refresh(&mut self) {
        if self.is_unclear {
            return;
        }
        let mut open = OpenFolders::default();
        let mut trees = GuardedTrees::of(&self.folders, &mut open);
        trees.add_repositories(&self.folders, &mut open);
        let mut found = self.state_of(&trees, &mut open);
        for _ in 0..MAX_NAMED {
            if !add_named(&self.folders, &found, &mut trees) {
                break;
            }
            trees.add_repositories(&self.folders, &mut open);
            for tree in &trees.paths {
                found.add_tree(&self.folders, tree, &self.kept, &mut open);
            }
        }
        self.keep_reported(&mut found);
        self.keep_complete(&mut found);
        if trees.is_cut {
            let text =
                "the workspace has more files than are looked at; the others are not guarded";
            self.say(text.to_owned());
        }
        (self.trees, self.kept) = (trees, found);
    }

    /// Undoes all changes since [`refresh`](Self::refresh), except the
    /// [applied](Self::apply) ones, and returns them. One that cannot be undone is returned once,
    /// and tried again by the next check.
    pub fn check(&mut self) -> Vec<GuardedChange> {
        let mut all: BTreeMap<PathBuf, GuardedChange> = BTreeMap::new();
        let mut is_clean = false;
        for _ in 0..MAX_ROUNDS {
            let (mut changes, is_complete) = self.changes();
            self.is_unclear = !is_complete;
            self.undo(&mut changes);
            // A round that undoes nothing is followed by none that does.
            is_clean = changes.iter().all(|change| !change.is_undone);
            for change in changes.into_iter().filter(GuardedChange::has_files) {
                all.insert(change.path.clone(), change);
            }
            if is_clean {
                break;
            }
        }
        self.is_unclear |= !is_clean;
        if self.is_unclear {
            let text = "there are too many files or changes to look at all; until all are seen, \
                changes by the user are undone too";
            self.say(text.to_owned());
        }
        all.into_values().filter(|change| self.is_new(change)).collect()
    }

    /// Makes a change that was undone, since the user accepts it.
    ///
    /// # Errors
    ///
    /// If the file is no longer as it was before the change, its contents were not held, or it
    /// cannot be written.
    pub fn apply(&mut self, change: &GuardedChange) -> Result<(), ToolError> {
        let name = change.path.display();
        let mut open = OpenFolders::default();
        let found = self.state(&change.path, &mut open);
        if found != change.after || (change.is_undone && !change.within.is_empty()) {
            if found != change.before {
                let text = format!("{name} has changed since; the earlier change is not made");
                return Err(ToolError::new(text));
            }
            let failed = |source| ToolError::system(format_args!("cannot change {name}"), source);
            if !change.is_held() {
                return Err(failed(io::ErrorKind::FileTooLarge.into()));
            }
            let path = self.folders.root.join(&change.path);
            open.open(self.folders.base(&path), &path, CHANGE);
            change.make(&self.folders.root).map_err(failed)?;
        }
        // Modes are taken as they are without it.
        drop(open);
        let mut open = OpenFolders::default();
        self.reported.remove(&change.path);
        // What a folder had is gone with it.
        self.kept.states.retain(|kept, _| !kept.starts_with(&change.path));
        // Folders around a tree are not guarded.
        let is_guarded = |path: &&Path| self.trees.paths.iter().any(|it| path.starts_with(it));
        let above: Vec<&Path> = change.path.ancestors().skip(1).filter(is_guarded).collect();
        above.into_iter().for_each(|path| self.keep(path, &mut open));
        self.keep(&change.path, &mut open);
        change.within.iter().for_each(|(path, _)| self.keep(path, &mut open));
        Ok(())
    }

    /// Whether a change was reported that could not be undone.
    pub fn has_reported(&self) -> bool {
        !self.reported.is_empty()
    }

    /// What is wrong with the guard, each said once.
    pub fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    fn say(&mut self, problem: String) {
        if self.said.insert(problem.clone()) {
            self.problems.push(problem);
        }
    }

    /// Takes what `path` names now for what it shall be.
    fn keep(&mut self, path: &Path, open: &mut OpenFolders) {
        match self.state(path, open) {
            Some(state) => self.kept.states.insert(path.to_owned(), state),
            None => self.kept.states.remove(path),
        };
    }

    /// Of changes that were reported and are still there, what was before stays what shall be.
    fn keep_reported(&mut self, found: &mut TreeState) {
        let kept = &self.kept.states;
        self.reported.retain(|path, after| found.states.get(path) == after.as_ref());
        for path in self.reported.keys() {
            found.states.retain(|it, _| !it.starts_with(path));
            let before = kept.iter().filter(|(it, _)| it.starts_with(path));
            found.states.extend(before.map(|(path, state)| (path.clone(), state.clone())));
        }
    }

    /// Of trees that have become too large to be known in full, what was before stays what shall
    /// be.
    fn keep_complete(&mut self, found: &mut TreeState) {
        for tree in found.incomplete.clone() {
            let name = crate::printable::printable(tree.to_string_lossy().as_bytes());
            self.say(format!("{name} is too large: what is not held of it is not guarded"));
            if self.kept.states.contains_key(&tree) && self.kept.is_complete(&tree) {
                found.states.retain(|path, _| !path.starts_with(&tree));
                let before = self.kept.states.iter().filter(|(path, _)| path.starts_with(&tree));
                found.states.extend(before.map(|(path, state)| (path.clone(), state.clone())));
            }
        }
    }

    fn state(&self, path: &Path, open: &mut OpenFolders) -> Option<FileState> {
        let full = self.folders.root.join(path);
        open.open(self.folders.base(&full), &full, LOOK_INTO);
        FileState::of(&full, MAX_BYTES)
    }

    fn state_of(&self, trees: &GuardedTrees, open: &mut OpenFolders) -> TreeState {
        let mut found = TreeState::default();
        for tree in &trees.paths {
            found.add_tree(&self.folders, tree, &self.kept, open);
        }
        found
    }

    /// What differs from what the files shall be, by paths in order, and whether all is seen that
    /// was seen before.
    fn changes(&self) -> (Vec<GuardedChange>, bool) {
        let mut open = OpenFolders::default();
        let mut trees = GuardedTrees::of(&self.folders, &mut open);
        trees.repositories.extend(self.trees.repositories.iter().cloned());
        trees.add_repositories(&self.folders, &mut open);
        trees.paths.extend(self.trees.paths.iter().cloned());
        // A file that was accepted, with what names it, is missed.
        trees.paths.extend(self.kept.states.keys().cloned());
        let found = self.state_of(&trees, &mut open);
        let paths: BTreeSet<&PathBuf> =
            self.kept.states.keys().chain(found.states.keys()).collect();
        let mut changes: Vec<GuardedChange> = Vec::new();
        for path in paths {
            let Some(change) = self.change(path, &found, &mut open) else { continue };
            match changes.last_mut() {
                // A folder that is new is one change.
                Some(last) if last.is_new_folder() && path.starts_with(&last.path) => {
                    last.within.extend(change.after.map(|after| (path.clone(), after)));
                }
                _ => changes.push(change),
            }
        }
        let is_known = |tree: &PathBuf| !self.kept.incomplete.contains(tree);
        let is_less = found.incomplete.iter().any(is_known) || trees.is_cut && !self.trees.is_cut;
        (changes, !is_less)
    }

    /// What differs at `path`.
    fn change(
        &self,
        path: &PathBuf,
        found: &TreeState,
        open: &mut OpenFolders,
    ) -> Option<GuardedChange> {
        let before = self.kept.states.get(path);
        // A file that did not fit this time is still there.
        let after = found.states.get(path).cloned().or_else(|| self.state(path, open));
        let is_known = match before {
            Some(before) => !matches!(before, FileState::Unreadable),
            None => self.kept.is_complete(path) && self.was_looked_at(path),
        };
        (is_known && before != after.as_ref()).then(|| GuardedChange {
            path: path.clone(),
            is_undone: false,
            before: before.cloned(),
            after,
            within: Vec::new(),
            is_whole: found.is_complete(path),
        })
    }

    /// Whether a file at `path` that was not found was not there.
    fn was_looked_at(&self, path: &Path) -> bool {
        !self.trees.is_cut || path.ancestors().any(|above| self.trees.paths.contains(above))
    }

    fn undo(&self, changes: &mut [GuardedChange]) {
        let mut open = OpenFolders::default();
        // Files go before the folders that have them, and come after them.
        for change in changes.iter().rev() {
            let path = self.folders.root.join(&change.path);
            open.open(self.folders.base(&path), &path, CHANGE);
            // What cannot be removed is found by the comparison below.
            let _ = change.clear(&path);
        }
        for change in changes {
            let path = self.folders.root.join(&change.path);
            if let Some(before) = &change.before {
                // As above.
                open.open(self.folders.base(&path), &path, CHANGE);
                let _ = before.restore(&path);
            }
            change.is_undone = self.state(&change.path, &mut open) == change.before;
        }
    }

    /// Whether a change has not been reported. Notes one that could not be undone.
    fn is_new(&mut self, change: &GuardedChange) -> bool {
        if change.is_undone {
            self.reported.remove(&change.path);
            return true;
        }
        let earlier = self.reported.insert(change.path.clone(), change.after.clone());
        earlier != Some(change.after.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::Guard;
    use std::fs;

    #[test]
    fn what_is_hidden_by_many_files_is_not_accepted_when_they_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut guard = Guard::new(&root);
        guard.folders.max_walked = 30;
        guard.refresh();
        fs::create_dir_all(root.join("a/b/.git")).unwrap();
        fs::write(root.join("a/b/.git/config"), "evil").unwrap();
        let names = || (0..40).map(|number| root.join(number.to_string()));
        names().for_each(|name| fs::write(name, "").unwrap());
        assert!(guard.check().is_empty());
        assert!(guard.problems()[0].starts_with("there are too many files"));
        guard.refresh();
        names().for_each(|name| fs::remove_file(name).unwrap());
        assert!(guard.check()[0].is_undone && !root.join("a/b/.git/config").exists());
        // What has more from the beginning is looked at as far as that goes.
        names().for_each(|name| fs::write(name, "").unwrap());
        guard.refresh();
        assert!(guard.problems()[0].starts_with("the workspace has more files"));
        fs::write(root.join(".envrc"), "evil").unwrap();
        assert!(guard.check()[0].is_undone);
        fs::write(root.join(".envrc"), "good").unwrap();
        guard.refresh();
        assert!(guard.check().is_empty() && root.join(".envrc").exists());
    }
}
