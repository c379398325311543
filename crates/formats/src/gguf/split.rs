//! Models split over files named `NAME-00001-of-00003.gguf`.
//!
//! Invariant: all parts exist, agree on their number, and together hold the declared number of
//! tensors.

use super::parse::{Header, parse_beginning};
use crate::file_header::{FileHeaders, WeightFile};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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

/// The paths of all parts of the model of which the file at `path` is one, in order; none if its
/// name is not that of a part.
pub(crate) fn parts_of(path: &Path) -> Vec<PathBuf> {
    from_name(path).map_or_else(Vec::new, |place| place.paths(path).collect())
}

impl SplitName {
    /// The paths of all parts, in order, in the folder of the file at `path`.
    fn paths<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let name = |index| part_name(&self.prefix, index, self.count);
        (0..self.count).map(move |index| path.with_file_name(name(index)))
    }
}

/// Opens every part in order.
pub(super) fn open_all(
    path: &Path,
    place: &SplitName,
    headers: &FileHeaders,
) -> Result<Vec<(WeightFile, Header)>> {
    let mut parts = Vec::new();
    for (index, path) in place.paths(path).enumerate() {
        let (file, header) = open_part(&path, headers)?;
        expect(&header.metadata, COUNT, place.count)?;
        expect(&header.metadata, NUMBER, index)?;
        parts.push((file, header));
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

fn check_tensors(parts: &[(WeightFile, Header)]) -> Result<()> {
    let mut names = HashSet::new();
    for (file, header) in parts {
        for tensor in &header.tensors {
            if !names.insert(tensor.name.as_str()) {
                let problem = "the name appears in two parts";
                return Err(Error::tensor(file.path(), &tensor.name, problem));
            }
        }
    }
    let Some((_, first)) = parts.first() else { return Ok(()) };
    match first.metadata.opt_count(TENSORS)? {
        Some(_) => expect(&first.metadata, TENSORS, names.len()),
        None => Ok(()),
    }
}

pub(super) fn open_part(path: &Path, headers: &FileHeaders) -> Result<(WeightFile, Header)> {
    let file = WeightFile::open(path, headers)?;
    let (beginning, len) = file.beginning();
    let header = parse_beginning(beginning, len, path)?;
    file.is_read(&header.tensors);
    Ok((file, header))
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
