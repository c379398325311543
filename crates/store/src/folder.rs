//! Looking at a folder of extents from outside, beside the stores that use it.

use crate::disk::{Disk, DiskFile, Entry, nanos};
use crate::header::{Header, PAGE, Problem};
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

/// Reads the header of an extent.
///
/// # Errors
///
/// If the file cannot be read, or is not what its name says.
pub fn read_extent(
    disk: &dyn Disk,
    root: Name,
    extent: &FolderExtent,
) -> io::Result<Result<Header, Problem>> {
    let file = disk.open_cached(&extent.path)?;
    Ok(read_header(&*file)?.and_then(|header| {
        header.check_place(root, &extent.name)?;
        Ok(header)
    }))
}

/// Reads a header, and checks all that the header itself shows.
pub(crate) fn read_header(file: &dyn DiskFile) -> io::Result<Result<Header, Problem>> {
    let length = file.length()?;
    if length < PAGE as u64 {
        return Ok(Err(Problem::Corrupt(format!("a file of {length} bytes"))));
    }
    let mut bytes = vec![0; PAGE];
    file.read(&mut bytes, 0)?;
    let header = match Header::bytes_of(&bytes, length) {
        Ok(header) => header,
        Err(problem) => return Ok(Err(problem)),
    };
    bytes.resize(header, 0);
    if header > PAGE {
        file.read(&mut bytes[PAGE..], PAGE as u64)?;
    }
    Ok(Header::decode(&bytes, length))
}

/// Reads an extent whole, and compares every checksum.
///
/// # Errors
///
/// If the file cannot be read, or is not what its name or a checksum says.
pub fn verify_extent(
    disk: &dyn Disk,
    root: Name,
    extent: &FolderExtent,
) -> io::Result<Result<(), Problem>> {
    let header = match read_extent(disk, root, extent)? {
        Ok(header) => header,
        Err(problem) => return Ok(Err(problem)),
    };
    let file = disk.open_cached(&extent.path)?;
    let mut layer = Vec::new();
    for (at, block) in header.blocks.iter().enumerate() {
        let mut offset = header.offset(at);
        for (number, (bytes, checksum)) in
            header.layer_bytes.iter().zip(&block.checksums).enumerate()
        {
            // The length of the file bounds that of a layer.
            layer.resize(*bytes as usize, 0);
            file.read(&mut layer, offset)?;
            offset += bytes;
            if crc32c::crc32c(&layer) != *checksum {
                let number = header.first_layer as usize + number;
                let what = format!("block {at}, layer {number}: the checksum is wrong");
                return Ok(Err(Problem::Corrupt(what)));
            }
        }
    }
    Ok(Ok(()))
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
