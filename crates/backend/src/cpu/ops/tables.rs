//! Tables whose rows stay on disk, such as those of n-grams: rows that are used often are kept
//! in memory.
//!
//! A row is in one of a few places that its number decides, and takes that of the row there which
//! was used least. What is kept changes no values.

use crate::cpu::core::CpuCore;
use crate::error::Error;
use crate::handles::{Buffer, MatrixSpec, MemoryPolicy};
use crate::memory::TableStats;
use base::{OutOfMemory, PageVec};

/// Places that a row may have.
const WAYS: usize = 8;
/// Uses that are counted.
const MAX_USES: u8 = 15;
/// Rows that a thread asks the system for at a time.
const ROWS_PER_PIECE: usize = 64;
/// A place without a row, and a row without a place.
const NONE: u32 = u32::MAX;

/// Rows of one table in memory.
pub(in crate::cpu) struct KeptRows {
    row_bytes: usize,
    /// Row of each place.
    rows: Vec<u32>,
    /// Uses of each, which fade as others come.
    uses: Vec<u8>,
    /// `[places, row_bytes]`.
    data: PageVec,
    /// Places of the rows of a call; kept, so that the next one allocates nothing.
    found: Vec<u32>,
    stats: TableStats,
}

/// The kept rows of each table, by its number; `None` where rows are used where they are.
#[derive(Default)]
pub(in crate::cpu) struct KeptTables(Vec<Option<KeptRows>>);

impl KeptTables {
    /// Makes memory of at most `bytes` for rows of those of `tables` whose rows stay on disk.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(&mut self, tables: &[MatrixSpec], bytes: usize) -> Result<(), Error> {
        let stay = |table: &&MatrixSpec| table.memory == MemoryPolicy::Rows;
        let count = tables.iter().filter(stay).count().max(1);
        let kept = |table| match stay(&table) {
            true => KeptRows::new(table, bytes / count),
            false => Ok(None),
        };
        self.0 = tables.iter().map(kept).collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// The kept rows of a table.
    pub fn of(&mut self, table: usize) -> Option<&mut KeptRows> {
        self.0.get_mut(table)?.as_mut()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let each = self.0.iter().flatten();
        each.map(|kept| kept.data.len() + kept.rows.len() * (size_of::<u32>() + 1)).sum()
    }

    /// What has happened to all tables, if any has kept rows.
    pub fn stats(&self) -> Option<TableStats> {
        let each = self.0.iter().flatten().map(|kept| kept.stats);
        each.reduce(|a, b| TableStats {
            bytes: a.bytes + b.bytes,
            kept_bytes: a.kept_bytes + b.kept_bytes,
            hits: a.hits + b.hits,
            misses: a.misses + b.misses,
        })
    }
}

impl KeptRows {
    /// Places for rows of `table` in `bytes`; `None` if these are too few.
    fn new(table: &MatrixSpec, bytes: usize) -> Result<Option<Self>, Error> {
        let row_bytes = table.row_bytes()?;
        let places = (bytes / (row_bytes + size_of::<u32>() + 1)).min(table.rows);
        let places = places / WAYS * WAYS;
        if places == 0 {
            return Ok(None);
        }
        let bytes = places * row_bytes;
        let data = PageVec::scattered(bytes).map_err(|_| OutOfMemory { bytes: bytes as u128 })?;
        let stats = TableStats {
            bytes: table.bytes.len(),
            kept_bytes: data.len(),
            ..TableStats::default()
        };
        let (rows, uses) = (vec![NONE; places], vec![0; places]);
        Ok(Some(Self { row_bytes, rows, uses, data, found: Vec::new(), stats }))
    }

    /// The first of the places that a row may have.
    fn first(&self, row: u32) -> usize {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let sets = (self.rows.len() / WAYS) as u64;
        let spread = u64::from(row).wrapping_mul(SPREAD) >> 32;
        ((spread * sets) >> 32) as usize * WAYS
    }

    /// The place of a row, or [`NONE`].
    fn place(&self, row: u32) -> u32 {
        let first = self.first(row);
        let at = self.rows[first..first + WAYS].iter().position(|kept| *kept == row);
        at.map_or(NONE, |at| (first + at) as u32)
    }

    fn row(&self, place: u32) -> &[u8] {
        &self.data[place as usize * self.row_bytes..][..self.row_bytes]
    }

