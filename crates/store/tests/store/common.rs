//! Chains of blocks whose content is known.

use base::Name;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use store::{Keyspace, Kind, Layout, PageBuffer, Run, Store, StoreKey, StoreOptions, ToWrite};

/// More time than anything takes.
pub const LONG: Duration = Duration::from_secs(60);
/// Tokens of a block.
pub const POSITIONS: usize = 4;
/// Bytes of each layer in a block of rows.
pub const LAYERS: [u64; 3] = [5000, 0, 300];
/// Bytes of a state.
pub const STATE_BYTES: usize = 9000;

pub fn root() -> Name {
    Name::root(b"model")
}

pub fn layout(layers: Range<usize>) -> Layout {
    let kind = |layer_bytes: &[u64], is_state| Kind { layer_bytes: layer_bytes.into(), is_state };
    let kinds = vec![kind(&LAYERS, false), kind(&[0, STATE_BYTES as u64, 0], true)];
    Layout { positions: POSITIONS, layers, kinds }
}

pub fn open(folder: &Path) -> Store {
    open_with(folder, None)
}

/// Opens a folder with a key, or without.
pub fn open_with(folder: &Path, key: Option<&StoreKey>) -> Store {
    Store::open(StoreOptions { key: key.cloned(), ..StoreOptions::new(folder) }).unwrap()
}

/// No key, and one.
pub fn keys() -> [Option<StoreKey>; 2] {
    [None, Some(key(1))]
}

pub fn key(byte: u8) -> StoreKey {
    StoreKey::new(&[byte; 32])
}

pub fn keyspace(store: &Store, layers: Range<usize>) -> Keyspace {
    store.keyspace(root(), layout(layers), "{}")
}

/// A keyspace that has found all extents.
pub fn ready_keyspace(store: &Store, layers: Range<usize>) -> Keyspace {
    let keys = keyspace(store, layers);
    assert!(store.flush(LONG));
    assert!(keys.is_ready());
    keys
}

/// The bytes of a state.
pub fn state_bytes(keys: &Keyspace) -> PageBuffer {
    let mut bytes = keys.buffer(STATE_BYTES).unwrap();
    bytes.append(STATE_BYTES).fill(9);
    bytes
}

/// Blocks of runs.
pub fn blocks(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.blocks).sum()
}

/// A chain of blocks whose bytes follow from their tokens.
pub struct Chain {
    tokens: Vec<[u32; POSITIONS]>,
    names: Vec<Name>,
}

impl Chain {
    /// A chain of `blocks` blocks; those of other seeds differ in all of them.
    pub fn new(seed: u32, blocks: usize) -> Self {
        let tokens = |block: u32| [seed, block, seed * block, 1];
        let tokens: Vec<_> = (0..blocks as u32).map(tokens).collect();
        let mut name = root();
        let child = |tokens: &[u32; POSITIONS]| {
            name = name.child(tokens);
            name
        };
        Self { names: tokens.iter().map(child).collect(), tokens }
    }

    /// This chain up to a block, and a block of its own after it.
    pub fn branch(&self, blocks: usize, seed: u32) -> Self {
        let (mut tokens, mut names) =
            (self.tokens[..blocks].to_vec(), self.names[..blocks].to_vec());
        tokens.push([seed; POSITIONS]);
        names.push(self.parent(blocks).child(&[seed; POSITIONS]));
        Self { tokens, names }
    }

    pub fn name(&self, block: usize) -> Name {
        self.names[block]
    }

    pub fn names(&self, range: Range<usize>) -> impl Iterator<Item = Name> {
        self.names[range].iter().copied()
    }

    /// All tokens.
    pub fn tokens(&self) -> Vec<u32> {
        self.tokens.concat()
    }

    fn parent(&self, block: usize) -> Name {
        block.checked_sub(1).map_or(root(), |before| self.names[before])
    }

    /// The bytes of some layers of a block.
    fn bytes(&self, block: usize, layers: Range<usize>) -> Vec<u8> {
        let of_layer = |layer: usize| {
            let seed = self.tokens[block].iter().sum::<u32>() as usize + layer;
            (0..LAYERS[layer] as usize).map(move |at| (seed * 31 + at * 7 + at / 256) as u8)
        };
        layers.flat_map(of_layer).collect()
    }

    /// Hands an extent of some blocks over to be written.
    pub fn write(&self, keys: &Keyspace, range: Range<usize>, layers: Range<usize>) {
        let all = range.clone().map(|block| self.bytes(block, layers.clone()));
        let mut bytes = keys.buffer(all.clone().map(|bytes| bytes.len()).sum()).unwrap();
        all.for_each(|block| bytes.append(block.len()).copy_from_slice(&block));
        keys.write(ToWrite {
            kind: 0,
            parent: self.parent(range.start),
            depth: range.start as u32,
            blocks: range.map(|at| (self.names[at], self.tokens[at].to_vec())).collect(),
            bytes,
            micros: 1000,
        });
    }

    /// Reads blocks and compares them; returns how many came from the first on.
    pub fn read(&self, keys: &Keyspace, range: Range<usize>) -> usize {
        let runs = keys.find(0, self.names(range.clone()));
        let mut start = range.start;
        for (ticket, run) in (0..).zip(&runs) {
            let tokens = self.tokens[start..start + run.blocks].concat();
            keys.read(ticket, run.clone(), tokens);
            start += run.blocks;
        }
        let mut arrivals: Vec<_> = runs.iter().map(|_| keys.wait(LONG).unwrap()).collect();
        arrivals.sort_unstable_by_key(|arrival| arrival.ticket);
        let mut start = range.start;
        for (arrival, run) in arrivals.iter().zip(&runs) {
            let blocks = (start..start + arrival.blocks).map(|at| self.bytes(at, layers_of(keys)));
            let expected: Vec<u8> = blocks.flatten().collect();
            assert!(arrival.bytes.starts_with(&expected), "run at block {start}");
            start += arrival.blocks;
            if arrival.blocks < run.blocks {
                break;
            }
        }
        start - range.start
    }
}

fn layers_of(keys: &Keyspace) -> Range<usize> {
    keys.layout().layers.clone()
}
