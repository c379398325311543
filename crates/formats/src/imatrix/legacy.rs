//! The older form: a count of entries, each with its name, its number of windows and its values;
//! from newer writers also the number of windows and the name of the text. All numbers are
//! little-endian 32-bit integers or floats. Stored values are means of squares times windows, so
//! that windows take the place of rows.

use std::path::Path;

use crate::error::{Error, Result, shown};
use crate::gguf::Cursor;
use crate::imatrix::matrix::{Imatrix, ImatrixEntry};

/// Largest number of entries, above that of any model.
const MAX_ENTRIES: u64 = 1 << 20;
/// Smallest entry: two counts and the length of the name, a byte of name, one value.
const MIN_ENTRY_BYTES: u64 = 17;
/// Longest name of a tensor or a text.
const MAX_NAME: u64 = 4096;

pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Imatrix> {
    let mut cursor = Cursor::new(path, bytes);
    let count = count(&mut cursor, "the number of entries")?;
    if count == 0 || count > MAX_ENTRIES {
        let problem = format!(
            "expected a file of importance: GGUF, or the older form, which begins with a count of 1 \
             to {MAX_ENTRIES}; found {count}"
        );
        return Err(Error::file(path, problem));
    }
    cursor.expect_items(count, MIN_ENTRY_BYTES, "the list of entries")?;
    let mut imatrix = Imatrix::default();
    for index in 0..count {
        let name = name(&mut cursor, &format!("the name of entry {index}"))?;
        let entry = entry(&mut cursor, name)?;
        imatrix.chunks = imatrix.chunks.max(entry.counts[0] as usize);
        imatrix.insert(path, name, entry)?;
    }
    if cursor.remaining() > 0 {
        imatrix.chunks = self::count(&mut cursor, "the number of windows")? as usize;
        imatrix.datasets = vec![name(&mut cursor, "the name of the text")?.to_owned()];
    }
    match cursor.remaining() {
        0 => Ok(imatrix),
        more => Err(Error::file(path, format!("expected the end of the file, found {more} bytes"))),
    }
}

fn entry(cursor: &mut Cursor, name: &str) -> Result<ImatrixEntry> {
    let what = format!("entry {}", shown(name));
    let windows = count(cursor, &what)?;
    let values = count(cursor, &what)?;
    let bytes = cursor.take(4 * values, &what)?;
    let (numbers, _) = bytes.as_chunks::<4>();
    let sums = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    Ok(ImatrixEntry { sums, counts: vec![windows as f32] })
}

fn name<'a>(cursor: &mut Cursor<'a>, what: &str) -> Result<&'a str> {
    let len = count(cursor, what)?;
    if len > MAX_NAME {
        let problem = format!("{what}: expected at most {MAX_NAME} bytes, found {len}");
        return Err(Error::file(cursor.path, problem));
    }
    let bytes = cursor.take(len, what)?;
    std::str::from_utf8(bytes).map_err(|error| {
        Error::file(cursor.path, format!("{what}: expected UTF-8, found other bytes: {error}"))
    })
}

/// A signed number that must not be negative.
fn count(cursor: &mut Cursor, what: &str) -> Result<u64> {
    let number = i32::from_le_bytes(cursor.array(what)?);
    let negative = |_| {
        let problem = format!("{what}: expected a number from 0, found {number}");
        Error::file(cursor.path, problem)
    };
    u64::try_from(number).map_err(negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i32) -> Vec<u8> {
        number.to_le_bytes().to_vec()
    }

    fn text(text: &str) -> Vec<u8> {
        [number(text.len() as i32), text.into()].concat()
    }

    fn entry(name: &str, windows: i32, values: &[f32]) -> Vec<u8> {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        [text(name), number(windows), number(values.len() as i32), bytes].concat()
    }

    fn sample() -> Vec<u8> {
        [number(2), entry("a", 4, &[2.0, 4.0]), entry("b", 3, &[0.0])].concat()
    }

    fn parse(bytes: &[u8]) -> Result<Imatrix> {
        super::parse(bytes, Path::new("x.dat"))
    }

    #[test]
    fn entries_are_means_times_windows() {
        let with_end = [sample(), number(5), text("wiki.txt")].concat();
        let read = parse(&with_end).unwrap();
        assert_eq!(read.entries["a"].means(), [0.5, 1.0]);
        assert_eq!((read.chunks, &read.datasets[..]), (5, &["wiki.txt".to_owned()][..]));
        assert_eq!(read.chunk_size, None);
        let without = parse(&sample()).unwrap();
        assert_eq!((without.chunks, without.entries), (4, read.entries));
    }

    #[test]
    fn every_cut_is_an_error_and_none_panics() {
        let whole = [sample(), number(5), text("wiki.txt")].concat();
        for len in (0..whole.len()).filter(|&len| len != sample().len()) {
            let message = parse(&whole[..len]).unwrap_err().to_string();
            assert!(message.starts_with("x.dat: "), "{len}: {message}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_by_name() {
        let check = |bytes: &[&[u8]], expected: &str| {
            let message = parse(&bytes.concat()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        check(&[b"{\"model\": 1}"], "expected a file of importance: GGUF");
        check(&[&number(-1)], "the number of entries: expected a number from 0, found -1");
        check(&[&number(1 << 20), &[0; 40]], "the list of entries claims 1048576");
        check(&[&number(1), &number(i32::MAX), &[0; 40]], "at most 4096 bytes");
        check(&[&number(1), &entry("a", 1, &[])[..], &[0; 9]], "found 0 for 1");
        let long = [text("a"), number(1), number(i32::MAX), vec![0; 40]].concat();
        check(&[&number(1), &long], "ends inside entry a");
        check(&[&number(1), &entry("a", -2, &[1.0])], "entry a: expected a number from 0");
        check(&[&number(1), &entry("a", 1, &[f32::INFINITY])], "tensor a: sums: expected");
        check(&[&number(2), &entry("a", 1, &[1.0]), &entry("a", 1, &[1.0])], "appears twice");
        check(&[&sample(), &number(1), &text("x"), b"y"], "expected the end of the file");
        check(&[&number(1), &number(1), &[0xff; 20]], "expected UTF-8");
    }
}