    /// Asks the system for those of `rows` that are not in memory. Asking takes time of its own, so
    /// that all threads do.
    pub fn foresee(&self, core: &CpuCore, table: &MatrixSpec, rows: &[u32]) {
        core.pool.begin("foresee_rows");
        core.pool.for_each(rows.len().div_ceil(ROWS_PER_PIECE), |piece| {
            let rows = rows[piece * ROWS_PER_PIECE..].iter().take(ROWS_PER_PIECE);
            for row in rows.filter(|row| self.place(**row) == NONE) {
                let start = *row as usize * self.row_bytes;
                table.bytes.will_need(start..start + self.row_bytes);
            }
        });
    }

    /// Rows of the table, as many as fit in each row of `out`.
    pub fn embed(&mut self, core: &mut CpuCore, table: &MatrixSpec, rows: &[u32], out: Buffer) {
        self.look_up(rows);
        let dequantize = table.ty.dequantize.expect("checked in `table`");
        let (cols, each) = (table.cols, core.width(out) / table.cols);
        let kept = &*self;
        core.each_row("embed", (out, rows.len() / each), |_, row, out| {
            for (at, out) in (row * each..).zip(out.chunks_exact_mut(cols)) {
                match kept.found[at] {
                    NONE => dequantize(&kept.stored(table, rows[at]), out),
                    place => dequantize(kept.row(place), out),
                }
            }
        });
        for (at, row) in rows.iter().enumerate() {
            if self.found[at] == NONE {
                self.keep(*row, &self.stored(table, *row));
            }
        }
    }

    /// Finds the places of rows, and counts their uses.
    fn look_up(&mut self, rows: &[u32]) {
        self.found.clear();
        for row in rows {
            let place = self.place(*row);
            self.found.push(place);
            match self.uses.get_mut(place as usize) {
                Some(uses) => {
                    *uses = (*uses + 1).min(MAX_USES);
                    self.stats.hits += 1;
                }
                None => self.stats.misses += 1,
            }
        }
    }

    /// The bytes of a row in the file.
    fn stored<'a>(&self, table: &'a MatrixSpec, row: u32) -> std::borrow::Cow<'a, [u8]> {
        let start = row as usize * self.row_bytes;
        table.bytes.read(start..start + self.row_bytes)
    }

    /// Keeps a row in the place of the one that was used least.
    fn keep(&mut self, row: u32, bytes: &[u8]) {
        if self.place(row) != NONE {
            return;
        }
        let first = self.first(row);
        let uses = &mut self.uses[first..first + WAYS];
        let empty = self.rows[first..first + WAYS].iter().position(|kept| *kept == NONE);
        let least = (0..WAYS).min_by_key(|at| uses[*at]).unwrap_or(0);
        let at = empty.unwrap_or(least);
        uses.iter_mut().for_each(|uses| *uses = uses.saturating_sub(1));
        uses[at] = 1;
        let place = first + at;
        self.rows[place] = row;
        self.data[place * self.row_bytes..][..self.row_bytes].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use crate::handles::Mode;
    use crate::seam::{Operations, Weights};
    use base::Rng;
    use kernels::quant::F32;
    use std::sync::Arc;

    #[test]
    fn kept_rows_change_no_values_and_those_that_are_used_stay() {
        const ROWS: usize = 500;
        let values: Vec<f32> = (0..ROWS * 3).map(|at| at as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut spec = MatrixSpec::new("t".to_owned(), &F32, [ROWS, 3], Arc::new(bytes));
        spec.memory = MemoryPolicy::Rows;
        for memory in [0, 100, 17 * 40, 1 << 20] {
            let mut cpu = Cpu::new(2, Mode::Exact).unwrap();
            let table = cpu.table(spec.clone()).unwrap();
            let out = cpu.buffer(20, 6).unwrap();
            cpu.cached_tables().unwrap().table_memory(memory).unwrap();
            let mut rng = Rng::new(5);
            for _ in 0..60 {
                let row = |rng: &mut Rng| match rng.below(2) {
                    0 => rng.below(4) as u32,
                    _ => rng.below(ROWS as u64) as u32,
                };
                let rows: Vec<u32> = (0..40).map(|_| row(&mut rng)).collect();
                cpu.cached_tables().unwrap().foresee_rows(table, &rows);
                cpu.embed(table, &rows, out);
                let expected = rows.iter().flat_map(|row| &values[*row as usize * 3..][..3]);
                assert!(cpu.read(out, 20).iter().eq(expected), "{memory}");
            }
            let Some(stats) = cpu.table_stats() else {
                assert!(memory < 17 * WAYS, "{memory}");
                continue;
            };
            assert_eq!(stats.hits + stats.misses, 2400);
            assert!(stats.hits > 800, "{memory}: {stats:?}");
            assert!(stats.kept_bytes <= memory);
        }
    }
}
