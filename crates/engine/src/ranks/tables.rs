//! The block tables of the last step, which both ends of a message keep: a table is sent as what
//! changed in it.

use super::message::{MessageReader, MessageWriter};

/// Marks a table without one that it continues.
const NONE: u32 = u32::MAX;
/// The block of positions that are no longer in sight.
const GONE: u32 = u32::MAX;

/// The tables of a step: those of all groups of a sequence, after those of the sequence before.
#[derive(Debug)]
pub(crate) struct LastTables {
    groups: usize,
    blocks: Vec<u32>,
    /// One past the last block of each table.
    ends: Vec<usize>,
}

impl LastTables {
    /// Tables of so many groups, with memory for `blocks` blocks.
    pub fn new(groups: usize, blocks: usize) -> Self {
        let (blocks, ends) = (Vec::with_capacity(blocks), Vec::with_capacity(blocks));
        Self { groups, blocks, ends }
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        self.ends.clear();
    }

    fn sequences(&self) -> usize {
        self.ends.len() / self.groups
    }

    fn table(&self, sequence: usize, group: usize) -> &[u32] {
        let at = sequence * self.groups + group;
        let first = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.blocks[first..self.ends[at]]
    }

    /// Adds the next table.
    pub fn push(&mut self, table: &[u32]) {
        self.blocks.extend_from_slice(table);
        self.ends.push(self.blocks.len());
    }

    /// The table that was added last.
    pub fn last(&self) -> &[u32] {
        let first = self.ends.len().checked_sub(2).map_or(0, |at| self.ends[at]);
        &self.blocks[first..]
    }

    /// The sequence whose table of the first group `table` continues: the last block of a sequence
    /// is its own.
    pub fn continued(&self, table: &[u32]) -> Option<usize> {
        (0..self.sequences()).find(|sequence| {
            let before = self.table(*sequence, 0);
            let both = before.len().min(table.len());
            both > 0 && before[both - 1] == table[both - 1]
        })
    }

    /// Writes `table` of `group` as what changed since the step of these tables, in which it was
    /// that of `sequence`.
    pub fn write(
        &self,
        writer: &mut MessageWriter,
        (sequence, group): (Option<usize>, usize),
        table: &[u32],
    ) {
        let before = sequence.map_or(&[][..], |sequence| self.table(sequence, group));
        let first = table.iter().take_while(|block| **block == GONE).count();
        let equal = before.iter().zip(table).skip(first).take_while(|(a, b)| a == b).count();
        let kept = if first < before.len() { first + equal } else { first };
        writer.size(first);
        writer.size(kept);
        writer.size(table.len() - kept);
        writer.numbers(&table[kept..]);
    }

    /// Reads a table of at most `most` of `blocks` blocks, which [`write`](Self::write) has
    /// written, and adds it to `tables`.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn read(
        &self,
        reader: &mut MessageReader<'_>,
        (sequence, group): (Option<usize>, usize),
        (most, blocks): (usize, usize),
        tables: &mut Self,
    ) -> Result<(), String> {
        let before = sequence.map_or(&[][..], |sequence| self.table(sequence, group));
        let first = reader.count(most, "blocks out of sight")?;
        let kept = reader.count(most, "blocks kept")?;
        if kept < first || kept > first.max(before.len()) {
            return Err(format!("blocks kept: expected {first} to {}, found {kept}", before.len()));
        }
        let own = tables.blocks.len();
        tables.blocks.resize(own + first, GONE);
        if kept > first {
            tables.blocks.extend_from_slice(&before[first..kept]);
        }
        if let Some(block) = tables.blocks[own + first..].iter().find(|it| **it == GONE) {
            return Err(format!("blocks kept: expected blocks in sight, found {block}"));
        }
        let more = reader.count(most - kept, "blocks")?;
        reader.numbers((more, blocks), &mut tables.blocks, "block")?;
        tables.ends.push(tables.blocks.len());
        Ok(())
    }

    /// Writes which sequence of these tables another one continues.
    pub fn write_sequence(writer: &mut MessageWriter, sequence: Option<usize>) {
        writer.number(sequence.map_or(NONE, |sequence| sequence as u32));
    }

    /// Reads what [`write_sequence`](Self::write_sequence) has written.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn read_sequence(&self, reader: &mut MessageReader<'_>) -> Result<Option<usize>, String> {
        match reader.number()? {
            NONE => Ok(None),
            found if (found as usize) < self.sequences() => Ok(Some(found as usize)),
            found => {
                let sequences = self.sequences();
                Err(format!("sequence: expected one of {sequences}, found {found}"))
            }
        }
    }
}
