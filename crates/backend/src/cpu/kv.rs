//! The cache of the CPU: memory for the rows of all layers, in blocks, and storing them.

use crate::batch::{Batch, BlockCopy};
use crate::cache_spec::CacheSpec;
use crate::error::Error;
use base::{AlignedVec, ThreadPool};
use kernels::Isa;
use kernels::attention::{self, KvRef};
use kernels::kv::{KvLayout, MAX_HEAD_DIM, PlainRows};
use kernels::kv::{RowLayout, Rows};
use std::ops::Range;

/// Rows from which storing them is worth handing to other threads.
const PARALLEL_ROWS: usize = 8;
/// Positions of a key's cache line, at most, for which memory is asked at once.
const ASKED: usize = 16;
/// Bytes of a block that one thread copies at a time.
const COPIED: usize = 256 << 10;

/// Bytes that the system gives at once, or a part of them.
const PAGE: usize = 4096;

/// Rows of all layers.
#[derive(Default)]
pub(super) struct KvCache {
    /// The rows of each layer.
    layers: Vec<Vec<RowsPlace>>,
    groups: Vec<GroupMemory>,
    /// Positions of a block.
    block: usize,
    /// Block, slot and row of the batch of each row that is stored; kept, as the blocks are, so
    /// that the next call allocates nothing.
    runs: Vec<(usize, usize, usize)>,
    cuts: Vec<Range<usize>>,
}

/// The blocks of a group of rows.
struct GroupMemory {
    /// `[blocks][rows of the group][bytes]`: blocks in use are contiguous, so that huge pages hold
    /// little else.
    data: AlignedVec<u8>,
    /// Bytes of a block of all layers.
    stride: usize,
}

/// Where rows of a layer lie.
#[derive(Clone, Copy)]
struct RowsPlace {
    rows: Rows,
    form: RowForm,
    group: usize,
    /// Offset of their part of a block.
    start: usize,
}

#[derive(Clone, Copy)]
enum RowForm {
    Heads(KvLayout),
    Plain(PlainRows),
}

/// Plain rows of a layer.
#[derive(Clone, Copy)]
pub(super) struct PlainRef<'a> {
    pub rows: Rows,
    pub plain: PlainRows,
    pub group: usize,
    /// The group's blocks, from the first of these rows on.
    pub data: &'a [u8],
    /// Bytes from one block to the next.
    stride: usize,
    /// Positions of a block.
    block: usize,
}

impl PlainRef<'_> {
    /// Offset of row `number` in `data`, of the sequence with this block table.
    pub fn offset(&self, number: usize, table: &[u32]) -> usize {
        let (index, place) = self.rows.place(number, self.block);
        table[index] as usize * self.stride + place * self.plain.row_bytes()
    }
}

