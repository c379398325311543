//! Finds extents that are in the folder: at the start, and those of other processes later.

use crate::disk::Entry;
use crate::folder::{list_extents, list_if_there};
use crate::index::ExtentId;
use crate::layout::{ExtentName, Layout};
use crate::reader::{Unusable, discard, read_header};
use crate::shared::StoreState;
use base::Name;
use std::collections::{HashMap, HashSet};
use std::io;

/// Folders of a root as they were last seen: the time of modification of each.
pub(crate) type SeenFolders = HashMap<(Name, String), i64>;

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
    for Entry { name, is_folder, modified, .. } in list_if_there(&*shared.disk, &folder)? {
        if !is_folder || name.len() != 2 {
            continue;
        }
        let before = seen.insert((root, name.clone()), modified);
        if !all && before == Some(modified) {
            continue;
        }
        for (extent, file) in list_extents(&*shared.disk, &folder.join(&name))? {
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
            let checked = header.check(root, &name, layout, shared.key.as_ref());
            checked.map(|()| header).map_err(Unusable::from)
        });
        match checked {
            Ok(header) => shared.index().add_header(id, &header),
            Err(unusable) => discard(shared, id, &unusable),
        }
    }
}
