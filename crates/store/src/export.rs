//! Takes what a folder holds of a chain out of it, and puts such extents into another folder.

use crate::header::{Header, Outline, StoredBlock};
use crate::jobs::{Arrival, Imported, Run, WriteJob};
use crate::store::{Keyspace, Store, describe};
use crate::transfer::TransferWriter;
use base::Name;
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most time that reading a run takes.
const LONG: Duration = Duration::from_secs(600);

impl Store {
    /// Describes a root, unless it has a description, as JSON to people who list the folder.
    ///
    /// # Errors
    ///
    /// If the disk gives one.
    pub fn describe(&self, root: Name, about: &str) -> io::Result<()> {
        describe(&self.shared, self.shared.hidden(root), about)
    }

    /// Stores an extent that is not sealed, with the bytes of its blocks, and waits until it is.
    /// Its root is the one before the key of this store hides it.
    ///
    /// # Errors
    ///
    /// If the disk gives one.
    pub fn import(&self, header: Header, bytes: Vec<u8>) -> io::Result<Imported> {
        let (done, receiver) = mpsc::channel();
        let closed = || io::Error::other("the store is closed");
        let job = WriteJob::Import { header: Box::new(header), bytes, done };
        self.shared.writes.push(job).map_err(|_| closed())?;
        receiver.recv().map_err(|_| closed())?
    }
}

/// A part of a chain that is taken out: blocks of a kind that follow each other, or one state.
struct ChainPart {
    kind: usize,
    is_state: bool,
    /// Name of the block before the first.
    parent: Name,
    /// Blocks before the first.
    depth: usize,
    names: Vec<Name>,
    /// Positions of the tokens.
    positions: Range<usize>,
}

impl Keyspace {
    /// Writes what is stored of the chain that `tokens` make after `parent`. Returns the number of
    /// tokens, from the first on, whose blocks of the first kind are.
    ///
    /// # Errors
    ///
    /// If it cannot be written. What cannot be read is left out.
    pub fn export<W: Write + Seek>(
        &self,
        parent: Name,
        tokens: &[u32],
        out: &mut TransferWriter<W>,
    ) -> io::Result<usize> {
        let block = self.layout().positions;
        let names = chain(parent, tokens, block);
        let mut covered = 0;
        for kind in 0..self.layout().kinds.len() {
            let parts = match self.layout().kinds[kind].is_state {
                true => self.stored_states(kind, parent, &names, tokens),
                false => self.stored_blocks(kind, parent, &names),
            };
            let (mut next, mut is_whole) = (0, true);
            for (run, part) in parts {
                let start = part.depth;
                let blocks = self.export_run(run, part, tokens, out)?;
                is_whole &= start == next;
                next = start + blocks;
                if kind == 0 && is_whole {
                    covered = next * block;
                }
            }
        }
        Ok(covered)
    }

    /// Whether the end of the chain that `tokens` make after `parent` is stored: the last full
    /// block in every kind; where there are states, that of the first kind and the state after all
    /// tokens. Who writes the parts of a chain in their order, a state after its rows, has stored
    /// all of it then. Of a chain without a full block, nothing is expected.
    pub fn has_end(&self, parent: Name, tokens: &[u32]) -> bool {
        let block = self.layout().positions;
        let Some(&last) = chain(parent, tokens, block).last() else { return true };
        let kinds = &self.layout().kinds;
        match kinds.iter().position(|kind| kind.is_state) {
            // What is seen of other kinds may be rows since the last full block alone.
            Some(state) => {
                let rest = tokens.chunks_exact(block.max(1)).remainder();
                self.has(0, last) && self.has(state, last.state(rest))
            }
            None => (0..kinds.len()).all(|kind| self.has(kind, last)),
        }
    }

    /// The runs of blocks of a kind.
    fn stored_blocks(&self, kind: usize, parent: Name, names: &[Name]) -> Vec<(Run, ChainPart)> {
        let block = self.layout().positions;
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < names.len() {
            let runs = self.find(kind, names[at..].iter().copied());
            if runs.is_empty() {
                // Kinds with a window hold the last blocks of a chain only.
                at += 1;
            }
            for run in runs {
                let end = at + run.blocks;
                let part = ChainPart {
                    kind,
                    is_state: false,
                    parent: before(parent, names, at),
                    depth: at,
                    names: names[at..end].to_vec(),
                    positions: at * block..end * block,
                };
                parts.push((run, part));
                at = end;
            }
        }
        parts
    }

    /// The states of a kind, after any number of tokens.
    fn stored_states(
        &self,
        kind: usize,
        parent: Name,
        names: &[Name],
        tokens: &[u32],
    ) -> Vec<(Run, ChainPart)> {
        let block = self.layout().positions;
        let state = |end: usize| {
            let (depth, start) = (end / block, end / block * block);
            let parent = before(parent, names, depth);
            let name = parent.state(&tokens[start..end]);
            let run = self.find(kind, std::iter::once(name)).pop()?;
            let (names, positions) = (vec![name], start..end);
            Some((run, ChainPart { kind, is_state: true, parent, depth, names, positions }))
        };
        (0..=tokens.len()).filter_map(state).collect()
    }

    /// Reads a run and writes what came of it; returns how many blocks did.
    fn export_run<W: Write + Seek>(
        &self,
        run: Run,
        part: ChainPart,
        tokens: &[u32],
        out: &mut TransferWriter<W>,
    ) -> io::Result<usize> {
        let micros = self.micros(&run);
        let positions = part.positions.len() / part.names.len();
        let all = &tokens[part.positions.clone()];
        let Some(mut arrival) = self.read_run(run, all.to_vec()) else { return Ok(0) };
        if arrival.blocks == 0 {
            return Ok(0);
        }
        let layout = self.layout();
        let stored = |(name, at): (&Name, usize)| {
            let tokens = all[at * positions..(at + 1) * positions].to_vec();
            StoredBlock { name: *name, tokens }
        };
        let blocks: Vec<_> = part.names.iter().zip(0..arrival.blocks).map(stored).collect();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let outline = Outline {
            root: Name::default(),
            depth: part.depth as u32,
            blocks: blocks.len(),
            positions,
            is_state: part.is_state,
            kind: part.kind as u32,
            first_layer: layout.layers.start as u32,
            layer_bytes: layout.kinds[part.kind].layer_bytes[layout.layers.clone()].to_vec(),
            created,
            micros,
            checksums: Vec::new(),
            seal: None,
        };
        let bytes = arrival.blocks * layout.block_bytes(part.kind);
        let header = Header { outline, parent: part.parent, blocks };
        out.write(header, &mut arrival.bytes[..bytes])?;
        Ok(arrival.blocks)
    }

    /// Reads a run and waits for it. What arrives of readings that took too long is dropped.
    fn read_run(&self, run: Run, tokens: Vec<u32>) -> Option<Arrival> {
        static TICKETS: AtomicU64 = AtomicU64::new(0);
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        self.read(ticket, run, tokens);
        let end = Instant::now() + LONG;
        loop {
            let arrival = self.wait(end.saturating_duration_since(Instant::now()))?;
            if arrival.ticket == ticket {
                return Some(arrival);
            }
        }
    }
}

/// The names of the full blocks of a chain.
fn chain(parent: Name, tokens: &[u32], block: usize) -> Vec<Name> {
    let mut name = parent;
    let child = |tokens| {
        name = name.child(tokens);
        name
    };
    tokens.chunks_exact(block.max(1)).map(child).collect()
}

/// The name of the block before one.
fn before(parent: Name, names: &[Name], block: usize) -> Name {
    block.checked_sub(1).map_or(parent, |before| names[before])
}