impl KvCache {
    /// Zeroed blocks for the rows of `spec`; attention runs on the threads of `pool`.
    ///
    /// # Errors
    /// If a head is too large for the kernels, or the memory cannot be allocated.
    pub fn new(pool: &ThreadPool, spec: &CacheSpec<'_>) -> Result<Self, Error> {
        let mut strides = vec![0; spec.groups.len()];
        let mut place = |rows: &Rows| {
            let heads = matches!(rows.layout, RowLayout::Heads { .. });
            if rows.dim == 0 || heads && rows.dim > MAX_HEAD_DIM {
                return Err(Error::HeadSize(rows.dim));
            }
            let form = match rows.layout {
                RowLayout::Heads { .. } => RowForm::Heads(rows.kv_layout(spec.block, spec.ty)),
                RowLayout::Plain(_) => RowForm::Plain(rows.plain_rows(spec.ty)),
            };
            let group = spec.group_of(rows);
            let start = strides[group];
            strides[group] += rows.block_bytes(spec.block, spec.ty);
            Ok(RowsPlace { rows: *rows, form, group, start })
        };
        let layers = spec.layers.iter().map(|layer| layer.rows.iter().map(&mut place).collect());
        let layers = layers.collect::<Result<_, _>>()?;
        let bytes = strides.iter().zip(spec.groups).map(|(s, g)| *s as u128 * g.blocks as u128);
        let bytes = bytes.sum();
        if bytes > isize::MAX as u128 / 2 {
            return Err(Error::CacheTooLarge(bytes));
        }
        let memory = |(stride, group): (usize, &crate::cache_spec::GroupSize)| {
            let data = AlignedVec::try_zeroed(group.blocks * stride)?;
            Ok::<_, Error>(GroupMemory { data, stride })
        };
        let groups = strides.into_iter().zip(spec.groups).map(memory).collect::<Result<_, _>>()?;
        pool.run(&|_| attention::warm_up());
        let (runs, cuts) = Default::default();
        Ok(Self { layers, groups, block: spec.block, runs, cuts })
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> usize {
        self.groups.iter().map(|group| group.data.len()).sum()
    }

    /// Makes the system provide the memory of `blocks` of a group now instead of at the first
    /// write.
    pub fn touch(&mut self, pool: &ThreadPool, group: usize, blocks: Range<usize>) {
        let GroupMemory { data, stride } = &mut self.groups[group];
        if *stride == 0 {
            return;
        }
        let data = &mut data[blocks.start * *stride..blocks.end * *stride];
        pool.for_each_tile(data, *stride, (1, *stride), |mut tile| {
            for row in tile.rows() {
                for byte in tile.row_mut(row).iter_mut().step_by(PAGE) {
                    // The bytes stay as they are; the compiler must not know that.
                    *byte = std::hint::black_box(*byte);
                }
            }
        });
    }

    /// Copies the bytes of a block of a group to `out`: rows of all layers, one after the other.
    pub fn read_block(&self, pool: &ThreadPool, group: usize, block: u32, out: &mut [u8]) {
        let GroupMemory { data, stride } = &self.groups[group];
        copy_bytes(pool, &data[block as usize * stride..][..*stride], out);
    }

    /// Sets the bytes of a block of a group.
    pub fn write_block(&mut self, pool: &ThreadPool, group: usize, block: u32, bytes: &[u8]) {
        let GroupMemory { data, stride } = &mut self.groups[group];
        copy_bytes(pool, bytes, &mut data[block as usize * *stride..][..*stride]);
    }

    /// Copies a block in all layers.
    pub fn copy(&mut self, BlockCopy { group, from, to }: BlockCopy) {
        let GroupMemory { data, stride } = &mut self.groups[group];
        let (from, to) = (from as usize * *stride, to as usize * *stride);
        data.copy_within(from..from + *stride, to);
    }

    /// Stores key and value rows (`[batch rows, heads * dim]` each, the latter none where values
    /// are part of the keys) as the first rows of `layer`.
    pub fn store(
        &mut self,
        (isa, pool): (Isa, &ThreadPool),
        layer: usize,
        (k, v): (&[f32], &[f32]),
        batch: &Batch,
    ) {
        pool.begin("store_kv");
        let RowsPlace { form, group, start, .. } = self.layers[layer][0];
        let RowForm::Heads(layout) = form else { panic!("rows of heads") };
        let GroupMemory { data, stride } = &mut self.groups[group];
        let (block, head) = (layout.block_bytes(), layout.head_bytes());
        let apart = layout.heads * layout.dim;
        let put = |rows: Range<usize>, h: usize, bytes: &mut [u8], slot: usize| {
            let at = rows.start * apart + h * layout.dim;
            let values = if layout.latent.is_some() { &[] } else { &v[at..] };
            layout.store_rows(isa, bytes, slot..slot + rows.len(), (&k[at..], values), apart);
        };
        // Prefetches the lines that are written next, which no cache of the CPU has.
        let ask = |head: &[u8], slots: Range<usize>| {
            slots.step_by(ASKED).for_each(|slot| layout.prefetch(isa, head, slot));
        };
        let strips = (start..start + block, head);
        pool.for_each_strip(data, *stride, strips, |mut tile| {
            let h = (tile.cols().start - start) / head;
            let mut before: Option<(Range<usize>, usize, usize)> = None;
            each_block(batch, group, layout.block, |rows, at, slot| {
                ask(tile.row_mut(at), slot..slot + rows.len());
                if let Some((rows, at, slot)) = before.replace((rows, at, slot)) {
                    put(rows, h, tile.row_mut(at), slot);
                }
            });
            if let Some((rows, at, slot)) = before {
                put(rows, h, tile.row_mut(at), slot);
            }
        });
    }

    /// Stores `values`, `[batch rows, dim]`, as rows `which` of `layer`, one for each position.
    pub fn store_plain(
        &mut self,
        pool: &ThreadPool,
        (layer, which): (usize, usize),
        values: &[f32],
        batch: &Batch,
    ) {
        pool.begin("store_rows");
        let RowsPlace { rows, form, group, start } = self.layers[layer][which];
        let RowForm::Plain(plain) = form else { panic!("plain rows") };
        assert!(rows.every == 1, "a row for each position");
        let (bytes, block) = (plain.row_bytes(), self.block);
        let GroupMemory { data, stride } = &mut self.groups[group];
        let put = |row: usize, of_block: &mut [u8], slot: usize| {
            let out = &mut of_block[start + slot * bytes..][..bytes];
            plain.store(out, &values[row * rows.dim..][..rows.dim]);
        };
        if batch.rows() < PARALLEL_ROWS {
            each_slot(batch, group, block, |row, at, slot| {
                put(row, &mut data[at * *stride..][..*stride], slot);
            });
            return;
        }
        // The rows of a block are one thread's.
        self.runs.clear();
        each_slot(batch, group, block, |row, at, slot| self.runs.push((at, slot, row)));
        self.runs.sort_unstable();
        self.cuts.clear();
        self.cuts.extend(self.runs.chunk_by(|a, b| a.0 == b.0).map(|run| run[0].0..run[0].0 + 1));
        let runs = &self.runs;
        pool.for_each_cut(data, *stride, (&self.cuts, *stride), |_, mut tile| {
            let at = tile.rows().start;
            let first = runs.partition_point(|run| run.0 < at);
            let of_block = tile.row_mut(at);
            for &(_, slot, row) in runs[first..].iter().take_while(|run| run.0 == at) {
                put(row, of_block, slot);
            }
        });
    }

    /// Stores one row as row `number` of rows `which` of `layer`, of the sequence with this block
    /// table.
    pub fn store_one(
        &mut self,
        (layer, which): (usize, usize),
        (number, table): (usize, &[u32]),
        values: &[f32],
    ) {
        let RowsPlace { rows, form, group, start } = self.layers[layer][which];
        let RowForm::Plain(plain) = form else { panic!("plain rows") };
        let (index, place) = rows.place(number, self.block);
        let (bytes, stride) = (plain.row_bytes(), self.groups[group].stride);
        let at = table[index] as usize * stride + start + place * bytes;
        plain.store(&mut self.groups[group].data[at..at + bytes], values);
    }

    /// The group of the first rows of a layer, and their keys and values.
    pub fn heads(&self, layer: usize) -> (usize, KvRef<'_>) {
        let RowsPlace { form, group, start, .. } = self.layers[layer][0];
        let RowForm::Heads(layout) = form else { panic!("rows of heads") };
        let GroupMemory { data, stride } = &self.groups[group];
        (group, KvRef { layout, data: &data[start..], stride: *stride })
    }

    /// Rows `which` of `layer`.
    pub fn plain(&self, layer: usize, which: usize) -> PlainRef<'_> {
        let RowsPlace { rows, form, group, start } = self.layers[layer][which];
        let RowForm::Plain(plain) = form else { panic!("plain rows") };
        let GroupMemory { data, stride } = &self.groups[group];
        PlainRef { rows, plain, group, data: &data[start..], stride: *stride, block: self.block }
    }
}

