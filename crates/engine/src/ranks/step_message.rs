//! A batch as the bytes of a message. The block tables are sent as what changed since the step
//! before.

use super::message::{MessageReader, MessageWriter};
use super::tables::LastTables;
use backend::{
    Adapter, AdapterSet, Batch, BlockCopy, GroupSize, ScaledAdapter, SequenceRows, StateRows,
};
use std::ops::Range;
use std::sync::Arc;

/// What the batches of a model can hold.
#[derive(Debug)]
pub(crate) struct BatchBounds {
    /// Most rows, and most rows with logits.
    pub rows: usize,
    pub logit_rows: usize,
    /// Number of words, and of types of tokens.
    pub words: usize,
    pub token_types: usize,
    /// Most tokens of a sequence.
    pub context: usize,
    /// Positions of a block.
    pub block: usize,
    /// Blocks of each group.
    pub groups: Vec<GroupSize>,
    /// Number of state slots.
    pub states: usize,
    /// Most rows of drafted tokens of a sequence.
    pub drafted: usize,
    /// Most adapters of a sequence.
    pub adapters: usize,
}

/// Flags of a sequence.
const HAS_STATE: u32 = 1;
const IS_LONG: u32 = 2;
const HAS_TYPES: u32 = 4;

/// Writes what `batch` has, whose tables become the last ones.
pub(super) fn write(
    writer: &mut MessageWriter,
    batch: &Batch,
    (last, next): (&LastTables, &mut LastTables),
    groups: usize,
) {
    next.clear();
    writer.size(batch.copies().len());
    for BlockCopy { group, from, to } in batch.copies() {
        writer.numbers(&[*group as u32, *from, *to]);
    }
    write_state_copies(writer, batch.state_copies());
    writer.size(batch.sequences().len());
    for sequence in batch.sequences() {
        write_sequence(writer, batch, sequence);
        let continued = last.continued(batch.block_table(sequence, 0));
        LastTables::write_sequence(writer, continued);
        for group in 0..groups {
            let table = batch.block_table(sequence, group);
            last.write(writer, (continued, group), table);
            next.push(table);
        }
    }
}

/// Writes pairs of slots: from, to.
pub(super) fn write_state_copies(writer: &mut MessageWriter, copies: &[(u32, u32)]) {
    writer.size(copies.len());
    copies.iter().for_each(|(from, to)| writer.numbers(&[*from, *to]));
}

/// Writes all of a sequence but its tables.
fn write_sequence(writer: &mut MessageWriter, batch: &Batch, sequence: &SequenceRows) {
    let SequenceRows { rows, position, state, .. } = sequence;
    let types = &batch.token_types()[rows.clone()];
    let has_types = types.iter().any(|ty| *ty != 0);
    let is_long = batch.long_rows().contains(rows);
    let flag = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
    writer.number(
        flag(HAS_STATE, state.is_some()) | flag(IS_LONG, is_long) | flag(HAS_TYPES, has_types),
    );
    writer.size(rows.len());
    writer.size(*position);
    writer.size(within(batch.logit_rows(), rows));
    writer.size(within(batch.hidden_rows(), rows));
    writer.numbers(&batch.tokens()[rows.clone()]);
    if has_types {
        writer.numbers(types);
    }
    let before = batch.before(sequence);
    writer.size(before.len());
    writer.numbers(before);
    if let Some(StateRows { slot, right, guesses }) = state {
        writer.numbers(&[*slot, *right as u32, *guesses as u32]);
    }
    let saves = batch.saves(sequence);
    writer.size(saves.len());
    for save in saves {
        writer.size(save.row - rows.start);
        writer.number(save.slot);
    }
    let adapted = batch.adapted().iter().find(|adapted| adapted.rows.contains(&rows.start));
    let adapters = || adapted.into_iter().flat_map(|adapted| adapted.adapters.iter());
    writer.size(adapters().count());
    for ScaledAdapter { adapter, scale } in adapters() {
        writer.number(scale.to_bits());
        writer.text(adapter.digest());
    }
}

/// How many of the ascending numbers are rows of a sequence.
fn within(numbers: &[u32], rows: &Range<usize>) -> usize {
    let before = |end: usize| numbers.partition_point(|row| (*row as usize) < end);
    before(rows.end) - before(rows.start)
}

/// Reads batches.
pub(crate) struct BatchReader<'a> {
    pub bounds: &'a BatchBounds,
    /// The adapters that sequences may have.
    pub adapters: &'a [Arc<Adapter>],
    /// Tokens of a sequence, and those before them.
    pub tokens: &'a mut Vec<u32>,
}

