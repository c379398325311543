//! Measures how long a store with many extents takes until something can be found:
//! `cargo run --release -p gannet-store --example start -- FOLDER [EXTENTS]`.
//!
//! A folder that does not exist is filled with extents of one small block each; then a store
//! is opened on it, several times. Between the runs, `echo 3 > /proc/sys/vm/drop_caches` has the
//! system forget the folder.

#![allow(clippy::print_stdout, reason = "a program of its own")]

use base::Name;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Keyspace, Kind, Layout, PageBuffer, Store, StoreOptions, ToWrite};

const POSITIONS: usize = 32;
const LAYERS: usize = 28;
const LAYER_BYTES: u64 = 64;
const RUNS: usize = 5;
/// Most time that filling takes.
const FILLING: Duration = Duration::from_secs(600);
/// Pause between two questions.
const PAUSE: Duration = Duration::from_micros(200);

fn root() -> Name {
    Name::root(b"start")
}

fn layout() -> Layout {
    let kind = Kind { layer_bytes: vec![LAYER_BYTES; LAYERS], is_state: false };
    Layout { positions: POSITIONS, layers: 0..LAYERS, kinds: vec![kind] }
}

/// Tokens and name of the block with this number.
fn block(number: u32) -> (Name, Vec<u32>) {
    let tokens = vec![number; POSITIONS];
    (root().child(&tokens), tokens)
}

fn fill(folder: &Path, extents: u32) -> Result<(), Box<dyn Error>> {
    let store = Store::open(StoreOptions::new(folder))?;
    let keys = store.keyspace(root(), layout(), "{}");
    for number in 0..extents {
        let bytes = PageBuffer::zeroed(layout().block_bytes(0))?;
        let (kind, parent, depth, blocks) = (0, root(), 0, vec![block(number)]);
        keys.write(ToWrite { kind, parent, depth, blocks, bytes, micros: 1 });
    }
    match store.flush(FILLING) {
        true => Ok(()),
        false => Err("the folder takes too long to fill".into()),
    }
}

/// Waits until the store says yes.
fn time(start: Instant, keys: &Keyspace, is_there: impl Fn(&Keyspace) -> bool) -> Duration {
    while !is_there(keys) {
        std::thread::sleep(PAUSE);
    }
    start.elapsed()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("expected a folder")?;
    let extents = args.next().map_or(Ok(50_000), |number| number.parse())?;
    let folder = Path::new(&folder);
    if folder.exists() {
        println!("{}: measured as it is", folder.display());
    } else {
        fill(folder, extents)?;
    }
    // The last one written is the most valuable.
    let (last, _) = block(extents - 1);
    for _ in 0..RUNS {
        let start = Instant::now();
        let store = Store::open(StoreOptions::new(folder))?;
        let keys = store.keyspace(root(), layout(), "{}");
        let first = time(start, &keys, |keys| keys.has(0, last));
        let all = time(start, &keys, Keyspace::is_ready);
        println!("first hit possible after {first:.3?}, all {extents} known after {all:.3?}");
    }
    Ok(())
}
