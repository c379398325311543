use super::outline::{padded, unpadded};
use super::problem::{READABLE, corrupt};
use super::*;
use crate::key::StoreKey;
use crate::layout::{Kind, Layout};
use base::Name;
use proptest::prelude::*;

/// The header of `blocks` blocks of 4 tokens after a root, in 3 layers.
fn header(blocks: usize) -> Header {
    let root = Name::root(b"model");
    let mut parent = root;
    let block = |index: usize| {
        let tokens: Vec<u32> = (0..4).map(|at| (index * 4 + at) as u32).collect();
        parent = parent.child(&tokens);
        StoredBlock { name: parent, tokens }
    };
    let stored = (0..blocks).map(block).collect();
    let outline = Outline {
        root,
        depth: 0,
        blocks,
        positions: 4,
        is_state: false,
        kind: 0,
        first_layer: 2,
        layer_bytes: vec![5000, 0, 100],
        created: 1_790_000_000,
        micros: 1234,
        checksums: [7, 8, 9].repeat(blocks),
        seal: None,
    };
    Header { outline, parent: root, blocks: stored }
}

fn key(byte: u8) -> StoreKey {
    StoreKey::new(&[byte; 32])
}

/// The same, sealed.
fn sealed(blocks: usize) -> Header {
    let mut header = header(blocks);
    let tags = (0..3 * blocks).map(|at| [at as u8; 16]).collect();
    header.outline.seal = Some(Seal { key: key(1).id(), salt: [9; 32], tags });
    header
}

fn layout() -> Layout {
    let kind = Kind { layer_bytes: vec![1, 1, 5000, 0, 100, 1], is_state: false };
    Layout { positions: 4, layers: 0..6, kinds: vec![kind] }
}

#[test]
fn headers_are_read_again() {
    for blocks in [1, 2, 64] {
        for (header, key) in [(header(blocks), None), (sealed(blocks), Some(&key(1)))] {
            let bytes = header.encode(key);
            let length = header.outline.file_bytes();
            assert_eq!(length, bytes.len() as u64 + blocks as u64 * 8192);
            assert_eq!(Outline::bytes_of(&bytes[..16], length), Ok(bytes.len()));
            assert_eq!(Outline::decode(&bytes, length), Ok(header.outline.clone()));
            assert_eq!(Header::decode(&bytes, length, key), Ok(header.clone()));
            let root = header.outline.root;
            assert_eq!(header.check(root, &header.name(key), &layout(), key), Ok(()));
        }
    }
}