/// The largest number of plain rows of a layer and their largest size, if there are any.
pub(super) fn largest_plain(spec: &CacheSpec<'_>) -> Option<(usize, usize)> {
    let rows = spec.layers.iter().flat_map(|layer| &layer.rows);
    let plain = rows.filter(|rows| matches!(rows.layout, RowLayout::Plain(_)));
    let sizes = plain.map(|rows| {
        let blocks = spec.groups[spec.group_of(rows)].blocks;
        (blocks.saturating_mul(rows.places(spec.block)), rows.dim)
    });
    sizes.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
}

/// Copies bytes, a part of them on each thread.
fn copy_bytes(pool: &ThreadPool, from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "bytes of a block");
    let len = to.len();
    pool.for_each_strip(to, len.max(1), (0..len, COPIED), |mut part| {
        let bytes = &from[part.cols()];
        part.row_mut(0).copy_from_slice(bytes);
    });
}

/// Calls `f(rows, block number, slot of the first)` for the rows of the batch in each block.
fn each_block(
    batch: &Batch,
    group: usize,
    block: usize,
    mut f: impl FnMut(Range<usize>, usize, usize),
) {
    for sequence in batch.sequences() {
        let table = batch.block_table(sequence, group);
        let mut rows = sequence.rows.clone();
        while !rows.is_empty() {
            let position = sequence.position + rows.start - sequence.rows.start;
            let slot = position % block;
            let end = rows.end.min(rows.start + block - slot);
            f(rows.start..end, table[position / block] as usize, slot);
            rows.start = end;
        }
    }
}

/// Calls `f(row, block number, slot)` for each row of the batch.
fn each_slot(batch: &Batch, group: usize, block: usize, mut f: impl FnMut(usize, usize, usize)) {
    each_block(batch, group, block, |rows, at, slot| {
        for (row, slot) in rows.zip(slot..) {
            f(row, at, slot);
        }
    });
}
