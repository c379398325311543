use super::*;
use kernels::quant::QuantType;
use kernels::quant::{BF16, Q8_0};
use proptest::prelude::*;
use std::path::PathBuf;

fn origin() -> PackOrigin {
    let [digest, identity, mode, arithmetic] = ["d1", "i1", "fast", "bytes+f32"].map(str::to_owned);
    PackOrigin { digest, identity, mode, arithmetic }
}

fn part_of(name: &str, index: u32, ty: &'static QuantType) -> PackPart {
    let (name, layout) = (name.to_owned(), "int8".to_owned());
    PackPart { name, index, ty, layout, rows: 16, cols: 32, range: 0..0, crc32c: 0 }
}

/// A file with parts of these names and numbers, of `4096 * i + 5` bytes each.
fn file(parts: &[(&str, u32)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.gpack");
    let mut writer = PackWriter::create(&path, origin()).unwrap();
    for (i, (name, index)) in parts.iter().enumerate() {
        let ty = if i % 2 == 0 { &BF16 } else { &Q8_0 };
        writer.add(&part_of(name, *index, ty), &vec![i as u8 + 1; PAGE * i + 5]).unwrap();
    }
    assert!(!path.exists(), "it has no name before it is complete");
    let bytes = writer.finish().unwrap();
    assert_eq!(bytes, path.metadata().unwrap().len());
    (folder, path)
}

fn problem(bytes: &[u8]) -> String {
    parse(bytes, Path::new("x.gpack")).unwrap_err().to_string()
}

/// The same file with header and table changed, and right checksums.
fn changed(bytes: &[u8], change: impl FnOnce(&mut [u8], &mut PackTable)) -> Vec<u8> {
    let at = table_range(bytes).unwrap();
    let mut table: PackTable = serde_json::from_slice(&bytes[at.clone()]).unwrap();
    let mut all = bytes[..at.start].to_vec();
    change(&mut all[..CHECKED], &mut table);
    let table = serde_json::to_vec(&table).unwrap();
    all[24..32].copy_from_slice(&(table.len() as u64).to_le_bytes());
    all[32..36].copy_from_slice(&crc32c::crc32c(&table).to_le_bytes());
    let sum = crc32c::crc32c(&all[..CHECKED]);
    all[CHECKED..CHECKED + 4].copy_from_slice(&sum.to_le_bytes());
    all.extend(table);
    all
}

#[test]
fn parts_read_back_at_whole_pages() {
    let (_folder, path) = file(&[("a", 0), ("a", 1), ("", 7)]);
    let pack = PackFile::open(&path).unwrap();
    assert_eq!(*pack.origin(), origin());
    let names: Vec<_> = pack.parts().iter().map(PackPart::to_string).collect();
    assert_eq!(names, ["a 0", "a 1", " 7"]);
    for (i, part) in pack.parts().iter().enumerate() {
        let bytes = pack.bytes(part);
        assert_eq!(*bytes.read(0..bytes.len()), vec![i as u8 + 1; PAGE * i + 5]);
        assert!(part.range.start.is_multiple_of(PAGE));
    }
    assert_eq!(pack.parts()[1].ty, &Q8_0);
    assert_eq!(pack.verify(|_| true), Some(vec![]));
    assert_eq!(pack.verify(|_| false), None);
}

#[test]
fn a_changed_bit_of_a_part_is_found_by_reading_it() {
    let (_folder, path) = file(&[("a", 0), ("b", 0)]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[2 * PAGE + 77] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let pack = PackFile::open(&path).unwrap();
    assert_eq!(pack.verify(|_| true), Some(vec![&pack.parts()[1]]));
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.gpack");
    let mut writer = PackWriter::create(&path, origin()).unwrap();
    writer.add(&part_of("a", 0, &BF16), &[1; 10]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn other_versions_and_places_outside_the_file_are_named() {
    let (_folder, path) = file(&[("a", 0), ("b", 0)]);
    let bytes = std::fs::read(&path).unwrap();
    let check = |change: &dyn Fn(&mut [u8], &mut PackTable), expected: &str| {
        let found = problem(&changed(&bytes, change));
        assert_eq!(found, format!("x.gpack: {expected}"));
    };
    check(&|header, _| header[8] = 9, "expected version 2 of the format, found 9");
    let layouts = format!("expected version {LAYOUT_VERSION} of the layouts, found 99");
    check(&|header, _| header[12] = 99, &layouts);
    check(&|_, table| table.parts[1].name = "a".into(), "part a 0: there are two");
    let unknown = "part a 0: type: expected a type of weights, found q9";
    check(&|_, table| table.parts[0].ty = "q9".into(), unknown);
    for (offset, len) in [(0, 5), (4097, 5), (4096, u64::MAX), (u64::MAX - 4095, 5), (8192, 8193)] {
        let place = "expected an offset in whole pages, and an end, in 4096..16384";
        let found = format!("found {len} bytes at {offset}");
        let change = |_: &mut [u8], table: &mut PackTable| {
            (table.parts[0].offset, table.parts[0].bytes) = (offset, len);
        };
        check(&change, &format!("part a 0: {place}, {found}"));
    }
    let overlap = "part b 0: expected an offset in whole pages, and an end, in 8192..16384, found \
                   4101 bytes at 4096";
    check(&|_, table| table.parts[1].offset = 4096, overlap);
}

proptest! {
    #[test]
    fn damage_of_header_or_table_is_an_error(at in 0..4096usize, bit in 0..8u8) {
        let (_folder, path) = file(&[("a", 0), ("b", 0)]);
        let whole = std::fs::read(&path).unwrap();
        let table = table_range(&whole).unwrap();
        // Bytes of the header and of the table; between them zeros and parts, which only reading
        // them would find.
        let places: Vec<_> = (0..CHECKED + 4).chain(table).collect();
        let mut bytes = whole.clone();
        bytes[places[at % places.len()]] ^= 1 << bit;
        prop_assert!(parse(&bytes, &path).is_err());
        prop_assert!(parse(&whole[..at * whole.len() / 4096], &path).is_err());
        let longer = [&whole[..], &[0]].concat();
        prop_assert!(parse(&longer, &path).is_err());
    }
}