#[test]
fn the_first_bytes_are_those_of_the_format() {
    let bytes = header(1).encode(None);
    assert_eq!(&bytes[..8], b"GANNETKV");
    assert_eq!(bytes[8..16], [1, 0, 0, 0, 0, 16, 0, 0]);
    assert_eq!(bytes[48..64], [0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[64..72], 5100_u64.to_le_bytes());
    assert_eq!(bytes.len(), 4096);
    let readable = bytes;
    let bytes = sealed(1).encode(Some(&key(1)));
    assert_eq!(bytes[8..16], [2, 0, 0, 0, 0, 16, 0, 0]);
    assert_eq!(bytes[32..48], key(1).id().to_bytes());
    assert_eq!(bytes[48..128], readable[48..128]);
    assert_eq!(bytes[128..160], [9; 32]);
    assert_eq!(bytes[160..172], [7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!(bytes[172..220], [[0; 16], [1; 16], [2; 16]].concat());
}

#[test]
fn sealed_headers_show_no_tokens_and_no_names() {
    let header = sealed(3);
    let bytes = header.encode(Some(&key(1)));
    let name = header.name(Some(&key(1)));
    assert_ne!(name, header.name(None));
    let hides = |part: &[u8]| !bytes.windows(part.len()).any(|window| window == part);
    for block in &header.blocks {
        assert!(hides(&block.name.to_bytes()) && hides(&block.name.to_string().into_bytes()));
        let tokens: Vec<u8> = block.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        assert!(hides(&tokens));
    }
}

#[test]
fn other_keys_and_none_open_nothing() {
    let header = sealed(2);
    let (bytes, length) = (header.encode(Some(&key(1))), header.outline.file_bytes());
    let foreign = Err(Problem::Sealed(key(1).id()));
    assert_eq!(Header::decode(&bytes, length, Some(&key(2))), foreign);
    assert_eq!(Header::decode(&bytes, length, None), foreign);
    // What is not sealed is not taken for what is.
    let open = self::header(2);
    let decoded = Header::decode(&open.encode(None), open.outline.file_bytes(), Some(&key(1)));
    assert_eq!(decoded, Err(corrupt("it is not sealed")));
}

#[test]
fn changes_of_a_sealed_header_are_seen_with_a_right_checksum() {
    let header = sealed(2);
    let (bytes, length) = (header.encode(Some(&key(1))), header.outline.file_bytes());
    let end = unpadded(2, 3, 4, true).unwrap();
    // Not the lengths, which contradict each other, nor the id of the key.
    for at in (16..32).chain(48..52).chain(72..88).chain(96..104).chain(128..end - 4) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let sum = crc32c::crc32c(&changed[..end - 4]);
        changed[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        let decoded = Header::decode(&changed, length, Some(&key(1)));
        assert_eq!(decoded, Err(corrupt("the header is not as it was sealed")), "{at}");
    }
}

#[test]
fn every_layer_of_every_block_is_sealed_with_a_nonce_of_its_own() {
    let mut header = header(2);
    header.outline.seal = Some(Seal::new(&key(1)).unwrap());
    header.outline.checksums.clear();
    let mut bytes = vec![0; 2 * 5100];
    header.protect(&mut bytes, Some(&key(1)));
    let outline = &header.outline;
    let tags = &outline.seal.as_ref().unwrap().tags;
    assert_eq!((tags.len(), outline.checksums.len()), (6, 6));
    // Equal contents: whoever uses a nonce twice shows it.
    let starts = [0, 5000, 5100, 10_100].map(|start| &bytes[start..start + 100]);
    for (at, start) in starts.iter().enumerate() {
        assert!(!starts[..at].contains(start) && **start != [0; 100], "{at}");
    }
    assert!((0..6).all(|at| !tags[..at].contains(&tags[at])));
    // Each opens in its own place, and in no other.
    let check = LayerCheck::new(outline, Some(&key(1)));
    let opened = |block, layer, place: usize, length| {
        let mut layer_bytes = bytes[place..place + length].to_vec();
        let is_valid = check.is_valid(block, layer, &mut layer_bytes);
        is_valid && layer_bytes.iter().all(|byte| *byte == 0)
    };
    assert!(opened(0, 2, 0, 5000) && opened(1, 2, 5100, 5000) && opened(1, 4, 10_100, 100));
    assert!(!opened(1, 2, 0, 5000) && !opened(0, 4, 10_100, 100) && !opened(0, 3, 0, 100));
}

#[test]
fn a_state_is_one_block_of_less_than_a_block_of_tokens() {
    let mut state = header(1);
    state.outline.is_state = true;
    state.outline.positions = 3;
    state.blocks[0].tokens.pop();
    state.blocks[0].name = state.parent.state(&state.blocks[0].tokens);
    let length = state.outline.file_bytes();
    let decoded = Header::decode(&state.encode(None), length, None).unwrap();
    let mut layout = layout();
    let root = state.outline.root;
    assert!(decoded.check(root, &state.name(None), &layout, None).is_err());
    layout.kinds[0].is_state = true;
    assert_eq!(decoded.check(root, &state.name(None), &layout, None), Ok(()));
}

#[test]
fn layers_have_their_places() {
    let header = header(2).outline;
    assert_eq!(header.layer_range(2..5), 0..5100);
    assert_eq!(header.layer_range(3..5), 5000..5100);
    assert_eq!([0, 1].map(|block| header.offset(block)), [4096, 12288]);
    assert_eq!([header.part(0, 2), header.part(1, 4)], [0, 5]);
}

#[test]
fn contradictions_are_problems() {
    let good = header(2);
    let length = good.outline.file_bytes();
    let problem = |change: &dyn Fn(&mut Header)| {
        let mut header = good.clone();
        change(&mut header);
        let decoded = Header::decode(&header.encode(None), length, None);
        let check = |it: Header| it.check(good.outline.root, &good.name(None), &layout(), None);
        decoded.and_then(check).unwrap_err().to_string()
    };
    let expect = |change: &dyn Fn(&mut Header), expected: &str| {
        let problem = problem(change);
        assert!(problem.contains(expected), "{problem}");
    };
    expect(&|it| it.blocks[1].tokens[0] += 1, "has other tokens");
    expect(&|it| it.parent = it.parent.child(&[]), "has other tokens");
    let sizes = "2 blocks of 13292 bytes in a file of 20480 bytes";
    expect(&|it| it.outline.layer_bytes[1] = 8192, sizes);
    let truncate = |it: &mut Header| {
        it.blocks.truncate(1);
        it.outline.blocks = 1;
    };
    expect(&truncate, "1 blocks of");
    expect(&|it| it.outline.is_state = true, "flags 0x1");
    expect(&|it| it.outline.layer_bytes[1] = 1, "blocks of another size");
    expect(&|it| it.outline.root = it.outline.root.child(&[]), "another file's content");
    expect(&|it| it.outline.kind = 1, "another file's content");
    let mut huge = good.encode(None);
    huge[112..120].fill(0xff);
    let end = unpadded(2, 3, 4, false).unwrap();
    let sum = crc32c::crc32c(&huge[..end - 4]);
    huge[end - 4..end].copy_from_slice(&sum.to_le_bytes());
    let decoded = Header::decode(&huge, length, None);
    assert!(decoded.unwrap_err().to_string().contains("2 blocks of 5100"));
    let mut newer = good.encode(None);
    newer[8] = 3;
    assert_eq!(Header::decode(&newer, length, None), Err(Problem::Newer(3)));
    newer[8] = 0;
    assert!(Header::decode(&newer, length, None).unwrap_err().to_string().contains("version 0"));
    assert!(Header::decode(&[], 0, None).is_err());
}

#[test]
fn a_header_cut_or_flipped_at_any_byte_is_a_problem() {
    for (good, key) in [(header(3), None), (sealed(3), Some(&key(1)))] {
        let (bytes, length) = (good.encode(key), good.outline.file_bytes());
        for at in 0..bytes.len() {
            assert!(Header::decode(&bytes[..at], length, key).is_err(), "cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            // Damage is told apart from a key that is not at hand.
            match Header::decode(&flipped, length, key).unwrap_err() {
                Problem::Corrupt(_) => {}
                Problem::Newer(_) => assert!((8..12).contains(&at), "flipped at {at}"),
                problem @ Problem::Sealed(_) => panic!("flipped at {at}: {problem}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 16..4096),
        length in any::<u64>(),
        numbers in prop::collection::vec(0_u32..5, 4),
        is_sealed in any::<bool>(),
    ) {
        bytes[..8].copy_from_slice(b"GANNETKV");
        bytes[8..12].copy_from_slice(&(READABLE + u32::from(is_sealed)).to_le_bytes());
        bytes[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        bytes.resize(4096, 0);
        bytes[32..48].copy_from_slice(&key(1).id().to_bytes());
        for (at, number) in numbers.iter().enumerate() {
            bytes[48 + at * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        for key in [None, Some(&key(1))] {
            let _ = Header::decode(&bytes, length, key);
        }
        // With a right checksum, so that what comes behind it is reached.
        let [_, positions, blocks, layers] = [0, 1, 2, 3].map(|at| numbers[at] as usize);
        let end = unpadded(blocks, layers, positions, is_sealed);
        prop_assert_eq!(padded(end), 4096);
        let end = end.unwrap();
        let sum = crc32c::crc32c(&bytes[..end - 4]);
        bytes[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        for key in [None, Some(&key(1))] {
            let _ = Header::decode(&bytes, length, key);
        }
    }
}
