use super::*;
use crate::header::{Outline, StoredBlock};

/// The header of an extent of blocks of one token each, after a block.
fn header(parent: Name, depth: u32, layers: Range<usize>, tokens: &[u32]) -> Header {
    let mut before = parent;
    let block = |&token: &u32| {
        before = before.child(&[token]);
        StoredBlock { name: before, tokens: vec![token] }
    };
    let outline = Outline {
        root: Name::root(b"model"),
        depth,
        blocks: tokens.len(),
        positions: 1,
        is_state: false,
        kind: 0,
        first_layer: layers.start as u32,
        layer_bytes: vec![8; layers.len()],
        created: 0,
        micros: 1,
        checksums: vec![0; layers.len() * tokens.len()],
        seal: None,
    };
    Header { outline, parent, blocks: tokens.iter().map(block).collect() }
}

fn add(index: &mut Index, header: &Header, worth: Worth) -> ExtentId {
    let id = index.insert(header.outline.root, header.name(None), 100, worth);
    index.add_header(id, header);
    id
}

fn name(tokens: &[u32]) -> Name {
    tokens.iter().fold(Name::root(b"model"), |name, token| name.child(&[*token]))
}

#[test]
fn blocks_are_found_in_their_extents() {
    let mut index = Index::default();
    let first = add(&mut index, &header(name(&[]), 0, 0..4, &[1, 2, 3]), 5);
    let second = add(&mut index, &header(name(&[1, 2, 3]), 3, 0..4, &[4]), 5);
    let place = |index: &Index, tokens: &[u32], layers: Range<usize>| {
        let pieces = index.locate(Name::root(b"model"), 0, &layers, name(tokens))?;
        Some(pieces.into_iter().map(|piece| (piece.extent, piece.at, piece.layers)).collect())
    };
    assert_eq!(place(&index, &[1, 2], 0..4), Some(vec![(first, 1, 0..4)]));
    assert_eq!(place(&index, &[1, 2, 3, 4], 1..2), Some(vec![(second, 0, 1..2)]));
    assert_eq!(place(&index, &[1, 2, 4], 0..4), None);
    assert_eq!(place(&index, &[1, 2], 0..5), None);
    assert_eq!(index.locate(Name::root(b"other"), 0, &(0..4), name(&[1])), None);
    assert_eq!(index.locate(Name::root(b"model"), 1, &(0..4), name(&[1])), None);
    assert_eq!(index.chain(Name::root(b"model"), 0, &(0..4), name(&[1, 2, 3, 4])), [second, first]);
    assert_eq!((index.bytes(), index.blocks()), (200, 4));
    assert_eq!(index.remove(second).map(|extent| extent.bytes), Some(100));
    assert_eq!(place(&index, &[1, 2, 3, 4], 0..4), None);
    assert!(index.remove(second).is_none());
    assert_eq!((index.bytes(), index.blocks()), (100, 3));
}

#[test]
fn pieces_of_several_ranks_make_a_block() {
    let mut index = Index::default();
    let ids =
        [0..3, 3..5, 5..9].map(|layers| add(&mut index, &header(name(&[]), 0, layers, &[7]), 1));
    let found = |index: &Index, layers: Range<usize>| {
        let pieces = index.locate(Name::root(b"model"), 0, &layers, name(&[7]));
        pieces.map(|pieces| pieces.into_iter().map(|it| (it.extent, it.layers)).collect::<Vec<_>>())
    };
    assert_eq!(found(&index, 0..9), Some(vec![(ids[0], 0..3), (ids[1], 3..5), (ids[2], 5..9)]));
    assert_eq!(found(&index, 4..6), Some(vec![(ids[1], 4..5), (ids[2], 5..6)]));
    let whole = add(&mut index, &header(name(&[]), 0, 0..9, &[7]), 1);
    assert_eq!(found(&index, 0..9), Some(vec![(whole, 0..9)]));
    index.remove(whole);
    index.remove(ids[1]);
    assert_eq!(found(&index, 0..9), None);
    assert_eq!(found(&index, 6..9), Some(vec![(ids[2], 6..9)]));
}

#[test]
fn the_least_worth_goes_first_and_the_deepest_of_equals() {
    let mut index = Index::default();
    let trunk = add(&mut index, &header(name(&[]), 0, 0..1, &[1, 2]), 1);
    let branch = add(&mut index, &header(name(&[1]), 1, 0..1, &[5]), 9);
    let leaf = add(&mut index, &header(name(&[1, 2]), 2, 0..1, &[3]), 1);
    let other = add(&mut index, &header(name(&[]), 0, 0..1, &[8]), 4);
    let unread = {
        let unread = header(name(&[9]), 0, 0..1, &[9]);
        index.insert(unread.outline.root, unread.name(None), 100, 6)
    };
    let mut order = Vec::new();
    while let Some(id) = index.least(&HashSet::new()) {
        order.push(id);
        index.remove(id);
    }
    // The trunk outlives both that follow it, although it is worth least.
    assert_eq!(order, [leaf, other, unread, branch, trunk]);
    assert_eq!(index.bytes(), 0);
}

#[test]
fn what_is_read_or_kept_stays() {
    let mut index = Index::default();
    let [one, two] = [1, 2].map(|token| add(&mut index, &header(name(&[]), 0, 0..1, &[token]), 3));
    index.pin(one);
    assert_eq!(index.least(&HashSet::new()), Some(two));
    assert_eq!(index.least(&[two].into()), None);
    index.unpin(one);
    assert_eq!(index.least(&[two].into()), Some(one));
    index.set_worth(one, 8);
    assert_eq!(index.least(&HashSet::new()), Some(two));
}