impl BatchReader<'_> {
    /// Reads a batch that [`write`] has written, in place of what `batch` has.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn read(
        &mut self,
        reader: &mut MessageReader<'_>,
        batch: &mut Batch,
        (last, next): (&LastTables, &mut LastTables),
    ) -> Result<(), String> {
        batch.clear();
        next.clear();
        self.read_copies(reader, batch)?;
        let most = self.bounds.rows;
        let (mut rows, mut logits) = (0, 0);
        for _ in 0..reader.count(most, "sequences")? {
            let of_sequence = self.read_sequence(reader, batch, [rows, logits])?;
            rows += of_sequence[0];
            logits += of_sequence[1];
            let continued = last.read_sequence(reader)?;
            let end = batch.sequences().last().map_or(0, SequenceRows::end);
            for group in 0..self.bounds.groups.len() {
                let blocks = self.bounds.groups[group].blocks;
                let most = self.bounds.context.div_ceil(self.bounds.block);
                last.read(reader, (continued, group), (most, blocks), next)?;
                let (found, expected) = (next.last().len(), end.div_ceil(self.bounds.block));
                if found < expected {
                    return Err(format!("blocks: expected {expected}, found {found}"));
                }
                batch.table(next.last());
            }
        }
        match rows {
            0 => Err("expected a row, found none".to_owned()),
            _ => reader.end(),
        }
    }

    fn read_copies(&self, reader: &mut MessageReader<'_>, batch: &mut Batch) -> Result<(), String> {
        let groups = &self.bounds.groups;
        for _ in 0..reader.count(self.bounds.rows, "copies of blocks")? {
            let group = reader.below(groups.len(), "group")?;
            let mut block = || reader.below(groups[group].blocks, "block").map(|it| it as u32);
            batch.copy(BlockCopy { group, from: block()?, to: block()? });
        }
        read_state_copies(reader, self.bounds, |from, to| batch.copy_state(from, to))
    }

    /// Reads all of a sequence but its tables, after `before` rows and rows with logits. Returns
    /// the numbers of both that it has.
    fn read_sequence(
        &mut self,
        reader: &mut MessageReader<'_>,
        batch: &mut Batch,
        before: [usize; 2],
    ) -> Result<[usize; 2], String> {
        let bounds = self.bounds;
        let flags = reader.number()?;
        let rows = reader.count(bounds.rows - before[0], "rows")?;
        let position = reader.count(bounds.context.saturating_sub(rows), "position")?;
        let logits = reader.count(rows.min(bounds.logit_rows - before[1]), "rows with logits")?;
        let hidden = reader.count(rows, "rows with states")?;
        if rows == 0 {
            return Err("expected a row of each sequence, found none".to_owned());
        }
        self.tokens.clear();
        reader.numbers((rows, bounds.words), self.tokens, "token")?;
        batch.push([self.tokens, &[]], position, logits);
        if flags & HAS_TYPES != 0 {
            self.tokens.clear();
            reader.numbers((rows, bounds.token_types), self.tokens, "type of a token")?;
            batch.types(self.tokens);
        }
        batch.want_hidden(hidden);
        self.tokens.clear();
        let earlier = reader.count(position.min(Batch::MAX_BEFORE), "tokens before")?;
        reader.numbers((earlier, bounds.words), self.tokens, "token before")?;
        batch.follow(self.tokens);
        if flags & IS_LONG != 0 {
            batch.mark_long();
        }
        let guesses = self.read_state(reader, batch, (flags & HAS_STATE != 0, rows))?;
        let mut next = 0;
        for _ in 0..reader.count(rows, "saves of states")? {
            let row = reader.below(rows - guesses, "row of a state")?;
            let slot = reader.below(bounds.states, "slot")? as u32;
            if row < next {
                return Err(format!("row of a state: expected at least {next}, found {row}"));
            }
            next = row + 1;
            batch.save(position + row, slot);
        }
        self.read_adapters(reader, batch)?;
        Ok([rows, logits])
    }

    /// Reads the state slot of a sequence of `rows` rows, if it has one. Returns its drafted rows.
    fn read_state(
        &self,
        reader: &mut MessageReader<'_>,
        batch: &mut Batch,
        (has_state, rows): (bool, usize),
    ) -> Result<usize, String> {
        if !has_state {
            return Ok(0);
        }
        let slot = reader.below(self.bounds.states, "slot")? as u32;
        let right = reader.count(self.bounds.drafted, "drafted rows before")?;
        let guesses = reader.below(rows.min(self.bounds.drafted + 1), "drafted rows")?;
        batch.state(StateRows { slot, right, guesses });
        Ok(guesses)
    }

    fn read_adapters(
        &self,
        reader: &mut MessageReader<'_>,
        batch: &mut Batch,
    ) -> Result<(), String> {
        let count = reader.count(self.bounds.adapters, "adapters")?;
        if count == 0 {
            return Ok(());
        }
        let mut adapters = Vec::with_capacity(count);
        for _ in 0..count {
            let scale = f32::from_bits(reader.number()?);
            let digest = reader.text()?;
            let known = self.adapters.iter().find(|known| known.digest() == digest);
            let known = known.ok_or_else(|| format!("adapter {digest} is not loaded"))?;
            adapters.push(ScaledAdapter { adapter: Arc::clone(known), scale });
        }
        batch.adapt(&AdapterSet::new(adapters));
        Ok(())
    }
}

/// Reads pairs of slots that [`write_state_copies`] has written.
///
/// # Errors
/// What was expected and found.
pub(crate) fn read_state_copies(
    reader: &mut MessageReader<'_>,
    bounds: &BatchBounds,
    mut copy: impl FnMut(u32, u32),
) -> Result<(), String> {
    for _ in 0..reader.count(2 * bounds.states, "copies of states")? {
        let mut slot = || reader.below(bounds.states, "slot").map(|slot| slot as u32);
        copy(slot()?, slot()?);
    }
    Ok(())
}
