//! Models split over files named `NAME-00001-of-00003.gguf`.
//!
//! Invariant: all parts exist, agree on their number, and together hold the declared number of
//! tensors.

use super::parse::{Header, parse};
use crate::bytes::map_file;
use base::{Bytes, Mmap};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gguf::metadata::Metadata;

pub(super) const COUNT: &str = "split.count";
pub(super) const NUMBER: &str = "split.no";
pub(super) const TENSORS: &str = "split.tensors.count";

/// The form of what follows the prefix in the name of a part, before the ending.
const NUMBERS: &str = "-00001-of-00003";

/// Prefix, number and count of parts, read from the name of one part.
pub(super) struct SplitName {
    prefix: OsString,
    /// Counted from 1.
    number: usize,
    count: usize,
}

/// The name of the whole model of which the file at `path` is a part, and the number of the part,
/// counted from 1; `None` if its name is not that of a part.
pub fn part_of(path: &Path) -> Option<(OsString, usize)> {
    from_name(path).map(|name| (name.prefix, name.number))
}

/// The name of a GGUF file without its ending, and without its number if it is one of several;
/// `None` for what is no such file.
pub fn model_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let stem = name.strip_suffix(".gguf").filter(|_| path.is_file())?;
    Some(part_of(path).map_or_else(|| stem.to_owned(), |(whole, _)| whole.display().to_string()))
}

/// The split model that the file belongs to, or `None` for a whole model.
pub(super) fn place(path: &Path, header: &Header) -> Result<Option<SplitName>> {
    let declared = header.metadata.opt_count(COUNT)?.unwrap_or(0);
    match (from_name(path), declared) {
        (None, 0 | 1) => Ok(None),
        // A file whose name alone says that it is one of one.
        (Some(place), 0) if place.count == 1 => Ok(None),
        (Some(place), count) if place.count == count => Ok(Some(place)),
        (Some(place), count) => {
            let problem =
                format!("expected {} parts as in the file name, found {count}", place.count);
            Err(header.metadata.error(COUNT, problem))
        }
        (None, count) => {
            let problem = format!(
                "the model has {count} parts: expected a file name that ends in \
                 -00001-of-{count:05}.gguf"
            );
            Err(header.metadata.error(COUNT, problem))
        }
    }
}

/// Opens every part in order.
pub(super) fn open_all(path: &Path, place: &SplitName) -> Result<Vec<(Arc<Mmap>, Header)>> {
    let mut parts = Vec::new();
    for index in 0..place.count {
        let name = part_name(&place.prefix, index, place.count);
        let (map, header) = open_part(&path.with_file_name(name))?;
        expect(&header.metadata, COUNT, place.count)?;
        expect(&header.metadata, NUMBER, index)?;
        parts.push((map, header));
    }
    check_tensors(&parts)?;
    Ok(parts)
}

fn from_name(path: &Path) -> Option<SplitName> {
    let stem = path.file_name()?.as_bytes().strip_suffix(b".gguf")?;
    let (prefix, numbers) = stem.split_at_checked(stem.len().checked_sub(NUMBERS.len())?)?;
    let numbers = str::from_utf8(numbers).ok()?.strip_prefix('-')?;
    let (number, count) = numbers.split_once("-of-")?;
    let (number, count) = (five_digits(number)?, five_digits(count)?);
    let valid = (1..=count).contains(&number);
    valid.then(|| SplitName { prefix: OsString::from_vec(prefix.to_vec()), number, count })
}

fn five_digits(text: &str) -> Option<usize> {
    let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// File name of part `index` of `count`.
pub(super) fn part_name(prefix: &OsStr, index: usize, count: usize) -> OsString {
    let mut name = prefix.to_owned();
    name.push(format!("-{:05}-of-{count:05}.gguf", index + 1));
    name
}

fn expect(metadata: &Metadata, key: &str, expected: usize) -> Result<()> {
    let found = metadata.count(key)?;
    if found != expected {
        return Err(metadata.error(key, format!("expected {expected}, found {found}")));
    }
    Ok(())
}

fn check_tensors(parts: &[(Arc<Mmap>, Header)]) -> Result<()> {
    let mut names = HashSet::new();
    for (map, header) in parts {
        for tensor in &header.tensors {
            if !names.insert(tensor.name.as_str()) {
                let problem = "the name appears in two parts";
                return Err(Error::tensor(map.path(), &tensor.name, problem));
            }
        }
    }
    let Some((_, first)) = parts.first() else { return Ok(()) };
    match first.metadata.opt_count(TENSORS)? {
        Some(_) => expect(&first.metadata, TENSORS, names.len()),
        None => Ok(()),
    }
}

pub(super) fn open_part(path: &Path) -> Result<(Arc<Mmap>, Header)> {
    let map = map_file(path)?;
    let header = parse(&map, path)?;
    // Everything before the tensors was copied.
    let first = header.tensors.iter().map(|tensor| tensor.range.start).min();
    map.not_needed(0..first.unwrap_or(map.len()));
    Ok((map, header))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: impl AsRef<OsStr>, expected: Option<(&str, usize)>) {
        let name = name.as_ref();
        let place = from_name(Path::new(name));
        let found = place.as_ref().map(|p| (p.prefix.as_os_str(), p.count));
        assert_eq!(found, expected.map(|(prefix, count)| (prefix.as_ref(), count)), "{name:?}");
    }

    #[test]
    fn only_names_of_parts_are_taken_for_parts() {
        check("/x/qwen-00002-of-00003.gguf", Some(("qwen", 3)));
        check("a-b-00001-of-00001.gguf", Some(("a-b", 1)));
        check("qwen.gguf", None);
        check("qwen-00004-of-00003.gguf", None);
        check("qwen-00000-of-00003.gguf", None);
        check("qwen-1-of-3.gguf", None);
        check("qwen-+0001-of-00003.gguf", None);
        check("-00001-of-00003.gguf", Some(("", 3)));
        check("00001-of-00003.gguf", None);
        check("é00001-of-00003.gguf", None);
        assert!(from_name(Path::new(OsStr::from_bytes(b"\xff-00001-of-00002.gguf"))).is_some());
    }
}
