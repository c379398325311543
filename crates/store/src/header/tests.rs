use super::*;
use crate::layout::Kind;
use proptest::prelude::*;

/// The header of `blocks` blocks of 4 tokens after a root, in 3 layers.
fn header(blocks: usize) -> Header {
    let root = Name::root(b"model");
    let mut parent = root;
    let block = |index: usize| {
        let tokens: Vec<u32> = (0..4).map(|at| (index * 4 + at) as u32).collect();
        parent = parent.child(&tokens);
        StoredBlock { name: parent, tokens, checksums: vec![7, 8, 9] }
    };
    Header {
        root,
        parent: root,
        depth: 0,
        is_state: false,
        kind: 0,
        first_layer: 2,
        layer_bytes: vec![5000, 0, 100],
        created: 1_790_000_000,
        micros: 1234,
        blocks: (0..blocks).map(block).collect(),
    }
}

fn layout() -> Layout {
    let kind = Kind { layer_bytes: vec![1, 1, 5000, 0, 100, 1], is_state: false };
    Layout { positions: 4, layers: 0..6, kinds: vec![kind] }
}

#[test]
fn headers_are_read_again() {
    for blocks in [1, 2, 64] {
        let header = header(blocks);
        let bytes = header.encode();
        let length = header.file_bytes();
        assert_eq!(length, bytes.len() as u64 + blocks as u64 * 8192);
        assert_eq!(Header::bytes_of(&bytes[..16], length), Ok(bytes.len()));
        assert_eq!(Header::decode(&bytes, length), Ok(header.clone()));
        assert_eq!(header.check(header.root, &header.name(), &layout()), Ok(()));
    }
}

#[test]
fn the_first_bytes_are_those_of_the_format() {
    let bytes = header(1).encode();
    assert_eq!(&bytes[..8], b"GANNETKV");
    assert_eq!(bytes[8..16], [1, 0, 0, 0, 0, 16, 0, 0]);
    assert_eq!(bytes[48..64], [0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[64..72], 5100_u64.to_le_bytes());
    assert_eq!(bytes.len(), 4096);
}

#[test]
fn a_state_is_one_block_of_less_than_a_block_of_tokens() {
    let mut state = header(1);
    state.is_state = true;
    state.blocks[0].tokens.pop();
    state.blocks[0].name = state.parent.state(&state.blocks[0].tokens);
    let length = state.file_bytes();
    let decoded = Header::decode(&state.encode(), length).unwrap();
    let mut layout = layout();
    assert!(decoded.check(state.root, &state.name(), &layout).is_err());
    layout.kinds[0].is_state = true;
    assert_eq!(decoded.check(state.root, &state.name(), &layout), Ok(()));
}

#[test]
fn layers_have_their_places() {
    let header = header(2);
    assert_eq!(header.layer_range(2..5), 0..5100);
    assert_eq!(header.layer_range(3..5), 5000..5100);
    assert_eq!([0, 1].map(|block| header.offset(block)), [4096, 12288]);
}

#[test]
fn contradictions_are_problems() {
    let good = header(2);
    let length = good.file_bytes();
    let problem = |change: &dyn Fn(&mut Header)| {
        let mut header = good.clone();
        change(&mut header);
        let decoded = Header::decode(&header.encode(), length);
        decoded.and_then(|it| it.check(good.root, &good.name(), &layout())).unwrap_err().to_string()
    };
    let expect = |change: &dyn Fn(&mut Header), expected: &str| {
        let problem = problem(change);
        assert!(problem.contains(expected), "{problem}");
    };
    expect(&|it| it.blocks[1].tokens[0] += 1, "has other tokens");
    expect(&|it| it.parent = it.parent.child(&[]), "has other tokens");
    expect(&|it| it.layer_bytes[1] = 8192, "2 blocks of 13292 bytes in a file of 20480 bytes");
    expect(&|it| it.blocks.truncate(1), "1 blocks of");
    expect(&|it| it.is_state = true, "flags 0x1");
    expect(&|it| it.layer_bytes[1] = 1, "blocks of another size");
    expect(&|it| it.root = it.root.child(&[]), "another file's content");
    expect(&|it| it.kind = 1, "another file's content");
    let mut huge = good.encode();
    huge[112..120].fill(0xff);
    let end = unpadded(2, 3, 4).unwrap();
    let sum = crc32c::crc32c(&huge[..end - 4]);
    huge[end - 4..end].copy_from_slice(&sum.to_le_bytes());
    assert!(Header::decode(&huge, length).unwrap_err().to_string().contains("2 blocks of 5100"));
    let mut newer = good.encode();
    newer[8] = 2;
    assert_eq!(Header::decode(&newer, length), Err(Problem::Newer(2)));
    newer[8] = 0;
    assert!(Header::decode(&newer, length).unwrap_err().to_string().contains("version 0"));
    assert!(Header::decode(&[], 0).is_err());
}

#[test]
fn a_header_cut_or_flipped_at_any_byte_is_a_problem() {
    let good = header(3);
    let (bytes, length) = (good.encode(), good.file_bytes());
    for at in 0..bytes.len() {
        assert!(Header::decode(&bytes[..at], length).is_err(), "cut at {at}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(Header::decode(&flipped, length).is_err(), "flipped at {at}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 16..4096),
        length in any::<u64>(),
        numbers in prop::collection::vec(0_u32..5, 4),
    ) {
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        bytes.resize(4096, 0);
        for (at, number) in numbers.iter().enumerate() {
            bytes[48 + at * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        let _ = Header::decode(&bytes, length);
        // With a right checksum, so that what comes behind it is reached.
        let end = unpadded(numbers[2] as usize, numbers[3] as usize, numbers[1] as usize).unwrap();
        let sum = crc32c::crc32c(&bytes[..end - 4]);
        bytes[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        let _ = Header::decode(&bytes, length);
    }
}
