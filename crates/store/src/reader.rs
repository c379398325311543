//! Threads that read runs of blocks and check them.

use crate::buffers::PageBuffer;
use crate::disk::DiskFile;
use crate::folder;
use crate::header::{Header, LayerCheck, PAGE, Problem};
use crate::index::{ExtentId, Piece};
use crate::jobs::{Arrival, ReadJob, Run};
use crate::layout::{ExtentName, Layout};
use crate::shared::StoreState;
use crate::stats::{Counters, Failure};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// Bytes that are read or written at once.
pub(crate) const CHUNK: usize = 4 << 20;

/// Why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Problem(Problem),
    Io(io::Error),
}

impl From<Problem> for Unusable {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Whether bytes can be transferred to or from a disk as they are: they begin with a page.
pub(crate) fn is_page(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(PAGE)
}

/// Reads jobs until the store is closed.
pub(crate) fn run(shared: &StoreState) {
    let mut pages = match PageBuffer::zeroed(CHUNK) {
        Ok(pages) => pages,
        Err(error) => return tracing::error!("the store cannot read: {error}"),
    };
    while let Some(job) = shared.reads.pop() {
        let start = Instant::now();
        let (blocks, bytes) = read_run(shared, &job, &mut pages);
        let ReadJob { ticket, run, arrivals, .. } = job;
        if blocks == run.blocks {
            shared.measure_read(bytes.len(), start.elapsed());
        }
        Counters::add(&shared.counters.read_bytes, bytes.len() as u64);
        let mut index = shared.index();
        run.pieces.iter().for_each(|piece| index.unpin(piece.extent));
        drop(index);
        // The engine may have ended.
        let _ = arrivals.send(Arrival { ticket, blocks, bytes });
    }
}

/// Reads a run; returns how many of its blocks are valid, and the bytes of all.
fn read_run(shared: &StoreState, job: &ReadJob, pages: &mut PageBuffer) -> (usize, PageBuffer) {
    let Run { kind, blocks, pieces } = &job.run;
    let count = blocks * job.layout.block_bytes(*kind);
    let buffer = shared.incoming.take(count).map_or_else(|| PageBuffer::with_capacity(count), Ok);
    let Ok(mut bytes) = buffer.inspect_err(|error| tracing::warn!("memory to read into: {error}"))
    else {
        return (0, PageBuffer::default());
    };
    bytes.append(count);
    let mut valid = *blocks;
    for piece in pieces {
        let known = shared.index().get(piece.extent).map(|extent| extent.name);
        let Some(name) = known else {
            shared.counters.failed(Failure::Vanished);
            return (0, bytes);
        };
        match read_piece(shared, job, piece, &name, pages, &mut bytes) {
            Ok(blocks) if blocks == job.run.blocks => {}
            Ok(blocks) => {
                let problem = Problem::Corrupt("the checksum of a layer is wrong".to_owned());
                discard(shared, piece.extent, &problem.into());
                valid = valid.min(blocks);
            }
            Err(unusable) => {
                discard(shared, piece.extent, &unusable);
                return (0, bytes);
            }
        }
    }
    (valid, bytes)
}

/// Reads one piece of each block of a run into its place; returns how many blocks are valid.
fn read_piece(
    shared: &StoreState,
    job: &ReadJob,
    piece: &Piece,
    name: &ExtentName,
    pages: &mut PageBuffer,
    bytes: &mut [u8],
) -> Result<usize, Unusable> {
    let ReadJob { run, layout, root, .. } = job;
    let path = shared.path(*root, name);
    let header = read_header(shared, &path)?;
    let key = shared.key.as_ref();
    header.check(*root, name, layout, key)?;
    let outline = &header.outline;
    let first = piece.at as usize;
    // Another process may have written other blocks up to the same last one.
    let blocks = header.blocks.get(first..first + run.blocks).unwrap_or_default();
    if blocks.is_empty() || !blocks.iter().flat_map(|block| &block.tokens).eq(&job.tokens) {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    let file = shared.disk.open(&path)?;
    let layers = outline.layer_range(piece.layers.clone());
    let own = layout.block_bytes(run.kind);
    let before = own_bytes(layout, run.kind, piece.layers.start);
    let places = (0..run.blocks).map(|block| {
        let start = outline.offset(first + block) + layers.start;
        let to = block * own + before;
        (start..start + (layers.end - layers.start), to)
    });
    read_places(&*file, outline.file_bytes(), places, pages, bytes)?;
    let check = LayerCheck::new(outline, key);
    let mut is_valid = |block: usize| {
        let mut rest = &mut bytes[block * own + before..];
        piece.layers.clone().all(|layer| {
            let bytes = layout.kinds[run.kind].layer_bytes[layer] as usize;
            let (data, behind) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = behind;
            check.is_valid(first + block, layer, data)
        })
    };
    Ok((0..run.blocks).take_while(|&block| is_valid(block)).count())
}

/// Bytes of own layers before `layer` in a block.
fn own_bytes(layout: &Layout, kind: usize, layer: usize) -> usize {
    let before: u64 = layout.kinds[kind].layer_bytes[layout.layers.start..layer].iter().sum();
    before as usize
}

/// Reads ranges of a file, ascending, each to its place in `bytes`.
fn read_places(
    file: &dyn DiskFile,
    length: u64,
    places: impl Iterator<Item = (Range<u64>, usize)>,
    pages: &mut PageBuffer,
    bytes: &mut [u8],
) -> io::Result<()> {
    let page = PAGE as u64;
    // The part of the file that `pages` holds.
    let mut held = 0..0;
    for (mut range, mut to) in joined(places) {
        let is_whole = range.start.is_multiple_of(page) && range.end.is_multiple_of(page);
        if is_whole && is_page(&bytes[to..]) {
            let to = &mut bytes[to..to + (range.end - range.start) as usize];
            for (at, chunk) in (range.start..).step_by(CHUNK).zip(to.chunks_mut(CHUNK)) {
                file.read(chunk, at)?;
            }
            continue;
        }
        while !range.is_empty() {
            if !held.contains(&range.start) {
                let start = range.start / page * page;
                held = start..(start + CHUNK as u64).min(length);
                file.read(&mut pages[..(held.end - held.start) as usize], held.start)?;
            }
            let end = range.end.min(held.end);
            let count = (end - range.start) as usize;
            let from = (range.start - held.start) as usize;
            bytes[to..to + count].copy_from_slice(&pages[from..from + count]);
            (range.start, to) = (end, to + count);
        }
    }
    Ok(())
}

/// Joins ranges that follow each other in a file and in memory.
fn joined(
    places: impl Iterator<Item = (Range<u64>, usize)>,
) -> impl Iterator<Item = (Range<u64>, usize)> {
    let mut places = places.peekable();
    std::iter::from_fn(move || {
        let (mut range, to) = places.next()?;
        let follows = |(next, at): &(Range<u64>, usize), range: &Range<u64>| {
            next.start == range.end && (at - to) as u64 == range.end - range.start
        };
        while let Some((next, _)) = places.next_if(|next| follows(next, &range)) {
            range.end = next.end;
        }
        Some((range, to))
    })
}

/// Reads the header of an extent, and checks all that the header itself shows.
pub(crate) fn read_header(shared: &StoreState, path: &Path) -> Result<Header, Unusable> {
    let file = shared.disk.open_cached(path)?;
    Ok(folder::read_header(&*file, shared.key.as_ref())??)
}

/// Forgets an extent that cannot be used, and removes its file if its content is wrong.
pub(crate) fn discard(shared: &StoreState, id: ExtentId, why: &Unusable) {
    let failure = match why {
        // It is of use to other versions, or to those who have its key.
        Unusable::Problem(Problem::Newer(_) | Problem::Sealed(_)) => None,
        Unusable::Problem(_) => Some(Failure::Corrupt),
        Unusable::Io(error) => Some(Failure::of(error)),
    };
    let removed = match failure {
        Some(Failure::Vanished) => shared.index().remove(id),
        _ => shared.index().ignore(id),
    };
    // Another reader was faster.
    let Some(extent) = removed else { return };
    let path = shared.path(extent.root, &extent.name);
    if let Some(failure) = failure {
        shared.counters.failed(failure);
    }
    if failure != Some(Failure::Corrupt) {
        return tracing::debug!("{}: {why}", path.display());
    }
    tracing::warn!("{}: {why}; the file is removed", path.display());
    if let Err(error) = shared.disk.remove(&path) {
        tracing::debug!("{}: {error}", path.display());
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}
