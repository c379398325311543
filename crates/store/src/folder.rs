//! Looking at a folder of extents from outside, beside the stores that use it.

use crate::disk::{Disk, DiskFile, Entry, nanos};
use crate::header::{Header, LayerCheck, Outline, PAGE, Problem};
use crate::key::StoreKey;
use crate::layout::ExtentName;
use crate::shared::{ABOUT_FILE, LOCK_FILE};
use crate::worth;
use base::Name;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most bytes of a description that are read.
const MAX_ABOUT: u64 = 64 << 10;

/// An extent of a folder.
#[derive(Clone, Debug)]
pub struct FolderExtent {
    /// Its file.
    pub path: PathBuf,
    /// What the file's name says.
    pub name: ExtentName,
    /// Bytes of the file.
    pub bytes: u64,
    /// The time that stands for its worth, in nanoseconds since the Unix epoch.
    pub worth: i64,
}

impl FolderExtent {
    /// Seconds of computing per MiB that its uses saved, those before `now` decayed.
    pub fn worth_at(&self, now: SystemTime) -> f64 {
        worth::seconds_at(self.worth, nanos(now))
    }
}

/// What lies below a root of a folder.
#[derive(Clone, Debug)]
pub struct FolderRoot {
    /// The root.
    pub root: Name,
    /// What was written about it: JSON, or empty.
    pub about: String,
    /// Its extents.
    pub extents: Vec<FolderExtent>,
}

/// The roots of a folder with their extents. Files that vanish meanwhile are left out.
///
/// # Errors
///
/// If the folder cannot be read.
pub fn list_folder(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<FolderRoot>> {
    let mut roots = Vec::new();
    for root in list_roots(disk, folder)? {
        let path = folder.join(root.to_string());
        let mut extents = Vec::new();
        for part in disk.list(&path)?.into_iter().filter(|part| part.is_folder) {
            for (name, file) in list_extents(disk, &path.join(&part.name))? {
                let path = path.join(&part.name).join(&file.name);
                extents.push(FolderExtent { path, name, bytes: file.bytes, worth: file.modified });
            }
        }
        extents.sort_unstable_by_key(|extent| extent.worth);
        let about = read_text(disk, &path.join(ABOUT_FILE)).unwrap_or_default();
        roots.push(FolderRoot { root, about, extents });
    }
    roots.sort_unstable_by_key(|root| root.root);
    Ok(roots)
}

/// The roots that a folder has.
pub(crate) fn list_roots(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<Name>> {
    let entries = list_if_there(disk, folder)?;
    let root = |entry: Entry| Some(entry).filter(|entry| entry.is_folder)?.name.parse().ok();
    Ok(entries.into_iter().filter_map(root).collect())
}

/// The extents in one of the folders of a root.
pub(crate) fn list_extents(
    disk: &dyn Disk,
    folder: &Path,
) -> io::Result<impl Iterator<Item = (ExtentName, Entry)>> {
    let files = list_if_there(disk, folder)?.into_iter().filter(|file| !file.is_folder);
    Ok(files.filter_map(|file| Some((ExtentName::parse(&file.name)?, file))))
}

/// The entries of a folder; none where there is no such folder.
pub(crate) fn list_if_there(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<Entry>> {
    match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

fn read_text(disk: &dyn Disk, path: &Path) -> io::Result<String> {
    let file = disk.open_cached(path)?;
    let mut text = vec![0; file.length()?.min(MAX_ABOUT) as usize];
    file.read(&mut text, 0)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads what the header of an extent says: all of it with its key, else what it says to everyone.
///
/// # Errors
///
/// If the file cannot be read, or is not what its name says.
pub fn read_extent(
    disk: &dyn Disk,
    root: Name,
    extent: &FolderExtent,
    key: Option<&StoreKey>,
) -> io::Result<Result<Outline, Problem>> {
    let file = disk.open_cached(&extent.path)?;
    let length = file.length()?;
    let decode = |bytes: Vec<u8>| {
        let outline = Outline::decode(&bytes, length)?;
        outline.check_place(root, &extent.name)?;
        let key = key.filter(|key| outline.is_sealed_under(key));
        if outline.seal.is_none() || key.is_some() {
            Header::decode(&bytes, length, key)?.check_place(root, &extent.name, key)?;
        }
        Ok(outline)
    };
    Ok(read_header_bytes(&*file, length)?.and_then(decode))
}

/// Reads a header, and checks all that the header itself shows.
pub(crate) fn read_header(
    file: &dyn DiskFile,
    key: Option<&StoreKey>,
) -> io::Result<Result<Header, Problem>> {
    let length = file.length()?;
    let bytes = read_header_bytes(file, length)?;
    Ok(bytes.and_then(|bytes| Header::decode(&bytes, length, key)))
}

fn read_header_bytes(file: &dyn DiskFile, length: u64) -> io::Result<Result<Vec<u8>, Problem>> {
    if length < PAGE as u64 {
        return Ok(Err(Problem::Corrupt(format!("a file of {length} bytes"))));
    }
    let mut bytes = vec![0; PAGE];
    file.read(&mut bytes, 0)?;
    let header = match Outline::bytes_of(&bytes, length) {
        Ok(header) => header,
        Err(problem) => return Ok(Err(problem)),
    };
    bytes.resize(header, 0);
    if header > PAGE {
        file.read(&mut bytes[PAGE..], PAGE as u64)?;
    }
    Ok(Ok(bytes))
}

/// Reads an extent whole, and compares every checksum; of one that is sealed under this key, it
/// also checks that nothing was changed on purpose.
///
/// # Errors
///
/// If the file cannot be read, or is not what its name or a checksum says.
pub fn verify_extent(
    disk: &dyn Disk,
    root: Name,
    extent: &FolderExtent,
    key: Option<&StoreKey>,
) -> io::Result<Result<Outline, Problem>> {
    let outline = match read_extent(disk, root, extent, key)? {
        Ok(outline) => outline,
        Err(problem) => return Ok(Err(problem)),
    };
    let file = disk.open_cached(&extent.path)?;
    let key = key.filter(|key| outline.is_sealed_under(key));
    let check = LayerCheck::new(&outline, key);
    let mut bytes = Vec::new();
    for block in 0..outline.blocks {
        let mut offset = outline.offset(block);
        for (layer, length) in (outline.first_layer as usize..).zip(&outline.layer_bytes) {
            // The length of the file bounds that of a layer.
            bytes.resize(*length as usize, 0);
            file.read(&mut bytes, offset)?;
            offset += length;
            let sum = crc32c::crc32c(&bytes);
            if sum != outline.checksums[outline.part(block, layer)]
                || !check.is_valid(block, layer, &mut bytes)
            {
                let what = format!("block {block}, layer {layer}: the checksum is wrong");
                return Ok(Err(Problem::Corrupt(what)));
            }
        }
    }
    Ok(Ok(outline))
}

/// Removes extents while no store evicts others; returns the bytes that are freed.
///
/// # Errors
///
/// If one cannot be removed.
pub fn remove_extents(
    disk: &dyn Disk,
    folder: &Path,
    extents: &[&FolderExtent],
) -> io::Result<u64> {
    let mut lock = disk.lock(&folder.join(LOCK_FILE))?;
    let mut removed = 0;
    for extent in extents {
        match disk.remove(&extent.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            ended => ended.map(|()| removed += extent.bytes)?,
        }
    }
    let left = lock.number()?.saturating_sub(removed);
    lock.set_number(left)?;
    Ok(removed)
}
