//! Finds extents that are in the folder: at the start, and those of other processes later.

use crate::disk::Entry;
use crate::index::ExtentId;
use crate::layout::{ExtentName, Layout};
use crate::reader::{Unusable, discard, read_header};
use crate::shared::StoreState;
use base::Name;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

/// Folders of a root as they were last seen: the time of modification of each.
pub(crate) type SeenFolders = HashMap<(Name, String), i64>;

/// The roots that the folder has.
pub(crate) fn roots(shared: &StoreState) -> io::Result<Vec<Name>> {
    let entries = list_if_there(shared, &shared.folder)?;
    let root = |entry: Entry| Some(entry).filter(|entry| entry.is_folder)?.name.parse().ok();
    Ok(entries.into_iter().filter_map(root).collect())
}

/// The entries of a folder; none where there is no such folder.
fn list_if_there(shared: &StoreState, folder: &Path) -> io::Result<Vec<Entry>> {
    match shared.disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// Brings the index up to date with the extents below a root: all of them, or only in folders that
/// changed since they were `seen`. Returns the bytes of the extents in the folders it looked at.
pub(crate) fn scan_root(
    shared: &StoreState,
    root: Name,
    seen: &mut SeenFolders,
    all: bool,
) -> io::Result<u64> {
    let mut bytes = 0;
    let folder = shared.root_folder(root);
    let mut found = HashSet::new();
    let mut listed = HashSet::new();
    for Entry { name, is_folder, modified, .. } in list_if_there(shared, &folder)? {
        if !is_folder || name.len() != 2 {
            continue;
        }
        let before = seen.insert((root, name.clone()), modified);
        if !all && before == Some(modified) {
            continue;
        }
        for file in list_if_there(shared, &folder.join(&name))? {
            let extent = ExtentName::parse(&file.name).filter(|_| !file.is_folder);
            let Some(extent) = extent else { continue };
            bytes += file.bytes;
            let mut index = shared.index();
            if !index.is_ignored(root, extent) {
                index.insert(root, extent, file.bytes, file.modified);
                found.insert(extent);
            }
        }
        listed.insert(name);
    }
    let mut index = shared.index();
    let is_gone = |name: &ExtentName| {
        let folder = &name.last.to_string()[..2];
        (all || listed.contains(folder)) && !found.contains(name)
    };
    let known = index.of_root(root).filter(|(_, extent)| is_gone(&extent.name));
    let gone: Vec<ExtentId> = known.map(|(id, _)| id).collect();
    gone.into_iter().for_each(|id| drop(index.remove(id)));
    Ok(bytes)
}

/// Reads the headers of extents below a root that were not read before, the most valuable first,
/// until the store is closed.
pub(crate) fn read_headers(shared: &StoreState, root: Name, layout: &Layout) {
    let mut unread: Vec<_> = {
        let index = shared.index();
        let unread = index.of_root(root).filter(|(_, extent)| extent.micros().is_none());
        unread.map(|(id, extent)| (extent.worth, id, extent.name)).collect()
    };
    unread.sort_unstable_by_key(|(worth, ..)| std::cmp::Reverse(*worth));
    for (_, id, name) in unread {
        if shared.reads.is_closed() {
            return;
        }
        let checked = read_header(shared, &shared.path(root, &name)).and_then(|header| {
            header.check(root, &name, layout).map(|()| header).map_err(Unusable::from)
        });
        match checked {
            Ok(header) => shared.index().add_header(id, &header),
            Err(unusable) => discard(shared, id, &unusable),
        }
    }
}
